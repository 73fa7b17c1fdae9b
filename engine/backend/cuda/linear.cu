// Matrix products. Few rows stream the weights past them once: a warp takes 16 rows of bf16 weights
// as the left factor of the tensor cores' product and 8 rows of activations, rounded to bf16, as
// the right one; f32 weights and blocks of few bits meet f32 activations in fused multiply-adds. An
// output is one sum in an order that the matrix alone fixes, whatever stands next to it, and so is
// the factor of a row that is normed on the way. Outside the deterministic mode, more rows than
// that go to cuBLASLt where it is found.
#include <algorithm>
#include <optional>

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/cuda/linear_products.cuh"
#include "engine/backend/cuda/packing.h"
#include "engine/ops/linear.h"

namespace tessera::cuda {

namespace {

constexpr std::int64_t kLibraryRows = 128;  // more than these go to the library

// A weight, or a part of one whose outputs are of one type.
struct Matrix {
  const void* data = nullptr;
  std::int64_t n = 0, k = 0;
  DType storage = DType::kF32;
};

Matrix matrix_of(const LinearWeight& w) { return {w.packed.view().data, w.n, w.k, w.storage}; }

template <typename T>
const T* padded_activations(CudaBackend& backend, const float* x, std::int64_t rows, std::int64_t k,
                            T* out) {
  constexpr int kThreads = 256;
  const std::int64_t padded = padded_inputs(k);
  launch(backend, "linear: rows of activations",
         {.blocks = divide_up(padded, kThreads),
          .threads = kThreads,
          .blocks_y = rows,
          .overlaps = true},
         pad_rows<T>, x, k, padded, out);
  return out;
}

const std::uint16_t* normed_activations(CudaBackend& backend, const float* x, std::int64_t rows,
                                        std::int64_t k, const Norm& norm, std::uint16_t* out) {
  const std::int64_t padded = padded_inputs(k);
  launch(backend, "linear: rows of normed activations",
         {.blocks = rows,
          .threads = kNormThreads,
          .shared = static_cast<std::size_t>(padded / kEight) * sizeof(float),
          .overlaps = true},
         norm_rows, x, k, padded, k % 4 == 0 && is_aligned(x) && is_aligned(norm.weight), norm,
         out);
  return out;
}

template <int Tiles, int ColumnTiles, int Teams, bool Norms, typename X>
void launch_bf16(CudaBackend& backend, const Matrix& w, const X* x, int splits,
                 const Norm& norm, Output o) {
  constexpr std::int64_t kRows = Tiles * kTileRows * Teams;
  const std::int64_t chunks = divide_up(o.rows, ColumnTiles * kEight);
  const std::int64_t tiles = o.up == 0 ? divide_up(o.n, kRows) : divide_up(o.up, kRows / 2);
  if (splits > 1) o.tickets = backend.tickets(tiles * chunks);
  launch(backend, "linear: bf16 weights",
         {.blocks = tiles * chunks,
          .threads = kTeam * Teams,
          .blocks_y = splits,
          .shared = queue_bytes(Tiles) * Teams,
          .overlaps = true},
         bf16_product<Tiles, ColumnTiles, Teams, X, Norms>,
         static_cast<const std::uint16_t*>(w.data), x, padded_inputs(w.k),
         padded_rows(w.n) - 1, static_cast<int>(chunks), splits, norm, o);
}

// The more rows of weights a block takes, the fewer times activations are read; it takes as many as
// leave no, or with 32 hardly a, multiprocessor idle.
template <int ColumnTiles, bool Norms = false, typename X>
void launch_bf16_columns(CudaBackend& backend, const Matrix& w, const X* x, int splits,
                         const Norm& norm, const Output& o) {
  const auto blocks = [&](std::int64_t rows) {
    return divide_up(w.n, rows) * divide_up(o.rows, ColumnTiles * kEight) * splits;
  };
  if constexpr (ColumnTiles >= 4) {
    if (blocks(4 * kTileRows) >= backend.multiprocessors()) {
      return launch_bf16<2, ColumnTiles, 2, Norms>(backend, w, x, splits, norm, o);
    }
  }
  if (4 * blocks(2 * kTileRows) >= 3 * backend.multiprocessors()) {
    launch_bf16<2, ColumnTiles, 1, Norms>(backend, w, x, splits, norm, o);
  } else {
    launch_bf16<1, ColumnTiles, 1, Norms>(backend, w, x, splits, norm, o);
  }
}

// Few rows that every block rounds, and norms, for itself: cheaper than a kernel that does it once.
template <bool Norms>
void multiply_few(CudaBackend& backend, const float* x, const Matrix& w, int splits,
                  const Norm& norm, const Output& o) {
  if (o.rows <= kEight) return launch_bf16_columns<1, Norms>(backend, w, x, splits, norm, o);
  launch_bf16_columns<2, Norms>(backend, w, x, splits, norm, o);
}

void multiply_rounded(CudaBackend& backend, const std::uint16_t* x, const Matrix& w,
                      int splits, const Norm& norm, const Output& o) {
  if (o.rows <= kEight) return launch_bf16_columns<1>(backend, w, x, splits, norm, o);
  if (o.rows <= 2 * kEight) return launch_bf16_columns<2>(backend, w, x, splits, norm, o);
  if (o.rows <= 4 * kEight) return launch_bf16_columns<4>(backend, w, x, splits, norm, o);
  launch_bf16_columns<8>(backend, w, x, splits, norm, o);
}

// `scratch` has room for kOwnRows padded rows, then for as many factors, then for the splits'
// partial sums.
void multiply_bf16(CudaBackend& backend, const float* x, const Matrix& w,
                   const Norm& given_norm, const Output& given, void* scratch) {
  Norm norm = given_norm;
  Output o = given;
  const std::int64_t k = padded_inputs(w.k);
  auto* rounded = static_cast<std::uint16_t*>(scratch);
  auto* factors = reinterpret_cast<float*>(rounded + kOwnRows * k);
  const auto splits = static_cast<int>(input_splits(w.n, w.k, backend.multiprocessors()));
  if (splits > 1) o.partial = factors + kOwnRows;
  const bool normed = norm.weight != nullptr;
  // A block that has a part of the inputs does not see the squares of the others.
  const bool few = o.rows <= 2 * kEight && w.k == k && is_aligned(x) && is_aligned(norm.weight) &&
                   !(normed && splits > 1);
  if (few && normed) return multiply_few<true>(backend, x, w, splits, norm, o);
  if (few) return multiply_few<false>(backend, x, w, splits, norm, o);
  if (normed) {
    norm.factors = factors;
    normed_activations(backend, x, o.rows, w.k, norm, rounded);
  } else {
    padded_activations(backend, x, o.rows, w.k, rounded);
  }
  multiply_rounded(backend, rounded, w, splits, norm, o);
}

template <typename Rows, int Columns>
void launch_f32(CudaBackend& backend, const Matrix& w, const float* x, std::int64_t inputs,
                const Output& o) {
  using Unit = typename Rows::Unit;
  const std::size_t row_bytes = storage_of(w.storage).bytes(padded_inputs(w.k));
  const auto stride = to_index(row_bytes / sizeof(Unit));
  const std::int64_t chunks = divide_up(o.rows, Columns);
  const std::int64_t tiles =
      o.up == 0 ? divide_up(o.n, kFloatLocal) : divide_up(o.up, kFloatLocal / 2);
  launch(backend, "linear: f32 activations",
         {.blocks = tiles * chunks,
          .threads = kFloatThreads,
          .shared = sizeof(float) * kFloatSlices * Columns * share_pitch(kFloatLocal),
          .overlaps = true},
         f32_product<Rows, Columns>, static_cast<const Unit*>(w.data), stride, x,
         inputs, padded_rows(w.n) - 1, static_cast<int>(chunks), o);
}

template <typename Rows>
void multiply_f32(CudaBackend& backend, const float* x, const Matrix& w, const Norm&,
                  const Output& o, void* scratch) {
  std::int64_t inputs = w.k;
  if (inputs % 4 != 0 || !is_aligned(x)) {
    x = padded_activations(backend, x, o.rows, w.k, static_cast<float*>(scratch));
    inputs = padded_inputs(w.k);
  }
  if constexpr (Rows::kUnpacks) {  // as many columns as are compiled without spilling
    if (o.rows <= 2) return launch_f32<Rows, 2>(backend, w, x, inputs, o);
    launch_f32<Rows, 4>(backend, w, x, inputs, o);
  } else {
    if (o.rows == 1) return launch_f32<Rows, 1>(backend, w, x, inputs, o);
    if (o.rows == 2) return launch_f32<Rows, 2>(backend, w, x, inputs, o);
    if (o.rows <= 4) return launch_f32<Rows, 4>(backend, w, x, inputs, o);
    launch_f32<Rows, 8>(backend, w, x, inputs, o);
  }
}

// Room for rows as the kernels read them.
std::size_t rows_scratch(std::int64_t k, std::size_t number) {
  return static_cast<std::size_t>(kOwnRows * padded_inputs(k)) * number;
}

std::size_t f32_scratch(std::int64_t /*n*/, std::int64_t k, int /*multiprocessors*/) {
  return rows_scratch(k, sizeof(float));
}

std::size_t bf16_scratch(std::int64_t n, std::int64_t k, int multiprocessors) {
  const std::int64_t splits = input_splits(n, k, multiprocessors);
  const std::int64_t sums = kOwnRows + (splits > 1 ? splits * kOwnRows * n : 0);
  return rows_scratch(k, sizeof(std::uint16_t)) + static_cast<std::size_t>(sums) * sizeof(float);
}

// What multiplies weights of a storage type.
struct Products {
  // The norm of a row can be taken on the way.
  bool norms = false;
  // Many rows may go to the library.
  bool library = false;
  std::size_t (*scratch)(std::int64_t n, std::int64_t k, int multiprocessors) = f32_scratch;
  // Up to kOwnRows rows.
  void (*multiply)(CudaBackend& backend, const float* x, const Matrix& w, const Norm& norm,
                   const Output& o, void* scratch) = nullptr;
  // Bytes of an input of the rows that the library takes, which were rounded to the type and padded
  // as the weights are; 0: it takes the rows as they are.
  std::int64_t rounded = 0;
};

std::optional<Products> find_products(DType storage) {
  if (storage == DType::kBF16) {
    return Products{.norms = true,
                    .library = true,
                    .scratch = bf16_scratch,
                    .multiply = multiply_bf16,
                    .rounded = 2};
  }
  Products out{.library = storage == DType::kF32};
  const bool found =
      with_rows(storage, [&](auto rows) { out.multiply = multiply_f32<decltype(rows)>; });
  return found ? std::optional(out) : std::nullopt;
}

Products products_of(DType storage) {
  const std::optional<Products> found = find_products(storage);
  expects(found.has_value(), "kernels multiply this storage type");
  return *found;
}

std::size_t library_scratch(std::int64_t k, const Products& products) {
  return kLibraryWorkspace +
         static_cast<std::size_t>(kWideRows * padded_inputs(k) * products.rounded);
}

// The norm, if there is one, is that of a storage type whose products take it.
void multiply_own(CudaBackend& backend, const float* x, const Matrix& w, const Norm& norm, Output o,
                  std::int64_t rows) {
  const Products products = products_of(w.storage);
  void* scratch = backend.scratch(products.scratch(w.n, w.k, backend.multiprocessors()));
  float* out = o.out;
  for (std::int64_t begin = 0; begin < rows; begin += kOwnRows) {
    o.rows = static_cast<int>(std::min(kOwnRows, rows - begin));
    o.out = out + begin * o.pitch;
    products.multiply(backend, x + begin * w.k, w, norm, o, scratch);
  }
}

// Where it can, by the library, and what that refuses by the kernels above.
void multiply_wide(CudaBackend& backend, const float* x, const Matrix& w, const Output& o,
                   std::int64_t rows) {
  const Products products = products_of(w.storage);
  auto* scratch = static_cast<std::byte*>(backend.scratch(library_scratch(w.k, products)));
  MatrixProduct product;
  product.w = w.data;
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
    if (products.rounded != 0) {
      product.k = product.x_stride = product.w_stride;
      product.x = padded_activations(backend, x + begin * w.k, product.rows, w.k,
                                     reinterpret_cast<std::uint16_t*>(scratch + kLibraryWorkspace));
    }
    product.out = o.out + begin * o.pitch;
    if (backend.libraries().multiply(product)) continue;
    Output rest = o;
    rest.out = product.out;
    multiply_own(backend, x + begin * w.k, w, {}, rest, product.rows);
  }
}

// Parts of several types are few rows of weights each: they stay here.
bool goes_to_library(CudaBackend& backend, const LinearWeight& w, std::int64_t rows) {
  return rows > kLibraryRows && w.parts.empty() && !backend.options().deterministic &&
         products_of(w.storage).library && backend.libraries().without_cublaslt().empty();
}

void multiply(CudaBackend& backend, ConstTensorView x, const LinearWeight& w, Output o) {
  const std::int64_t rows = x.shape[0];
  if (rows == 0 || w.n == 0 || !backend.enqueues()) return;
  if (goes_to_library(backend, w, rows)) {
    return multiply_wide(backend, x.f32(), matrix_of(w), o, rows);
  }
  if (w.parts.empty()) return multiply_own(backend, x.f32(), matrix_of(w), {}, o, rows);
  const auto* from = w.packed.view().raw();
  for (const LinearPart& part : w.parts) {
    o.n = part.n;
    multiply_own(backend, x.f32(), {from, part.n, w.k, part.storage}, {}, o, rows);
    from += backend.packed_linear_bytes(part.n, w.k, part.storage);
    o.out += part.n;
    if (o.bias != nullptr) o.bias += part.n;
  }
}

// Whether the norm of these rows is taken by the product with w: where the kernels above have it.
bool norms_itself(CudaBackend& backend, const LinearWeight& w, std::int64_t rows) {
  return w.parts.empty() && products_of(w.storage).norms && !goes_to_library(backend, w, rows);
}

void multiply_normed(CudaBackend& backend, ConstTensorView x, const Norm& norm,
                     const LinearWeight& w, const Output& o) {
  const std::int64_t rows = x.shape[0];
  if (rows == 0 || w.n == 0 || !backend.enqueues()) return;
  multiply_own(backend, x.f32(), matrix_of(w), norm, o, rows);
}

const float* start_of(const ConstTensorView& bias) { return bias.empty() ? nullptr : bias.f32(); }

void linear(CudaBackend& backend, const LinearArgs& op) {
  const LinearWeight& w = *op.weight;
  multiply(backend, op.x, w, {.bias = start_of(op.bias), .out = op.out.f32(), .pitch = w.n, .n = w.n});
}

void linear_add(CudaBackend& backend, const LinearAddArgs& op) {
  const LinearWeight& w = *op.weight;
  multiply(backend, op.x, w,
           {.bias = start_of(op.bias), .out = op.sum.f32(), .pitch = w.n, .n = w.n, .add = true});
}

void gated_linear(CudaBackend& backend, const GatedLinearArgs& op) {
  const LinearWeight& w = *op.gate_up;
  // Gates of one type and what they let through of another meet in memory.
  if (!w.parts.empty() || goes_to_library(backend, w, op.x.shape[0])) return op.in_parts(backend);
  multiply(backend, op.x, w, {.out = op.out.f32(), .pitch = w.n / 2, .n = w.n, .up = w.n / 2});
}

void normed_linear(CudaBackend& backend, const NormedLinearArgs& op) {
  const LinearWeight& w = *op.weight;
  if (!norms_itself(backend, w, op.x.shape[0])) return op.in_parts(backend);
  multiply_normed(backend, op.x, {.weight = op.norm.f32(), .eps = op.eps}, w,
                  {.bias = start_of(op.bias), .out = op.out.f32(), .pitch = w.n, .n = w.n});
}

void normed_gated_linear(CudaBackend& backend, const NormedGatedLinearArgs& op) {
  const LinearWeight& w = *op.gate_up;
  if (!norms_itself(backend, w, op.x.shape[0])) return op.in_parts(backend);
  multiply_normed(backend, op.x, {.weight = op.norm.f32(), .eps = op.eps}, w,
                  {.out = op.out.f32(), .pitch = w.n / 2, .n = w.n, .up = w.n / 2});
}

}  // namespace

bool multiplies(DType storage) { return find_products(storage).has_value(); }
bool library_multiplies(DType storage) { return products_of(storage).library; }

std::int64_t input_splits(std::int64_t n, std::int64_t k, int multiprocessors) {
  const std::int64_t tiles = divide_up(n, kTileRows);
  const std::int64_t steps = padded_inputs(k) / kStep;
  if (tiles == 0 || 2 * tiles > multiprocessors) return 1;
  return std::clamp<std::int64_t>(multiprocessors / tiles, 1,
                                  std::clamp<std::int64_t>(steps / (2 * kSlices), 1, 8));
}

std::size_t linear_scratch_bytes(std::int64_t n, std::int64_t k, DType storage, int multiprocessors,
                                 bool library) {
  const Products products = products_of(storage);
  const std::size_t own = products.scratch(n, k, multiprocessors);
  return library ? std::max(own, library_scratch(k, products)) : own;
}

void add_linear_ops(OpTable& table) {
  table.add<linear>();
  table.add<linear_add>();
  table.add<gated_linear>();
  table.add<normed_linear>();
  table.add<normed_gated_linear>();
}

}  // namespace tessera::cuda
