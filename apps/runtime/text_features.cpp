#include "apps/runtime/text_features.h"

#include <algorithm>

#include "engine/checkpoint/checked_weight.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/non_finite.h"

namespace tessera {

namespace {

std::string wanted_text(const ContextSpec& wanted) {
  return "one tensor of 1 to " + std::to_string(wanted.rows) + " rows of " +
         std::to_string(wanted.width) + " numbers (T5-11B's encoder)";
}

[[noreturn]] void refuse(ErrorKind kind, const std::string& file, std::string expected,
                         std::string found) {
  throw Error({.kind = kind,
               .code = "E_VIDEO_TEXT",
               .file = file,
               .where = "--text-features",
               .expected = std::move(expected),
               .found = std::move(found)});
}

}  // namespace

std::shared_ptr<const Tensor> text_features_of(const std::string& file,
                                               const std::optional<ContextSpec>& wanted) {
  if (!wanted && file.empty()) return nullptr;
  if (!wanted) refuse(ErrorKind::kUsage, "", "none, as this model reads none", file);
  if (file.empty()) {
    refuse(ErrorKind::kUsage, "", "a file with " + wanted_text(*wanted) + ", or a --prompt", "none");
  }
  const Checkpoint checkpoint = Checkpoint::open(file);
  if (checkpoint.tensors().size() != 1) {
    refuse(ErrorKind::kModel, file, wanted_text(*wanted),
           std::to_string(checkpoint.tensors().size()) + " tensors");
  }
  const auto& [name, view] = *checkpoint.tensors().begin();
  ConstTensorView rows = view;
  if (rows.shape.rank() == 3 && rows.shape[0] == 1) rows.shape = {rows.shape[1], rows.shape[2]};
  const bool numbers =
      rows.dtype == DType::kF32 || rows.dtype == DType::kBF16 || rows.dtype == DType::kF16;
  if (rows.shape.rank() != 2 || rows.shape[0] < 1 || rows.shape[0] > wanted->rows ||
      rows.shape[1] != wanted->width || !numbers) {
    refuse(ErrorKind::kModel, file, wanted_text(*wanted),
           view.shape.to_string() + " of " + std::string(dtype_name(view.dtype)));
  }
  if (const auto bad = find_non_finite(rows)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_WEIGHT_NOT_FINITE",
                 .file = file,
                 .where = name + " index " + std::to_string(bad->index),
                 .expected = "finite numbers",
                 .found = std::to_string(bad->count) + " NaN or infinite"});
  }
  const Tensor wide = widened(rows);
  auto out = std::make_shared<Tensor>(Tensor::host(DType::kF32, {wanted->rows, wanted->width}));
  const std::int64_t given = rows.shape.elements();
  std::copy_n(wide.f32(), given, out->f32());
  std::fill(out->f32() + given, out->f32() + out->shape().elements(), 0.0f);
  return out;
}

}  // namespace tessera
