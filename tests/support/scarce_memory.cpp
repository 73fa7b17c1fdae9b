// The program's own malloc and mmap, with a limit in front.
#include "tests/support/scarce_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {
std::atomic<std::size_t> limit{SIZE_MAX};
std::atomic<std::int64_t> refusals{0}, spared{0};
thread_local bool exempt = false;

[[maybe_unused]] bool refuse(std::size_t bytes) {
  if (bytes < limit.load() || exempt || spared.fetch_sub(1) > 0) return false;
  ++refusals;
  errno = ENOMEM;
  return true;
}
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(std::size_t);

void* malloc(std::size_t bytes) { return refuse(bytes) ? nullptr : __libc_malloc(bytes); }

void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if (refuse(bytes)) return MAP_FAILED;
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}
#endif

namespace tessera {

ScarceMemory::ScarceMemory(std::size_t bytes, std::int64_t spare, Threads threads) {
  exempt = threads == Threads::kOthers;
  refusals = 0;
  spared = spare;
  limit = bytes;
}
ScarceMemory::~ScarceMemory() {
  limit = SIZE_MAX;
  exempt = false;
}
std::int64_t ScarceMemory::refused() const { return refusals.load(); }

}  // namespace tessera
