// Slabs start at a multiple of their size, so that a matrix finds the count of its slab by its own
// address. The last one to go unmaps the slab.
#include "engine/backend/cpu/panel_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

#include "engine/core/index.h"

namespace tessera::cpu {

namespace {

constexpr std::size_t kSlab = std::size_t{64} << 20;
constexpr std::size_t kSmall = std::size_t{256} << 10;  // below it the heap does as well
constexpr std::size_t kLarge = std::size_t{8} << 20;    // above it a matrix has pages of its own
constexpr std::size_t kPage = 4096, kLine = 64;

struct alignas(kLine) SlabHead {
  std::atomic<std::size_t> count;  // matrices, and the PanelMemory that fills the slab
};

// Null where the system refuses.
void* map_slab() {
  void* const block =
      mmap(nullptr, 2 * kSlab, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(block);
  const std::size_t gap = kSlab - reinterpret_cast<std::uintptr_t>(start) % kSlab;
  munmap(start, gap);
  if (gap < kSlab) munmap(start + gap + kSlab, kSlab - gap);
  madvise(start + gap, kSlab, MADV_HUGEPAGE);
  new (start + gap) SlabHead{1};
  return start + gap;
}

void let_go(void* in_slab) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(in_slab) % kSlab;
  auto* const slab = static_cast<std::byte*>(in_slab) - offset;
  if (reinterpret_cast<SlabHead*>(slab)->count.fetch_sub(1) == 1) munmap(slab, kSlab);
}

}  // namespace

PanelMemory::~PanelMemory() { close(); }

// What no matrix took goes back, out of a large page too.
void PanelMemory::close() {
  if (slab_ == nullptr) return;
  const std::size_t kept = (used_ + kPage - 1) / kPage * kPage;
  madvise(static_cast<std::byte*>(slab_) + kept, kSlab - kept, MADV_DONTNEED);
  let_go(slab_);
  slab_ = nullptr;
}

Buffer PanelMemory::take(std::size_t bytes) {
  if (bytes < kSmall || bytes > kLarge) return allocate_host(bytes);
  const std::size_t taken = (bytes + kLine - 1) / kLine * kLine;
  if (slab_ != nullptr && used_ + taken > kSlab) close();
  if (slab_ == nullptr) {
    slab_ = map_slab();
    used_ = sizeof(SlabHead);
  }
  if (slab_ == nullptr) return allocate_host(bytes);
  void* const memory = static_cast<std::byte*>(slab_) + used_;
  static_cast<SlabHead*>(slab_)->count.fetch_add(1);
  used_ += taken;
  return Buffer(memory, &let_go);
}

}  // namespace tessera::cpu
