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
  // Its blocks may begin before the kernel in front of it has ended: all its threads call
  // await_previous() (ptx.cuh). In a captured pass the edge between the two kernels is one of this
  // kind too; copies between kernels are waited for in full.
  bool overlaps = false;
};

inline dim3 extent(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  expects(x <= 0x7fffffff && y <= 65535 && z <= 65535, "a grid that the device can launch");
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
}

// Dynamic shared memory that every kernel may have, whatever it declares next to it.
constexpr std::size_t kAlwaysThere = 40 * 1024;

// Lets a kernel of the current device have that much of it: as much as there is, once, so that no
// launch next to this one finds less.
void allow_shared(const void* kernel, std::size_t bytes, const char* name);

// Enqueues kernel(args...), or nothing where the grid is empty or a recorded pass is repeated.
// `name` stands in the message of a launch that failed.
template <typename... Params, typename... Args>
void launch(CudaBackend& backend, const char* name, const Launch& shape, void (*kernel)(Params...),
            Args&&... args) {
  if (shape.blocks == 0 || shape.blocks_y == 0 || shape.blocks_z == 0 || !backend.enqueues())
    return;
  cudaLaunchConfig_t config = {};
  config.stream = backend.stream();  // first: it chooses the device of what follows
  if (shape.shared > kAlwaysThere) {
    allow_shared(reinterpret_cast<const void*>(kernel), shape.shared, name);
  }
  config.gridDim = extent(shape.blocks, shape.blocks_y, shape.blocks_z);
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = shape.overlaps && backend.overlaps_kernels() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...),
        name);
}

}  // namespace tessera::cuda
