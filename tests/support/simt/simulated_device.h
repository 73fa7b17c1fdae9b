// The CUDA backend on a device of fibers: the same .cu files, compiled as C++ (see
// include/cuda_runtime.h). Slow, and its arithmetic is the host's; it proves indexing, barriers,
// ordering and the handling of memory, not speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/backend/backend.h"

#define TESSERA_SIMT_API __attribute__((visibility("default")))

namespace tessera::simt {

struct DeviceSettings {
  std::size_t memory = std::size_t{4} << 30;
  int multiprocessors = 4;
};
TESSERA_SIMT_API void set_device(const DeviceSettings& settings);

struct DeviceCounts {
  std::int64_t launches = 0;  // of kernels, repeated passes not counted
  std::int64_t kernels = 0;   // that ran
  std::int64_t graphs = 0, waits = 0, downloads = 0, allocations = 0;
  std::int64_t pageable = 0;  // downloads that hold the host up
  std::size_t bytes_up = 0, bytes_down = 0, bytes_within = 0;
};
TESSERA_SIMT_API DeviceCounts counts();

TESSERA_SIMT_API std::unique_ptr<Backend> make_device(const CpuOptions& cpu = {},
                                                      const CudaOptions& options = {});

// read_probe() on such a device.
TESSERA_SIMT_API bool read_all(Backend& backend, ConstTensorView x, TensorView sums);

}  // namespace tessera::simt
