// Memory that is used again by the stream that used it before: the device's own, or pinned memory
// of the host. Giving memory back to the driver waits for the device; tokenizers of images take
// and drop a tensor a map. Blocks of one backend are enqueued on one stream, so that a block may be
// given out again at once: what is enqueued later runs later. A pinned block is dropped by whoever
// waited for the copy into it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "engine/backend/cuda/runtime.h"

namespace tessera::cuda {

class DevicePool : public std::enable_shared_from_this<DevicePool> {
 public:
  // Smaller blocks are the driver's own; a block serves what needs at least three quarters of it.
  static constexpr std::size_t kMinBlock = std::size_t{64} << 10;

  explicit DevicePool(bool pinned = false);
  ~DevicePool();

  // Error kMemory, after the unused blocks of all pools of device memory were released.
  Buffer take(std::size_t bytes);
  // Gives unused blocks back to the driver.
  void release();
  std::size_t unused_bytes() const;

 private:
  void return_block(void* block, std::size_t bytes);
  static void drop(void* block);

  Buffer allocate(std::size_t bytes) const;

  const bool pinned_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, void*> unused_;
};

}  // namespace tessera::cuda
