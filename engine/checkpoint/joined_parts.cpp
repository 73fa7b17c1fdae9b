#include "engine/checkpoint/joined_parts.h"

#include <cstring>
#include <utility>

#include "engine/checkpoint/container.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_part(const std::string& file, const std::string& name,
                              std::string expected, std::string found) {
  refuse_model("E_CKPT_PARTS", file, tensor_place(name), std::move(expected), std::move(found));
}

std::string type_text(const ConstTensorView& view) {
  return view.shape.to_string() + " " + std::string(dtype_name(view.dtype));
}

}  // namespace

Shape joined_shape(PartAxis axis, std::span<const ConstTensorView> parts, const std::string& name,
                   std::span<const std::string> files) {
  const ConstTensorView& first = parts.front();
  const auto count = std::ssize(parts);
  const int rank = axis == PartAxis::kOwnRow ? 1 : 2;
  if (axis != PartAxis::kWhole && first.shape.rank() != rank) {
    refuse_part(files.front(), name, rank == 1 ? "a vector" : "a matrix", type_text(first));
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].dtype != first.dtype || parts[i].shape != first.shape) {
      refuse_part(files[i], name, type_text(first) + ", as " + files.front() + " has",
                  type_text(parts[i]));
    }
    const bool same = axis != PartAxis::kWhole || first.bytes() == 0 ||
                      std::memcmp(parts[i].data, first.data, first.bytes()) == 0;
    if (!same) refuse_part(files[i], name, "the numbers of " + files.front(), "others");
  }
  switch (axis) {
    case PartAxis::kWhole:
      break;
    case PartAxis::kRows:
      return {count * first.shape[0], first.shape[1]};
    case PartAxis::kColumns:
      return {first.shape[0], count * first.shape[1]};
    case PartAxis::kOwnRow:
      return {count, first.shape[0]};
  }
  return first.shape;
}

void join_parts(PartAxis axis, std::span<const ConstTensorView> parts, std::byte* out) {
  const std::size_t bytes = parts.front().bytes();
  const bool columns = axis == PartAxis::kColumns;
  const std::size_t rows = columns ? to_size(parts.front().shape[0]) : 1;
  if (bytes == 0) return;
  const std::size_t of_row = bytes / rows;
  const auto used = axis == PartAxis::kWhole ? parts.first(1) : parts;
  for (std::size_t row = 0; row < rows; ++row) {
    for (const ConstTensorView& part : used) {
      std::memcpy(out, part.raw() + row * of_row, of_row);
      out += of_row;
    }
  }
}

}  // namespace tessera
