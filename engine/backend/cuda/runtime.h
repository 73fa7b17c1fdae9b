// Owners of what the CUDA runtime gives, and its errors as ours. Host code only.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace tessera::cuda {

// Error kMemory for a device without memory, kGeneral for everything else that failed; `what` says
// what was being done.
void check(cudaError_t status, const char* what);

// Makes a device the one that this thread's calls go to; costs nothing where it is already.
void select_device(int index);

// Gives the current device's memory that pools hold and nobody uses back to the driver
// (device_pool.cpp).
void release_unused_memory();

// Device memory, aligned to 256 bytes. Error kMemory says how much was asked for and how much was
// free.
Buffer allocate_device(std::size_t bytes);
// Pinned host memory, which copies of a stream reach without waiting.
Buffer allocate_pinned(std::size_t bytes);

// A handle with the function that destroys it.
template <typename Handle, cudaError_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() { reset(); }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Handle get() const { return handle_; }

 private:
  void reset() {
    if (handle_ != nullptr) Destroy(handle_);
    handle_ = nullptr;
  }
  Handle handle_ = nullptr;
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

Stream make_stream();
Event make_event();

}  // namespace tessera::cuda
