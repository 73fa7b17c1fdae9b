// The vendor's libraries, for products and convolutions too wide for kernels that are made for few
// rows. They are opened when first wanted, so that the program starts, and computes, without them.
// After an interface without their types: the device may have none (libraries_none.cpp).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/core/dtype.h"

namespace tessera::cuda {

// out [rows, n] f32 = x w^T + bias, plus what out holds with `accumulate`.
struct MatrixProduct {
  const void* x = nullptr;      // [rows][k] f32, or bf16 where the weights are
  const void* w = nullptr;      // [n][w_stride]
  const float* bias = nullptr;  // [n] or none
  float* out = nullptr;
  std::int64_t rows = 0, n = 0, k = 0, x_stride = 0, w_stride = 0;
  DType factors = DType::kF32;
  bool tf32 = false, accumulate = false;
  void* workspace = nullptr;  // kLibraryWorkspace bytes, 256-byte aligned
  cudaStream_t stream = nullptr;
};

// out [out_rows, out_columns, c_out], a convolution of pixels without pads, plus what out holds
// with `accumulate`. Pixels, weights and out are of one type; sums are f32, bf16 outputs rounded
// from them.
struct PlainConvolution {
  const void* in = nullptr;  // [rows][columns][c_in]
  const void* w = nullptr;   // [c_out][kh][kw][c_in]
  void* out = nullptr;
  DType factors = DType::kF32;
  int rows = 0, columns = 0, c_in = 0, c_out = 0, kh = 0, kw = 0, stride = 1;
  bool tf32 = false, accumulate = false;
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
};

class Libraries {
 public:
  virtual ~Libraries() = default;
  // Why a library cannot be used here; empty where it can.
  virtual const std::string& without_cublaslt() = 0;
  virtual const std::string& without_cudnn() = 0;
  // False, and nothing enqueued, where the library is missing or has no way for this shape.
  virtual bool multiply(const MatrixProduct& product) = 0;
  virtual bool convolve(const PlainConvolution& convolution) = 0;
};

}  // namespace tessera::cuda
