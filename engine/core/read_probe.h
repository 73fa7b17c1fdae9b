// At which rate this machine reads its memory now: the floor under every pass over weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/core/thread_pool.h"

namespace tessera {

// Reads a buffer much larger than the caches with all threads of the pool, in chunks taken
// dynamically like those of the matrix product.
class ReadProbe {
 public:
  explicit ReadProbe(ThreadPool& threads, std::size_t bytes = std::size_t{512} << 20);
  // GB/s (10^9 bytes): nine tenths of the 32 MiB pieces that the buffer was read in were slower.
  double gigabytes_per_second(int passes = 3);
  std::size_t bytes() const { return bytes_; }

 private:
  void one_pass(std::vector<double>& rates);

  ThreadPool& threads_;
  std::size_t bytes_;
  Buffer buffer_;
  std::uint64_t sum_ = 0;  // of all passes, so that no read can be left out
};

}  // namespace tessera
