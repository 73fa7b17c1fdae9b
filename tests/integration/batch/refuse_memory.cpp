// Loaded in front of the real program: its large blocks of memory are refused, as on a machine that
// has none left. REFUSE_FROM: bytes of the smallest block that is; REFUSE_TIMES: how often.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

std::atomic<std::size_t> from{SIZE_MAX};
std::atomic<std::int64_t> left{0};

__attribute__((constructor)) void read_settings() {
  const char* bytes = std::getenv("REFUSE_FROM");
  const char* times = std::getenv("REFUSE_TIMES");
  if (bytes == nullptr || times == nullptr) return;
  left = std::strtoll(times, nullptr, 10);
  from = std::strtoull(bytes, nullptr, 10);
}

bool refuse(std::size_t bytes) {
  if (bytes < from.load() || left.fetch_sub(1) <= 0) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);

void* malloc(std::size_t bytes) { return refuse(bytes) ? nullptr : __libc_malloc(bytes); }

void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if (refuse(bytes)) return MAP_FAILED;
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}
