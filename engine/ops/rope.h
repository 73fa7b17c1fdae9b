// Rotary position embedding (Su et al. 2021) from tables of cosines and sines per row.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/checks.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/norm.h"

namespace tessera {

enum class RopePairing : std::uint8_t {
  kHalfSplit,    // pair (x_i, x_{i + hd/2}): Llama as Hugging Face stores it
  kInterleaved,  // pair (x_{2i}, x_{2i+1}): LlamaGen
};

struct RopeArgs {
  static constexpr const char* kName = "rope";
  TensorView x;              // [M, heads, hd] f32, rotated in place
  ConstTensorView cos, sin;  // [M, hd / 2] f32
  RopePairing pairing = RopePairing::kHalfSplit;

  void check(const Backend& backend) const {
    expects_f32(backend, x, "rope: x is f32 on the device");
    expects_f32(backend, cos, "rope: cos is f32 on the device");
    expects_f32(backend, sin, "rope: sin is f32 on the device");
    expects_rank(x, 3, "rope: x is [M, heads, hd]");
    expects(x.shape[2] % 2 == 0, "rope: the head dimension is even");
    const Shape table{x.shape[0], x.shape[2] / 2};
    expects(cos.shape == table && sin.shape == table, "rope: cos and sin are [M, hd/2]");
  }
  void visit(OpVisitor& visitor) { visitor(x, cos, sin, pairing); }
};

// The rows of a layer on their way into attention: queries and keys are taken out of the joined
// product, their heads normed where there are norms, turned by the rotary tables; queries go to
// `q`, keys and values into the cache rows `slots`.
struct QkvRopeArgs {
  static constexpr const char* kName = "qkv_rope";
  ConstTensorView qkv;             // [M, (heads + 2 kv_heads) hd] f32: q | k | v
  ConstTensorView q_norm, k_norm;  // [hd] f32 or empty
  float eps = 0;                   // of these norms
  ConstTensorView cos, sin;        // [M, hd / 2] f32
  RopePairing pairing = RopePairing::kHalfSplit;
  std::span<const std::int64_t> slots;     // [M]
  std::span<const std::int64_t> identity;  // [M] 0, 1, ...
  TensorView q;                            // [M, heads, hd] f32, out
  TensorView k;                            // [M, kv_heads, hd] f32, scratch
  TensorView keys, values;                 // [capacity, kv_heads, stored], of cached_types()

  void check(const Backend& backend) const {
    expects_f32(backend, qkv, "qkv_rope: qkv is f32 on the device");
    expects_f32(backend, q, "qkv_rope: q is f32 on the device");
    expects_f32(backend, k, "qkv_rope: k is f32 on the device");
    expects_rank(q, 3, "qkv_rope: q is [M, heads, hd]");
    expects_rank(k, 3, "qkv_rope: k is [M, kv_heads, hd]");
    const std::int64_t rows = q.shape[0], dim = q.shape[2];
    expects(k.shape[0] == rows && k.shape[2] == dim && dim % 2 == 0,
            "qkv_rope: q and k have as many rows and an even head");
    expects(qkv.shape == Shape({rows, (q.shape[1] + 2 * k.shape[1]) * dim}),
            "qkv_rope: qkv is [M, (heads + 2 kv_heads) hd]");
    expects_f32(backend, cos, "qkv_rope: cos is f32 on the device");
    expects_f32(backend, sin, "qkv_rope: sin is f32 on the device");
    const Shape table{rows, dim / 2};
    expects(cos.shape == table && sin.shape == table, "qkv_rope: cos and sin are [M, hd/2]");
    if (!q_norm.empty()) expects_vector(backend, q_norm, dim, "qkv_rope: q_norm is [hd]");
    if (!k_norm.empty()) expects_vector(backend, k_norm, dim, "qkv_rope: k_norm is [hd]");
    for (const ConstTensorView& cache : {ConstTensorView(keys), ConstTensorView(values)}) {
      expects_rank(cache, 3, "qkv_rope: a cache is [capacity, kv_heads, stored]");
      expects_cached(backend, cache, "qkv_rope: a cache is f32, bf16 or q8 on the device");
      expects(cache.shape[1] == k.shape[1] && cached_head(cache) == dim,
              "qkv_rope: a cache has the heads of the keys");
    }
    expects(std::ssize(slots) == rows && std::ssize(identity) == rows,
            "qkv_rope: every row has a slot");
    for (const std::int64_t slot : slots) {
      expects(slot >= 0 && slot < keys.shape[0] && slot < values.shape[0],
              "qkv_rope: every slot is in the cache");
    }
  }
  void visit(OpVisitor& visitor) {
    visitor(qkv, q_norm, k_norm, eps, cos, sin, pairing, slots, identity, q, k, keys, values);
  }
  void in_parts(Backend& backend) const {
    const std::int64_t q_width = q.shape[1] * q.shape[2];
    const std::int64_t kv_width = k.shape[1] * k.shape[2];
    const std::int64_t stride = q_width + 2 * kv_width;
    const auto norm_heads = [&](TensorView heads, const ConstTensorView& weight) {
      if (weight.empty()) return;
      heads.shape = {heads.shape[0] * heads.shape[1], heads.shape[2]};
      backend.run(RmsNormArgs{heads, weight, eps, heads});
    };
    const float* const rows = qkv.f32();
    backend.run(store_rows_args(rows, stride, identity, q));
    backend.run(store_rows_args(rows + q_width, stride, identity, k));
    norm_heads(q, q_norm);
    norm_heads(k, k_norm);
    backend.run(RopeArgs{q, cos, sin, pairing});
    backend.run(RopeArgs{k, cos, sin, pairing});
    backend.run(store_rows_args(k.f32(), kv_width, slots, keys));
    backend.run(store_rows_args(rows + q_width + kv_width, stride, slots, values));
  }
};

namespace ops {

inline void rope(Backend& backend, TensorView x, ConstTensorView cos, ConstTensorView sin,
                 RopePairing pairing) {
  run(backend, RopeArgs{x, cos, sin, pairing});
}
inline void qkv_rope(Backend& backend, const QkvRopeArgs& args) { run(backend, args); }

}  // namespace ops
}  // namespace tessera
