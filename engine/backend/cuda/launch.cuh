// Launching kernels on the backend's stream. Included by .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/simt.cuh"

namespace tessera::cuda {

struct Launch {
  std::int64_t blocks = 1;  // x
  int threads = 256;
  std::int64_t blocks_y = 1, blocks_z = 1;
  std::size_t shared = 0;  // bytes of dynamic shared memory
};

inline dim3 extent(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  expects(x <= 0x7fffffff && y <= 65535 && z <= 65535, "a grid that the device can launch");
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
}

// Enqueues kernel(args...), or nothing where the grid is empty or a recorded pass is repeated.
// `name` stands in the message of a launch that failed.
template <typename... Params, typename... Args>
void launch(CudaBackend& backend, const char* name, const Launch& shape, void (*kernel)(Params...),
            Args&&... args) {
  if (shape.blocks == 0 || shape.blocks_y == 0 || shape.blocks_z == 0 || !backend.enqueues())
    return;
  constexpr std::size_t kAlwaysThere = 48 * 1024;
  if (shape.shared > kAlwaysThere) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared)),
          name);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = extent(shape.blocks, shape.blocks_y, shape.blocks_z);
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared;
  config.stream = backend.stream();
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...),
        name);
}

}  // namespace tessera::cuda
