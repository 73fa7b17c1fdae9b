// Host buffers, owned tensors and the activation arena.
#include "engine/core/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/core/index.h"

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

namespace {

// 64-byte aligned memory cut out of a plain block, whose address stands in front of it. The aligned
// allocation of glibc before 2.38 does not take its own freed blocks again, so that a run which
// makes and drops small tensors next to lasting ones would grow for ever.
Buffer allocate_small(std::size_t bytes) {
  void* block = std::malloc(bytes + kAlignment);
  if (block == nullptr) return Buffer(nullptr, +[](void*) {});
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  auto* memory = static_cast<std::byte*>(block) + (kAlignment - address % kAlignment);
  static_assert(alignof(std::max_align_t) >= sizeof(void*), "room for the address in any gap");
  std::memcpy(memory - sizeof block, &block, sizeof block);
  return Buffer(memory, +[](void* p) {
    void* whole = nullptr;
    std::memcpy(&whole, static_cast<std::byte*>(p) - sizeof whole, sizeof whole);
    std::free(whole);
  });
}

// Pages of their own, released when they are dropped; a page in front holds how many. From the
// heap, blocks of several sizes at such an alignment would leave holes that nothing fits.
Buffer allocate_huge(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (bytes > SIZE_MAX / 2) return Buffer(nullptr, +[](void*) {});
  const std::size_t kept = kPage + round_up(bytes, kPage), taken = kept + kHugePage;
  void* block = mmap(nullptr, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return Buffer(nullptr, +[](void*) {});
  auto* start = static_cast<std::byte*>(block);
  const std::size_t past = (reinterpret_cast<std::uintptr_t>(start) + kPage) % kHugePage;
  const std::size_t gap = past == 0 ? 0 : kHugePage - past;
  if (gap > 0) munmap(start, gap);
  if (gap < kHugePage) munmap(start + gap + kept, kHugePage - gap);
  std::byte* memory = start + gap + kPage;
  std::memcpy(memory - kPage, &kept, sizeof kept);
  return Buffer(memory, +[](void* p) {
    std::byte* front = static_cast<std::byte*>(p) - kPage;
    std::size_t whole = 0;
    std::memcpy(&whole, front, sizeof whole);
    munmap(front, whole);
  });
}

}  // namespace

Buffer allocate_host(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  Buffer memory = huge ? allocate_huge(bytes) : allocate_small(bytes);
  if (memory == nullptr) {
    throw Error({.kind = ErrorKind::kMemory, .code = "E_HOST_MEMORY", .where = "host memory",
                 .expected = std::to_string(bytes) + " bytes", .found = "allocation refused"});
  }
  // Weights stream faster from large pages. Only those that lie inside as a whole: a page that
  // reaches past the end would hold memory that no plan counts.
  if (huge) madvise(memory.get(), bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

Tensor Tensor::host(DType dtype, Shape shape) {
  const std::size_t bytes = dtype_bytes(dtype, shape.elements());
  return Tensor(dtype, shape, allocate_host(bytes));
}

Tensor Tensor::clone() const {
  Tensor copy = host(dtype(), shape());
  if (bytes() > 0) std::memcpy(copy.view().data, view().data, bytes());
  return copy;
}

std::size_t Arena::advance(std::size_t bytes) {
  bytes = round_up(bytes, kAlignment);
  expects(used_ + bytes <= capacity_, "the arena was planned large enough");
  const std::size_t begin = used_;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return begin;
}

TensorView Arena::take(DType dtype, Shape shape) {
  const std::size_t bytes = dtype_bytes(dtype, shape.elements());
  return {dtype, shape, static_cast<std::byte*>(base_) + advance(bytes), device_};
}

}  // namespace tessera
