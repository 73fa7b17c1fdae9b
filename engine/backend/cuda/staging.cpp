#include "engine/backend/cuda/staging.h"

namespace tessera::cuda {

StagingBlock::StagingBlock(std::size_t bytes)
    : pinned_(allocate_pinned(bytes)), device_(allocate_device(bytes)), capacity_(bytes) {}

const void* StagingBlock::put(const void* host, std::size_t bytes) {
  expects(fits(bytes), "the staging block was asked whether the array fits");
  std::memcpy(static_cast<std::byte*>(pinned_.get()) + used_, host, bytes);
  const void* place = static_cast<std::byte*>(device_.get()) + used_;
  used_ += padded(bytes);
  return place;
}

void StagingBlock::flush(cudaStream_t stream) {
  if (sent_ == used_) return;
  check(cudaMemcpyAsync(static_cast<std::byte*>(device_.get()) + sent_,
                        static_cast<std::byte*>(pinned_.get()) + sent_, used_ - sent_,
                        cudaMemcpyHostToDevice, stream),
        "sending arguments to the device");
  sent_ = used_;
}

}  // namespace tessera::cuda
