#include "tests/support/guarded_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "engine/core/error.h"

namespace tessera {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kRegion = std::size_t{256} << 30;  // addresses, not memory
constexpr int kUnwritten = 0xff;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

void* map_region(int file) {
  void* at = mmap(nullptr, kRegion, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  expects(at != MAP_FAILED, "addresses for the memory of a device");
  return at;
}

// Says whose memory was touched, then lets the fault end the program.
void on_fault(int number, siginfo_t* info, void*) {
  const GuardedMemory& memory = GuardedMemory::instance();
  if (memory.holds(info->si_addr)) {
    std::fprintf(stderr, "the host touched device memory: %s\n",
                 memory.describe(info->si_addr).c_str());
  }
  signal(number, SIG_DFL);
}

}  // namespace

GuardedMemory& GuardedMemory::instance() {
  static GuardedMemory memory;
  return memory;
}

GuardedMemory::GuardedMemory() {
  file_ = memfd_create("guarded", MFD_CLOEXEC);
  expects(file_ >= 0 && ftruncate(file_, static_cast<off_t>(kRegion)) == 0, "a file of pages");
  device_ = static_cast<std::byte*>(map_region(file_));
  host_ = static_cast<std::byte*>(map_region(file_));
  struct sigaction action = {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

Buffer GuardedMemory::allocate(std::size_t bytes, std::string what) {
  const std::lock_guard lock(mutex_);
  Block block;
  block.bytes = bytes;
  block.first_page = used_;
  block.pages = round_up(bytes > 0 ? bytes : 1, kPage);
  // The tensor ends where its pages do, as near as alignment lets it.
  block.offset = block.first_page + (block.pages - round_up(bytes > 0 ? bytes : 1, kAlignment));
  block.what = std::move(what);
  used_ += block.pages + kPage;
  expects(used_ <= kRegion, "addresses of the device last for the test");
  std::byte* const open = host_ + block.first_page;
  expects(mprotect(open, block.pages, PROT_READ | PROT_WRITE) == 0, "pages for the ops");
  std::memset(open, kUnwritten, block.pages);
  void* const address = device_ + block.offset;
  blocks_.emplace(block.offset, std::move(block));
  return Buffer(
      address, +[](void* p) { GuardedMemory::instance().drop(p); });
}

const GuardedMemory::Block* GuardedMemory::block_of(std::size_t offset) const {
  auto next = blocks_.upper_bound(offset);
  if (next == blocks_.begin()) return nullptr;
  const Block& block = std::prev(next)->second;
  return offset <= block.offset + block.bytes ? &block : nullptr;
}

bool GuardedMemory::holds(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto begin = reinterpret_cast<std::uintptr_t>(device_);
  return at >= begin && at < begin + kRegion;
}

std::byte* GuardedMemory::open(const void* address, std::size_t bytes, const char* what) {
  expects(holds(address), what);
  const std::lock_guard lock(mutex_);
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - device_);
  const Block* const block = block_of(offset);
  expects(block != nullptr && !block->dropped && offset + bytes <= block->offset + block->bytes,
          what);
  return host_ + offset;
}

std::string GuardedMemory::describe(const void* address) const {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - device_);
  const Block* const block = block_of(offset);
  if (block == nullptr) return "next to every block";
  return "byte " + std::to_string(offset - block->offset) + " of " + block->what;
}

void GuardedMemory::drop(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found =
      blocks_.find(static_cast<std::size_t>(static_cast<std::byte*>(address) - device_));
  expects(found != blocks_.end() && !found->second.dropped, "a block is dropped once");
  found->second.dropped = true;
  if (pending_ == 0) sweep();
}

void GuardedMemory::take_away(const Block& block) {
  mprotect(host_ + block.first_page, block.pages, PROT_NONE);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(block.first_page),
            static_cast<off_t>(block.pages));
}

void GuardedMemory::sweep() {
  std::erase_if(blocks_, [&](const auto& entry) {
    if (entry.second.dropped) take_away(entry.second);
    return entry.second.dropped;
  });
}

void GuardedMemory::add_pending(std::ptrdiff_t ops) {
  const std::lock_guard lock(mutex_);
  pending_ += ops;
  expects(pending_ >= 0, "ops run once");
  if (pending_ == 0) sweep();
}

std::size_t GuardedMemory::blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

}  // namespace tessera
