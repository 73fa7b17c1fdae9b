// Host buffers, owned tensors and the activation arena.
#include "engine/core/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tessera {

namespace {
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }
}  // namespace

std::string Shape::to_string() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) out += (i > 0 ? ", " : "") + std::to_string((*this)[i]);
  return out + "]";
}

Buffer allocate_host(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const std::size_t alignment = huge ? kHugePage : kAlignment;
  void* memory = bytes <= SIZE_MAX / 2
                     ? std::aligned_alloc(alignment, round_up(std::max<std::size_t>(bytes, 1), alignment))
                     : nullptr;
  if (memory == nullptr) {
    throw Error({.kind = ErrorKind::kMemory, .code = "E_HOST_MEMORY", .where = "host memory",
                 .expected = std::to_string(bytes) + " bytes", .found = "allocation refused"});
  }
  // Weights stream faster from large pages. Only those that lie inside as a whole: a page that
  // reaches past the end would hold memory that no plan counts.
  if (huge) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return Buffer(memory, +[](void* p) { std::free(p); });
}

Tensor Tensor::host(DType dtype, Shape shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * dtype_size(dtype);
  return Tensor(dtype, shape, allocate_host(bytes));
}

Tensor Tensor::clone() const {
  Tensor copy = host(dtype(), shape());
  if (bytes() > 0) std::memcpy(copy.view().data, view().data, bytes());
  return copy;
}

TensorView Arena::take(DType dtype, Shape shape) {
  const std::size_t bytes =
      round_up(static_cast<std::size_t>(shape.elements()) * dtype_size(dtype), kAlignment);
  expects(used_ + bytes <= capacity_, "the arena was planned large enough");
  auto* memory = static_cast<std::byte*>(buffer_.get()) + used_;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return {dtype, shape, memory, Device{}};
}

}  // namespace tessera
