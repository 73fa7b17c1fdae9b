// Matrix products. Few rows stream the weights past them once: a warp takes 16 rows of bf16 weights
// as the left factor of the tensor cores' product and 8 rows of activations, rounded to bf16, as
// the right one; f32 weights meet f32 activations in fused multiply-adds. An output is one sum in
// an order that the matrix alone fixes, whatever stands beside it. Outside the deterministic mode,
// more rows than that go to cuBLASLt where it is found.
#include <algorithm>

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/cuda/linear_products.cuh"
#include "engine/backend/cuda/packing.h"

namespace tessera::cuda {

namespace {

constexpr std::int64_t kLibraryRows = 128;  // more than these go to the library

template <typename T>
const T* padded_activations(CudaBackend& backend, const float* x, std::int64_t rows, std::int64_t k,
                            T* out) {
  constexpr int kThreads = 256;
  const std::int64_t padded = padded_inputs(k);
  launch(backend, "linear: rows of activations",
         {.blocks = divide_up(padded, kThreads), .threads = kThreads, .blocks_y = rows},
         pad_rows<T>, x, k, padded, out);
  return out;
}

template <int Tiles, int ColumnTiles, int Teams, typename X>
void launch_bf16(CudaBackend& backend, const LinearWeight& w, const X* x, int splits,
                 const Output& o) {
  constexpr std::int64_t kRows = Tiles * kTileRows * Teams;
  const std::int64_t chunks = divide_up(o.rows, ColumnTiles * kEight);
  const std::int64_t tiles = o.up == 0 ? divide_up(o.n, kRows) : divide_up(o.up, kRows / 2);
  launch(backend, "linear: bf16 weights",
         {.blocks = tiles * chunks,
          .threads = kTeam * Teams,
          .blocks_y = splits,
          .shared = queue_bytes(Tiles) * Teams},
         bf16_product<Tiles, ColumnTiles, Teams, X>,
         static_cast<const std::uint16_t*>(w.packed.view().data), x, padded_inputs(w.k),
         padded_rows(w.n) - 1, static_cast<int>(chunks), splits, o);
}

// The more rows of weights a block takes, the fewer times activations are read; it takes as many as
// leave no, or with 32 hardly a, multiprocessor idle.
template <int ColumnTiles, typename X>
void launch_bf16_columns(CudaBackend& backend, const LinearWeight& w, const X* x, int splits,
                         const Output& o) {
  const auto blocks = [&](std::int64_t rows) {
    return divide_up(w.n, rows) * divide_up(o.rows, ColumnTiles * kEight) * splits;
  };
  if constexpr (ColumnTiles >= 4) {
    if (blocks(4 * kTileRows) >= backend.multiprocessors()) {
      return launch_bf16<2, ColumnTiles, 2>(backend, w, x, splits, o);
    }
  }
  if (4 * blocks(2 * kTileRows) >= 3 * backend.multiprocessors()) {
    launch_bf16<2, ColumnTiles, 1>(backend, w, x, splits, o);
  } else {
    launch_bf16<1, ColumnTiles, 1>(backend, w, x, splits, o);
  }
}

// `scratch` has room for kOwnRows padded rows, then for the splits' partial sums.
void multiply_bf16(CudaBackend& backend, const float* x, const LinearWeight& w, Output o,
                   void* scratch) {
  const std::int64_t k = padded_inputs(w.k);
  auto* rounded = static_cast<std::uint16_t*>(scratch);
  const auto splits = static_cast<int>(input_splits(w.n, w.k, backend.multiprocessors()));
  if (splits > 1) o.partial = reinterpret_cast<float*>(rounded + kOwnRows * k);
  if (o.rows <= 2 * kEight && w.k == k && is_aligned(x)) {
    // So few that rounding them in every block is cheaper than a kernel that does it once.
    if (o.rows <= kEight) launch_bf16_columns<1>(backend, w, x, splits, o);
    if (o.rows > kEight) launch_bf16_columns<2>(backend, w, x, splits, o);
  } else {
    const std::uint16_t* b = padded_activations(backend, x, o.rows, w.k, rounded);
    if (o.rows <= kEight) {
      launch_bf16_columns<1>(backend, w, b, splits, o);
    } else if (o.rows <= 2 * kEight) {
      launch_bf16_columns<2>(backend, w, b, splits, o);
    } else if (o.rows <= 4 * kEight) {
      launch_bf16_columns<4>(backend, w, b, splits, o);
    } else {
      launch_bf16_columns<8>(backend, w, b, splits, o);
    }
  }
  if (splits == 1) return;
  constexpr int kThreads = 128;
  launch(backend, "linear: sum of splits",
         {.blocks = divide_up(o.up == 0 ? o.n : o.up, kThreads),
          .threads = kThreads,
          .blocks_y = o.rows},
         sum_splits, splits, o);
}

template <int Columns>
void launch_f32(CudaBackend& backend, const LinearWeight& w, const float* x, std::int64_t inputs,
                const Output& o) {
  const std::int64_t chunks = divide_up(o.rows, Columns);
  const std::int64_t tiles =
      o.up == 0 ? divide_up(o.n, kFloatLocal) : divide_up(o.up, kFloatLocal / 2);
  launch(backend, "linear: f32 weights",
         {.blocks = tiles * chunks,
          .threads = kFloatThreads,
          .shared = sizeof(float) * kFloatSlices * Columns * share_pitch(kFloatLocal)},
         f32_product<Columns>, static_cast<const float*>(w.packed.view().data), padded_inputs(w.k),
         x, inputs, padded_rows(w.n) - 1, static_cast<int>(chunks), o);
}

void multiply_f32(CudaBackend& backend, const float* x, const LinearWeight& w, const Output& o,
                  void* scratch) {
  std::int64_t inputs = w.k;
  if (inputs % 4 != 0 || !is_aligned(x)) {
    x = padded_activations(backend, x, o.rows, w.k, static_cast<float*>(scratch));
    inputs = padded_inputs(w.k);
  }
  if (o.rows == 1) return launch_f32<1>(backend, w, x, inputs, o);
  if (o.rows == 2) return launch_f32<2>(backend, w, x, inputs, o);
  if (o.rows <= 4) return launch_f32<4>(backend, w, x, inputs, o);
  launch_f32<8>(backend, w, x, inputs, o);
}

std::size_t own_scratch(std::int64_t n, std::int64_t k, DType storage, int multiprocessors) {
  const auto rows = static_cast<std::size_t>(kOwnRows * padded_inputs(k)) * dtype_size(storage);
  const std::int64_t splits = storage == DType::kBF16 ? input_splits(n, k, multiprocessors) : 1;
  return rows + (splits > 1 ? static_cast<std::size_t>(splits * kOwnRows * n) * sizeof(float) : 0);
}

std::size_t library_scratch(std::int64_t k, DType storage) {
  const std::int64_t rounded = storage == DType::kBF16 ? kWideRows * padded_inputs(k) * 2 : 0;
  return kLibraryWorkspace + static_cast<std::size_t>(rounded);
}

void multiply_own(CudaBackend& backend, const float* x, const LinearWeight& w, Output o,
                  std::int64_t rows) {
  void* scratch = backend.scratch(own_scratch(w.n, w.k, w.storage, backend.multiprocessors()));
  float* out = o.out;
  for (std::int64_t begin = 0; begin < rows; begin += kOwnRows) {
    o.rows = static_cast<int>(std::min(kOwnRows, rows - begin));
    o.out = out + begin * (o.up == 0 ? o.n : o.up);
    if (w.storage == DType::kBF16) {
      multiply_bf16(backend, x + begin * w.k, w, o, scratch);
    } else {
      multiply_f32(backend, x + begin * w.k, w, o, scratch);
    }
  }
}

// Where it can, by the library, and what that refuses by the kernels above.
void multiply_wide(CudaBackend& backend, const float* x, const LinearWeight& w, const Output& o,
                   std::int64_t rows) {
  auto* scratch = static_cast<std::byte*>(backend.scratch(library_scratch(w.k, w.storage)));
  MatrixProduct product;
  product.w = w.packed.view().data;
  product.w_stride = padded_inputs(w.k);
  product.bias = o.bias;
  product.n = w.n;
  product.factors = w.storage;
  product.tf32 = backend.options().tf32;
  product.accumulate = o.add;
  product.workspace = scratch;
  product.stream = backend.stream();
  for (std::int64_t begin = 0; begin < rows; begin += kWideRows) {
    product.rows = std::min(kWideRows, rows - begin);
    product.x = x + begin * w.k;
    product.k = product.x_stride = w.k;
    if (w.storage == DType::kBF16) {
      product.k = product.x_stride = product.w_stride;
      product.x = padded_activations(backend, x + begin * w.k, product.rows, w.k,
                                     reinterpret_cast<std::uint16_t*>(scratch + kLibraryWorkspace));
    }
    product.out = o.out + begin * o.n;
    if (backend.libraries().multiply(product)) continue;
    Output rest = o;
    rest.out = product.out;
    multiply_own(backend, x + begin * w.k, w, rest, product.rows);
  }
}

bool goes_to_library(CudaBackend& backend, std::int64_t rows) {
  return rows > kLibraryRows && !backend.options().deterministic &&
         backend.libraries().without_cublaslt().empty();
}

void multiply(CudaBackend& backend, ConstTensorView x, const LinearWeight& w, const Output& o) {
  const std::int64_t rows = x.shape[0];
  if (rows == 0 || w.n == 0 || !backend.enqueues()) return;
  if (goes_to_library(backend, rows)) {
    multiply_wide(backend, x.f32(), w, o, rows);
  } else {
    multiply_own(backend, x.f32(), w, o, rows);
  }
}

}  // namespace

std::int64_t input_splits(std::int64_t n, std::int64_t k, int multiprocessors) {
  const std::int64_t tiles = divide_up(n, kTileRows);
  const std::int64_t steps = padded_inputs(k) / kStep;
  if (tiles == 0 || 2 * tiles > multiprocessors) return 1;
  return std::clamp<std::int64_t>(multiprocessors / tiles, 1,
                                  std::clamp<std::int64_t>(steps / (2 * kSlices), 1, 8));
}

std::size_t linear_scratch_bytes(std::int64_t n, std::int64_t k, DType storage, int multiprocessors,
                                 bool library) {
  const std::size_t own = own_scratch(n, k, storage, multiprocessors);
  return library ? std::max(own, library_scratch(k, storage)) : own;
}

void CudaBackend::linear(ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                         TensorView out) {
  multiply(*this, x, w, {.bias = bias.empty() ? nullptr : bias.f32(), .out = out.f32(), .n = w.n});
}

void CudaBackend::linear_add(ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                             TensorView sum, TensorView /*scratch*/) {
  multiply(*this, x, w,
           {.bias = bias.empty() ? nullptr : bias.f32(), .out = sum.f32(), .n = w.n, .add = true});
}

void CudaBackend::gated_linear(ConstTensorView x, const LinearWeight& gate_up, TensorView scratch,
                               TensorView out) {
  if (goes_to_library(*this, x.shape[0])) return Backend::gated_linear(x, gate_up, scratch, out);
  multiply(*this, x, gate_up, {.out = out.f32(), .n = gate_up.n, .up = gate_up.n / 2});
}

}  // namespace tessera::cuda
