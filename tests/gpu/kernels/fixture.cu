// Kernels for the test of the limits alone: one that is modest, one that is not.
#include <cuda_runtime.h>

namespace tessera {

__global__ void modest_fixture(float* x) { x[threadIdx.x] *= 2.0f; }

// 96 values live at once in at most 32 registers, and 16 KiB of shared memory.
__global__ void __launch_bounds__(1024, 2) greedy_fixture(float* x) {
  __shared__ float tile[4096];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float live[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) live[i] = x[i * 1024 + threadIdx.x] + tile[(threadIdx.x + i) % 1024];
#pragma unroll 1
  for (int round = 0; round < 4; ++round) {
#pragma unroll
    for (int i = 0; i < 96; ++i) live[i] = live[i] * live[(i + 7) % 96] + tile[i];
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 96; ++i) sum += live[i];
  x[threadIdx.x] = sum;
}

}  // namespace tessera
