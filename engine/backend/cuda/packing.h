// How weights lie on the device: rows as the checkpoint has them, [n][k], both rounded up and
// filled with zeros, so that the vendor's library can read the same memory as the kernels of
// linear.cu and conv2d.cu. Host and device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/dtype.h"

namespace tessera::cuda {

constexpr std::int64_t kRowMultiple = 16;     // rows of weights: one tile of tensor cores
constexpr std::int64_t kInputMultiple = 64;   // inputs of a matrix: one step of a warp
constexpr std::int64_t kChannelMultiple = 8;  // input channels of a convolution: 16 bytes of bf16

constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return (a + multiple - 1) / multiple * multiple;
}

// Matrices: [padded n][padded k]. Convolutions: [padded c_out][kh][kw][padded c_in].
constexpr std::int64_t padded_rows(std::int64_t n) { return round_up(n, kRowMultiple); }
constexpr std::int64_t padded_inputs(std::int64_t k) { return round_up(k, kInputMultiple); }
constexpr std::int64_t padded_channels(std::int64_t c) { return round_up(c, kChannelMultiple); }

// Rows that the kernels of linear.cu take at once, and those that go to the library at once: all
// that a model brings (CudaBackend::rows_at_once) on devices of up to 136 multiprocessors.
constexpr std::int64_t kOwnRows = 256;
constexpr std::int64_t kWideRows = 3328;
constexpr std::size_t kLibraryWorkspace = std::size_t{32} << 20;

// Whether 16 bytes can be read at once from here on.
inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// Blocks that share the inputs of one row of bf16 weights. It fixes the order of a row's sum, and
// so knows nothing of the number of rows: narrow matrices would leave multiprocessors idle.
std::int64_t input_splits(std::int64_t n, std::int64_t k, int multiprocessors);

// Whether linear() has kernels for weights of this type.
bool multiplies(DType storage);
// Whether the library takes many rows of them.
bool library_multiplies(DType storage);

// Scratch of linear() on such a weight, for any number of rows.
std::size_t linear_scratch_bytes(std::int64_t n, std::int64_t k, DType storage, int multiprocessors,
                                 bool library);

}  // namespace tessera::cuda
