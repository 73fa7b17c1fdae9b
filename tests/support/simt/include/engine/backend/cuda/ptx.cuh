// The simulated device's version of the instructions that CUDA C++ has no word for.
#pragma once

#include <cuda_runtime.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include <cstdint>

#include "engine/core/dtype.h"
#include "engine/core/error.h"

namespace tessera::cuda {

template <typename T>
inline T* dynamic_shared() {
  return reinterpret_cast<T*>(simt::dynamic_shared());
}

inline void fetch_early(const void*) {}

inline float half_value(std::uint16_t bits) {
#ifdef __F16C__
  return _cvtsh_ss(bits);
#else
  return f16_to_float(bits);
#endif
}

// Two floats as bf16, rounded to nearest even: low half x, high half y.
inline std::uint32_t pack_bf16(float x, float y) {
  return static_cast<std::uint32_t>(float_to_bf16(x)) | static_cast<std::uint32_t>(float_to_bf16(y))
                                                            << 16;
}

// As the instruction's table of registers has it. The hardware adds 16 products at once with its
// own rounding; here they are summed in double, then added.
inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  // Of every lane, copied out of the exchange: the next one writes over it.
  std::uint32_t all_a[4][32], all_b[2][32];
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t* got = simt::exchange(0xffffffffu, a[i]);
    for (int l = 0; l < 32; ++l) all_a[i][l] = static_cast<std::uint32_t>(got[l]);
  }
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t* got = simt::exchange(0xffffffffu, b[i]);
    for (int l = 0; l < 32; ++l) all_b[i][l] = static_cast<std::uint32_t>(got[l]);
  }
  const auto half = [](std::uint32_t pair, int which) {
    return static_cast<double>(
        bf16_to_float(static_cast<std::uint16_t>(which == 0 ? pair : pair >> 16)));
  };
  const auto a_at = [&](int row, int k) {
    const int of_lane = (row % 8) * 4 + (k % 8) / 2;
    return half(all_a[(row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)][of_lane], k % 2);
  };
  const auto b_at = [&](int k, int column) {
    return half(all_b[k >= 8 ? 1 : 0][column * 4 + (k % 8) / 2], k % 2);
  };
  const int lane = simt::lane(), group = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = group + (i >= 2 ? 8 : 0), column = 2 * t + i % 2;
    double sum = 0;
    for (int k = 0; k < 16; ++k) sum += a_at(row, k) * b_at(k, column);
    d[i] = static_cast<float>(static_cast<double>(d[i]) + sum);
  }
}

// Where the rows of four matrices of 8 x 8 begin, one a lane.
inline const std::uint64_t* exchange_rows(const std::uint16_t* row) {
  const auto at = reinterpret_cast<std::uintptr_t>(row);
  expects(at % 16 == 0, "rows of matrices begin on 16 bytes");
  return simt::exchange(0xffffffffu, at);
}

inline void load_matrices(std::uint32_t (&to)[4], const std::uint16_t* row) {
  const std::uint64_t* rows = exchange_rows(row);
  const int lane = simt::lane();
  for (int i = 0; i < 4; ++i) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(rows[i * 8 + lane / 4]);
    to[i] = from[lane % 4 * 2] | static_cast<std::uint32_t>(from[lane % 4 * 2 + 1]) << 16;
  }
}
inline void load_matrices_turned(std::uint32_t (&to)[4], const std::uint16_t* row) {
  const std::uint64_t* rows = exchange_rows(row);
  const int lane = simt::lane();
  for (int i = 0; i < 4; ++i) {
    const auto* upper = reinterpret_cast<const std::uint16_t*>(rows[i * 8 + lane % 4 * 2]);
    const auto* lower = reinterpret_cast<const std::uint16_t*>(rows[i * 8 + lane % 4 * 2 + 1]);
    to[i] = upper[lane / 4] | static_cast<std::uint32_t>(lower[lane / 4]) << 16;
  }
}

inline float exp2_approximately(float x) {
  const float out = std::exp2(x);
  return out < 1.17549435e-38f ? 0.0f : out;
}

inline uint4 load_once(const void* from) { return *static_cast<const uint4*>(from); }
inline void copy_async(void* shared, const void* global) { simt::begin_copy(shared, global); }
inline void copy_async_commit() { simt::commit_copies(); }
template <int N>
inline void copy_async_wait() {
  simt::wait_copies(N);
}
inline void await_previous() { simt::await_previous(); }
inline void let_next_begin() { simt::let_next_begin(); }

}  // namespace tessera::cuda
