// Embedding rows, sums, activations, copies into a cache and affine maps.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/checks.h"

namespace tessera {

struct EmbeddingArgs {
  static constexpr const char* kName = "embedding";
  ConstTensorView table;              // [V, C], of any type that numbers are kept in
  std::span<const std::int32_t> ids;  // [M], each in [0, V)
  TensorView out;                     // [M, C] f32

  void check(const Backend& backend) const {
    expects_rank(table, 2, "embedding: table is [V, C]");
    expects_kept(backend, table, "embedding: table is f32 or bf16 on the device");
    expects_f32(backend, out, "embedding: out is f32 on the device");
    expects(out.shape == Shape({std::ssize(ids), table.shape[1]}), "embedding: out is [M, C]");
    for (const std::int32_t id : ids) {
      expects(id >= 0 && id < table.shape[0], "embedding: every id is in the table");
    }
  }
  void visit(OpVisitor& visitor) { visitor(table, ids, out); }
};

struct AddArgs {
  static constexpr const char* kName = "add";
  ConstTensorView a, b;  // f32 of one shape
  TensorView out;        // may be a or b

  void check(const Backend& backend) const {
    expects_f32(backend, a, "add: a is f32 on the device");
    expects_f32(backend, b, "add: b is f32 on the device");
    expects_f32(backend, out, "add: out is f32 on the device");
    expects(a.shape == b.shape && a.shape == out.shape, "add: equal shapes");
  }
  void visit(OpVisitor& visitor) { visitor(a, b, out); }
};

// SwiGLU (Shazeer 2020): out = silu(gate) * up.
struct SiluMulArgs {
  static constexpr const char* kName = "silu_mul";
  ConstTensorView gate_up;  // [M, 2F] = [gate | up] f32
  TensorView out;           // [M, F] f32

  void check(const Backend& backend) const {
    expects_f32(backend, gate_up, "silu_mul: gate_up is f32 on the device");
    expects_f32(backend, out, "silu_mul: out is f32 on the device");
    expects_rank(out, 2, "silu_mul: out is [M, F]");
    expects(gate_up.shape == Shape({out.shape[0], 2 * out.shape[1]}),
            "silu_mul: gate_up is [M, 2F]");
    expects(gate_up.data != out.data || out.data == nullptr, "silu_mul: out is not gate_up");
  }
  void visit(OpVisitor& visitor) { visitor(gate_up, out); }
};

// GeGLU (Shazeer 2020) with the tanh form: out = gelu_tanh(gate) * up.
struct GeluTanhMulArgs {
  static constexpr const char* kName = "gelu_tanh_mul";
  ConstTensorView gate_up;  // [M, 2F] = [gate | up] f32
  TensorView out;           // [M, F] f32

  void check(const Backend& backend) const {
    expects_f32(backend, gate_up, "gelu_tanh_mul: gate_up is f32 on the device");
    expects_f32(backend, out, "gelu_tanh_mul: out is f32 on the device");
    expects_rank(out, 2, "gelu_tanh_mul: out is [M, F]");
    expects(gate_up.shape == Shape({out.shape[0], 2 * out.shape[1]}),
            "gelu_tanh_mul: gate_up is [M, 2F]");
    expects(gate_up.data != out.data || out.data == nullptr, "gelu_tanh_mul: out is not gate_up");
  }
  void visit(OpVisitor& visitor) { visitor(gate_up, out); }
};

// Of the exact erf.
struct GeluArgs {
  static constexpr const char* kName = "gelu";
  ConstTensorView x;  // f32
  TensorView out;     // f32, as x; may be x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "gelu: x is f32 on the device");
    expects_f32(backend, out, "gelu: out is f32 on the device");
    expects(x.shape == out.shape, "gelu: equal shapes");
  }
  void visit(OpVisitor& visitor) { visitor(x, out); }
};

// The tanh form of GELU (Hendrycks & Gimpel 2016).
struct GeluTanhArgs {
  static constexpr const char* kName = "gelu_tanh";
  ConstTensorView x;  // f32
  TensorView out;     // f32, as x; may be x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "gelu_tanh: x is f32 on the device");
    expects_f32(backend, out, "gelu_tanh: out is f32 on the device");
    expects(x.shape == out.shape, "gelu_tanh: equal shapes");
  }
  void visit(OpVisitor& visitor) { visitor(x, out); }
};

// x sigmoid(1.702 x) (Hendrycks & Gimpel 2016).
struct QuickGeluArgs {
  static constexpr const char* kName = "quick_gelu";
  ConstTensorView x;  // f32
  TensorView out;     // f32, as x; may be x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "quick_gelu: x is f32 on the device");
    expects_f32(backend, out, "quick_gelu: out is f32 on the device");
    expects(x.shape == out.shape, "quick_gelu: equal shapes");
  }
  void visit(OpVisitor& visitor) { visitor(x, out); }
};

// Row to[i] of out receives weight[i] * x[i], summed in the order of i; other rows are zero.
struct CombineRowsArgs {
  static constexpr const char* kName = "combine_rows";
  ConstTensorView x;                 // [N, C] f32
  std::span<const std::int32_t> to;  // [N]
  std::span<const float> weight;     // [N]
  TensorView out;                    // [K, C] f32, not x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "combine_rows: x is f32 on the device");
    expects_f32(backend, out, "combine_rows: out is f32 on the device");
    expects_rank(x, 2, "combine_rows: x is [N, C]");
    expects_rank(out, 2, "combine_rows: out is [K, C]");
    expects(out.shape[1] == x.shape[1] && out.data != x.data, "combine_rows: out is [K, C], not x");
    expects(std::ssize(to) == x.shape[0] && weight.size() == to.size(),
            "combine_rows: every row has a destination and a weight");
    for (const std::int32_t row : to) {
      expects(row >= 0 && row < out.shape[0], "combine_rows: every destination is a row of out");
    }
  }
  void visit(OpVisitor& visitor) { visitor(x, to, weight, out); }
};

// Copies rows of heads * hd numbers, `row_stride` apart, into rows of a cache.
struct StoreRowsArgs {
  static constexpr const char* kName = "store_rows";
  ConstTensorView rows;  // f32, from the first row's first number to the last's last
  std::int64_t row_stride = 0;
  std::span<const std::int64_t> slots;  // rows of the cache
  TensorView cache;  // [capacity, heads, hd], of any type that numbers are kept in

  void check(const Backend& backend) const {
    expects_rank(cache, 3, "store_rows: cache is [capacity, heads, hd]");
    expects_kept(backend, cache, "store_rows: cache is f32 or bf16 on the device");
    expects(slots.empty() || rows.data != nullptr, "store_rows: rows are there");
    expects(slots.size() <= 1 || row_stride >= cache.shape[1] * cache.shape[2],
            "store_rows: rows do not overlap");
    for (const std::int64_t slot : slots) {
      expects(slot >= 0 && slot < cache.shape[0], "store_rows: every slot is in the cache");
    }
  }
  void visit(OpVisitor& visitor) { visitor(rows, row_stride, slots, cache); }
};

// Rows that begin at `first`, in memory of the cache's device.
inline StoreRowsArgs store_rows_args(const float* first, std::int64_t row_stride,
                                     std::span<const std::int64_t> slots, TensorView cache) {
  const auto count = std::ssize(slots);
  const std::int64_t floats =
      count == 0 ? 0 : (count - 1) * row_stride + cache.shape[1] * cache.shape[2];
  return {{DType::kF32, {floats}, first, cache.device}, row_stride, slots, cache};
}

// out = scale[c] * x + shift[c]
struct AffineChannelsArgs {
  static constexpr const char* kName = "affine_channels";
  ConstTensorView x;             // [..., C] f32
  ConstTensorView scale, shift;  // [C] f32
  TensorView out;                // as x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "affine_channels: x is f32 on the device");
    expects_f32(backend, out, "affine_channels: out is f32 on the device");
    expects(x.shape.rank() >= 1 && x.shape == out.shape, "affine_channels: equal shapes");
    const std::int64_t channels = x.shape[x.shape.rank() - 1];
    expects(channels > 0, "affine_channels: there are channels");
    expects_vector(backend, scale, channels, "affine_channels: scale is [C]");
    expects_vector(backend, shift, channels, "affine_channels: shift is [C]");
  }
  void visit(OpVisitor& visitor) { visitor(x, scale, shift, out); }
};

// A norm that other features condition (Zheng et al., "MoVQ", 2022): every place of x is scaled and
// shifted by what stands at its place of a coarser grid,
//   out(y, x, c) = act((scale[c] in(y, x, c) + shift[c]) gain(y / f, x / g, c) + bias(y / f, x / g,
//   c)).
struct ModulateArgs {
  static constexpr const char* kName = "modulate";
  ConstTensorView in;            // [h f, w g, C] f32
  ConstTensorView scale, shift;  // [C] f32
  ConstTensorView gain, bias;    // [h, w, C] f32
  bool swish = false;
  TensorView out;  // as in; may be in

  void check(const Backend& backend) const {
    expects_f32(backend, in, "modulate: in is f32 on the device");
    expects_f32(backend, out, "modulate: out is f32 on the device");
    expects_f32(backend, gain, "modulate: gain is f32 on the device");
    expects_f32(backend, bias, "modulate: bias is f32 on the device");
    expects(in.shape.rank() == 3 && in.shape == out.shape, "modulate: in is [H, W, C]");
    const std::int64_t channels = in.shape[2];
    expects_vector(backend, scale, channels, "modulate: scale is [C]");
    expects_vector(backend, shift, channels, "modulate: shift is [C]");
    expects(gain.shape.rank() == 3 && gain.shape == bias.shape && gain.shape[2] == channels &&
                gain.shape[0] > 0 && gain.shape[1] > 0,
            "modulate: gain and bias are [h, w, C]");
    expects(in.shape[0] % gain.shape[0] == 0 && in.shape[1] % gain.shape[1] == 0,
            "modulate: the grid divides the map evenly");
  }
  void visit(OpVisitor& visitor) { visitor(in, scale, shift, gain, bias, swish, out); }
};

namespace ops {

inline void embedding(Backend& backend, ConstTensorView table, std::span<const std::int32_t> ids,
                      TensorView out) {
  run(backend, EmbeddingArgs{table, ids, out});
}
inline void add(Backend& backend, ConstTensorView a, ConstTensorView b, TensorView out) {
  run(backend, AddArgs{a, b, out});
}
inline void silu_mul(Backend& backend, ConstTensorView gate_up, TensorView out) {
  run(backend, SiluMulArgs{gate_up, out});
}
inline void gelu_tanh_mul(Backend& backend, ConstTensorView gate_up, TensorView out) {
  run(backend, GeluTanhMulArgs{gate_up, out});
}
inline void gelu(Backend& backend, ConstTensorView x, TensorView out) {
  run(backend, GeluArgs{x, out});
}
inline void gelu_tanh(Backend& backend, ConstTensorView x, TensorView out) {
  run(backend, GeluTanhArgs{x, out});
}
inline void quick_gelu(Backend& backend, ConstTensorView x, TensorView out) {
  run(backend, QuickGeluArgs{x, out});
}
inline void combine_rows(Backend& backend, ConstTensorView x, std::span<const std::int32_t> to,
                         std::span<const float> weight, TensorView out) {
  run(backend, CombineRowsArgs{x, to, weight, out});
}
inline void store_rows(Backend& backend, const float* rows, std::int64_t row_stride,
                       std::span<const std::int64_t> slots, TensorView cache) {
  run(backend, store_rows_args(rows, row_stride, slots, cache));
}
inline void affine_channels(Backend& backend, ConstTensorView x, ConstTensorView scale,
                            ConstTensorView shift, TensorView out) {
  run(backend, AffineChannelsArgs{x, scale, shift, out});
}
inline void modulate(Backend& backend, const ModulateArgs& args) { run(backend, args); }

}  // namespace ops
}  // namespace tessera
