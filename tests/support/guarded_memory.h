// Memory of a device that does not exist: its pages stand at two addresses, one that tensors carry
// and nobody may touch, and one that only the test double's ops know. A read or write by the host
// is a SIGSEGV that says which block was meant. Every block ends at a page that is never open;
// addresses are not given out twice, so that a view of freed memory is found out, too.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace tessera {

class GuardedMemory {
 public:
  static GuardedMemory& instance();

  // A block of the device, every byte of it 0xff: f32 and bf16 that nobody wrote are not numbers.
  // 64-byte aligned. Dropping it takes it away when nothing enqueued can read it any more.
  Buffer allocate(std::size_t bytes, std::string what);
  // Where the ops find [address, address + bytes), which must lie in one block that was not
  // dropped; ends the program with `what` otherwise.
  std::byte* open(const void* address, std::size_t bytes, const char* what);
  bool holds(const void* address) const;

  // Ops that were enqueued and did not run yet keep dropped blocks where they are.
  void add_pending(std::ptrdiff_t ops);
  std::size_t blocks() const;
  // "byte 12 of f32 [3, 4]" for a message; what a fault at this address meant.
  std::string describe(const void* address) const;

 private:
  struct Block {
    std::size_t offset = 0, bytes = 0;  // from `begin`, where the tensor begins
    std::size_t first_page = 0, pages = 0;
    std::string what;
    bool dropped = false;
  };
  using Blocks = std::map<std::size_t, Block>;  // by the offset of the tensor

  GuardedMemory();
  void drop(void* address);
  void take_away(const Block& block);
  void sweep();
  const Block* block_of(std::size_t offset) const;

  mutable std::mutex mutex_;
  int file_ = -1;
  std::byte* device_ = nullptr;  // what tensors carry: never readable
  std::byte* host_ = nullptr;    // the same pages for ops
  std::size_t used_ = 0;
  std::ptrdiff_t pending_ = 0;
  Blocks blocks_;
};

}  // namespace tessera
