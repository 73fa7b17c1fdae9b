// Writer of safetensors: widest elements first and a header padded to 8 bytes, so that every tensor
// lies aligned for its element type.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr std::size_t kHeaderAlignment = 8;

std::string_view stored_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF64:
      return "F64";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI16:
      return "I16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kBool:
      return "BOOL";
    default:  // the format has no blocks
      break;
  }
  expects(false, "safetensors has a name for the type");
  return "";
}

}  // namespace

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, ConstTensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  using Entry = std::pair<std::string, ConstTensorView>;
  std::vector<Entry> order(tensors.begin(), tensors.end());
  std::stable_sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    return dtype_size(a.second.dtype) > dtype_size(b.second.dtype);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::span<const std::byte>> pieces(2);
  std::uint64_t offset = 0;
  for (const auto& [name, view] : order) {
    expects(is_tensor_name(name) && name != "__metadata__", "the name is one a reader accepts");
    expects(view.device == Device{}, "the tensor lies in host memory");
    const std::uint64_t end = offset + view.bytes();
    header[name] = {{"dtype", stored_name(view.dtype)},
                    {"shape", std::vector<std::int64_t>(view.shape.extents().begin(),
                                                        view.shape.extents().end())},
                    {"data_offsets", {offset, end}}};
    pieces.emplace_back(static_cast<const std::byte*>(view.data), view.bytes());
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(std::uint64_t{text.size()} >> (8 * i));
  }
  pieces[0] = length;
  pieces[1] = std::as_bytes(std::span(text.data(), text.size()));
  write_file_atomic(path, pieces);
}

}  // namespace tessera
