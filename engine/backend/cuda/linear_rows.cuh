// Rows of activations on their way into a product: rounded to bf16 by the block that multiplies
// them, or once for all blocks, and RMSNorm (Zhang & Sennrich 2019) on the way. The weight of the
// norm multiplies an input before it is rounded; the row's own factor multiplies the finished sum,
// so that no kernel has to see the row before. Device code of linear.cu.
#pragma once

#include "engine/backend/cuda/packing.h"
#include "engine/backend/cuda/simt.cuh"
#include "engine/core/index.h"

namespace tessera::cuda {

constexpr int kEight = 8;  // columns of a tensor core's tile, bf16 of 16 bytes

constexpr int kSlices = 4;  // warps of a team of bf16 products, each with its share of the inputs
constexpr int kTeam = kSlices * kWarp;
constexpr int kStep = static_cast<int>(kInputMultiple);  // inputs a warp takes at once

// What a product does to its activations first. No norm where there is neither weight nor factors.
struct Norm {
  const float* weight = nullptr;  // [k]
  float eps = 0;
  float* factors = nullptr;  // [rows], where norm_rows made them with the weight
};

struct EightFloats {
  float4 low, high;
};
__device__ inline EightFloats eight_floats(const float* from) {
  return {reinterpret_cast<const float4*>(from)[0], reinterpret_cast<const float4*>(from)[1]};
}
__device__ inline float4 times(const float4& a, const float4& b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ inline uint4 rounded(const EightFloats& v) {
  return make_uint4(pack_bf16(v.low.x, v.low.y), pack_bf16(v.low.z, v.low.w),
                    pack_bf16(v.high.x, v.high.y), pack_bf16(v.high.z, v.high.w));
}

// The sum of squares of a row, in one order: eight neighbours by halves; then thread t of four in
// slice s of kSlices adds those at inputs 64 i + 8 t and 64 i + 32 + 8 t, i = s, s + kSlices, ...;
// then the four threads by halves, then the slices in order.
__device__ inline float sum_of_squares(const EightFloats& v) {
  const float a = fmaf(v.low.y, v.low.y, v.low.x * v.low.x);
  const float b = fmaf(v.low.w, v.low.w, v.low.z * v.low.z);
  const float c = fmaf(v.high.y, v.high.y, v.high.x * v.high.x);
  const float d = fmaf(v.high.w, v.high.w, v.high.z * v.high.z);
  return (a + b) + (c + d);
}
__device__ inline float sum_of_four(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
// 1 / sqrt(mean(x^2) + eps)
template <int Pitch>
__device__ inline float norm_factor(const float* slices, std::int64_t k, float eps) {
  float sum = slices[0];
#pragma unroll
  for (int i = 1; i < kSlices; ++i) sum += slices[i * Pitch];
  return 1.0f / sqrtf(sum / to_float(k) + eps);
}

__device__ inline uint4 eight_bf16(const std::uint16_t* from) {
  return *reinterpret_cast<const uint4*>(from);
}
__device__ inline uint4 eight_bf16(const float* from) { return rounded(eight_floats(from)); }

// [rows][k] to [rows][padded], zeros after.
template <typename T>
__global__ void pad_rows(const float* x, std::int64_t k, std::int64_t padded, T* out) {
  begin_after_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t row = blockIdx.y;
  if (i >= padded) return;
  store_float(out + row * padded + i, i < k ? x[row * k + i] : 0.0f);
}

__device__ inline EightFloats eight_floats(const float* row, std::int64_t first, std::int64_t k,
                                           bool aligned) {
  if (aligned && first + kEight <= k) return eight_floats(row + first);
  float v[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) v[i] = first + i < k ? row[first + i] : 0.0f;
  return {make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7])};
}

constexpr int kNormThreads = 256;

// A block for every row: x norm.weight as bf16 [rows][padded], zeros after, and the row's factor.
// Dynamic shared memory: a float for eight inputs.
__global__ void norm_rows(const float* x, std::int64_t k, std::int64_t padded, bool aligned,
                          Norm norm, std::uint16_t* out) {
  begin_after_previous();
  float* squares = dynamic_shared<float>();
  const std::int64_t row = blockIdx.x;
  for (int i = static_cast<int>(threadIdx.x); i < padded / kEight; i += kNormThreads) {
    const std::int64_t first = std::int64_t{i} * kEight;
    const EightFloats v = eight_floats(x + row * k, first, k, aligned);
    const EightFloats weight = eight_floats(norm.weight, first, k, aligned);
    *reinterpret_cast<uint4*>(out + row * padded + first) =
        rounded({times(v.low, weight.low), times(v.high, weight.high)});
    squares[i] = sum_of_squares(v);
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  // A warp does what the four slices of a product do, with four lanes each; the other lanes idle.
  const int slice = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  constexpr int kEights = kStep / kEight;
  float sum = 0.0f;
  for (std::int64_t step = slice; slice < kSlices && step < padded / kStep; step += kSlices) {
    sum += squares[step * kEights + t];
    sum += squares[step * kEights + kEights / 2 + t];
  }
  sum = sum_of_four(sum);
  __syncwarp();  // all have read
  if (t == 0) squares[slice] = sum;
  __syncwarp();
  if (threadIdx.x == 0) norm.factors[row] = norm_factor<1>(squares, k, norm.eps);
}

}  // namespace tessera::cuda
