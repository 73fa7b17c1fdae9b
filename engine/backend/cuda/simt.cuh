// Reductions over warps and blocks, each in one fixed order, and conversions. Device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/ptx.cuh"

namespace tessera::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float bf16_value(std::uint16_t bits) {
  return __uint_as_float(std::uint32_t{bits} << 16);
}
__device__ inline float bf16_low(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float bf16_high(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ inline std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>(pack_bf16(value, 0.0f));
}

__device__ inline float load_as_float(const float* from) { return *from; }
__device__ inline float load_as_float(const std::uint16_t* from) { return bf16_value(*from); }
__device__ inline void store_float(float* to, float value) { *to = value; }
__device__ inline void store_float(std::uint16_t* to, float value) { *to = to_bf16(value); }

// Sum over the warp, in every lane: a butterfly, whose order does not depend on the lane.
template <typename T>
__device__ inline T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}
template <typename T>
__device__ inline T warp_max(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// Sum over a block of Threads, in every thread. `scratch` [Threads / 32 + 1] in shared memory; may
// be used again after the call.
template <int Threads, typename T>
__device__ inline T block_sum(T value, T* scratch) {
  constexpr int kWarps = Threads / kWarp;
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    T sum = scratch[0];
    for (int i = 1; i < kWarps; ++i) sum += scratch[i];
    scratch[kWarps] = sum;
  }
  __syncthreads();
  const T sum = scratch[kWarps];
  __syncthreads();
  return sum;
}
template <int Threads, typename T>
__device__ inline T block_max(T value, T* scratch) {
  constexpr int kWarps = Threads / kWarp;
  value = warp_max(value);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  T best = scratch[0];
  for (int i = 1; i < kWarps; ++i) best = scratch[i] > best ? scratch[i] : best;
  __syncthreads();
  return best;
}

// How a kernel that has nothing to do before it begins.
__device__ inline void begin_after_previous() {
  await_previous();
  let_next_begin();
}

// Whether this block is the last one of `count` to come here with this ticket, in every thread;
// what the others wrote before is there for it. Zero before and, for the next kernel, after.
__device__ inline bool is_last_of(unsigned* ticket, unsigned count) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(ticket, 1u) == count - 1;
    if (last) *ticket = 0;
    __threadfence();
  }
  return __syncthreads_or(last ? 1 : 0) != 0;
}

}  // namespace tessera::cuda
