#include "apps/runtime/draft_table_file.h"

#include <algorithm>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

std::vector<std::int16_t> read_codes(const Checkpoint& file, const std::string& name,
                                     const Shape& shape, std::int64_t lowest, std::int64_t codes) {
  const auto refuse = [&](std::string expected, std::string found) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_GUESSES",
                 .file = file.file_of(name),
                 .where = name,
                 .expected = std::move(expected),
                 .found = std::move(found)});
  };
  const ConstTensorView* view = file.find(name);
  const std::string wanted = "I16 " + shape.to_string();
  if (view == nullptr) refuse(wanted, "no such tensor");
  if (view->dtype != DType::kI16 || view->shape != shape) {
    refuse(wanted, std::string(dtype_name(view->dtype)) + " " + view->shape.to_string());
  }
  const auto* values = static_cast<const std::int16_t*>(view->data);
  std::vector<std::int16_t> out(values, values + shape.elements());
  for (const std::int16_t code : out) {
    if (code < lowest || code >= codes) {
      refuse("codes from " + std::to_string(lowest) + " to " + std::to_string(codes - 1),
             std::to_string(code));
    }
  }
  return out;
}

}  // namespace

std::shared_ptr<const DraftTable> load_draft_table(const std::filesystem::path& folder,
                                                   std::int64_t codes) {
  const std::filesystem::path path = folder / "guesses.safetensors";
  if (folder.empty() || !file_exists(path)) return nullptr;
  const Checkpoint file = Checkpoint::open(path);
  auto out = std::make_shared<DraftTable>();
  out->codes = codes;
  out->left_above = read_codes(file, "left_above", Shape{codes, codes}, -1, codes);
  out->left = read_codes(file, "left", Shape{codes}, 0, codes);
  out->above = read_codes(file, "above", Shape{codes}, 0, codes);
  file.verify_unchanged();
  return out;
}

}  // namespace tessera
