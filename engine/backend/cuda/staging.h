// Small arrays of the host on their way to kernels. A block of pinned memory and one of the device,
// filled from the front: put() copies into the pinned one and says where the array will stand on
// the device, flush() sends what was put since.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "engine/backend/cuda/runtime.h"

namespace tessera::cuda {

class StagingBlock {
 public:
  explicit StagingBlock(std::size_t bytes);

  // Whether an array still fits.
  bool fits(std::size_t bytes) const { return used_ + padded(bytes) <= capacity_; }
  // The device's place of a copy of `bytes` bytes; valid for work enqueued after the next flush().
  const void* put(const void* host, std::size_t bytes);
  // Sends the bytes put since the last flush() or reset().
  void flush(cudaStream_t stream);
  void reset() { used_ = sent_ = 0; }
  std::size_t used() const { return used_; }

  // Bytes of the block that an array takes.
  static constexpr std::size_t padded(std::size_t bytes) {
    constexpr std::size_t kAlignment = 16;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

 private:
  Buffer pinned_, device_;
  std::size_t capacity_ = 0, used_ = 0, sent_ = 0;
};

}  // namespace tessera::cuda
