// Checks in front of the ops that a device may fuse.
#include "engine/ops/checks.h"
#include "engine/ops/ops.h"

namespace tessera::ops {

namespace {

void check_product(Backend& backend, const ConstTensorView& x, const LinearWeight& w,
                   const ConstTensorView& scratch) {
  expects_f32(backend, x, "linear: x is f32 on the device");
  expects_f32(backend, scratch, "linear: scratch is f32 on the device");
  expects_rank(x, 2, "linear: x is [M, k]");
  expects(!w.packed.empty() && x.shape[1] == w.k, "linear: x has as many columns as w has inputs");
  expects(scratch.shape == Shape({x.shape[0], w.n}), "linear: scratch is [M, n]");
  expects(x.data != scratch.data || x.data == nullptr, "linear: scratch is not x");
}

void check_norm(Backend& backend, const ConstTensorView& x, const ConstTensorView& norm,
                const ConstTensorView& normed, const ConstTensorView& out) {
  expects_vector(backend, norm, x.shape[1], "normed_linear: norm is [k]");
  expects_f32(backend, normed, "normed_linear: normed is f32 on the device");
  expects(normed.shape == x.shape && normed.data != x.data && normed.data != out.data,
          "normed_linear: normed is [M, k], neither x nor out");
}

void check_cache(Backend& backend, const ConstTensorView& cache, const Shape& heads) {
  expects_rank(cache, 3, "qkv_rope: a cache is [capacity, kv_heads, hd]");
  expects(is_storage(cache.dtype) && cache.device == backend.device(),
          "qkv_rope: a cache is f32 or bf16 on the device");
  expects(cache.shape[1] == heads[1] && cache.shape[2] == heads[2],
          "qkv_rope: a cache has the heads of the keys");
}

}  // namespace

void linear_add(Backend& backend, ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                TensorView sum, TensorView scratch) {
  check_product(backend, x, w, scratch);
  expects_f32(backend, sum, "linear_add: sum is f32 on the device");
  expects(sum.shape == scratch.shape && sum.data != x.data && sum.data != scratch.data,
          "linear_add: sum is [M, n], neither x nor scratch");
  if (!bias.empty()) expects_vector(backend, bias, w.n, "linear_add: bias is [n]");
  backend.linear_add(x, w, bias, sum, scratch);
}

void gated_linear(Backend& backend, ConstTensorView x, const LinearWeight& gate_up,
                  TensorView scratch, TensorView out) {
  check_product(backend, x, gate_up, scratch);
  expects_f32(backend, out, "gated_linear: out is f32 on the device");
  expects(gate_up.n % 2 == 0 && out.shape == Shape({x.shape[0], gate_up.n / 2}) &&
              out.data != x.data && out.data != scratch.data,
          "gated_linear: out is [M, F], neither x nor scratch");
  backend.gated_linear(x, gate_up, scratch, out);
}

void normed_linear(Backend& backend, ConstTensorView x, ConstTensorView norm, float eps,
                   const LinearWeight& w, ConstTensorView bias, TensorView normed, TensorView out) {
  check_product(backend, x, w, out);
  check_norm(backend, x, norm, normed, out);
  if (!bias.empty()) expects_vector(backend, bias, w.n, "normed_linear: bias is [n]");
  backend.normed_linear(x, norm, eps, w, bias, normed, out);
}

void normed_gated_linear(Backend& backend, ConstTensorView x, ConstTensorView norm, float eps,
                         const LinearWeight& gate_up, TensorView normed, TensorView scratch,
                         TensorView out) {
  check_product(backend, x, gate_up, scratch);
  check_norm(backend, x, norm, normed, out);
  expects_f32(backend, out, "normed_gated_linear: out is f32 on the device");
  expects(gate_up.n % 2 == 0 && out.shape == Shape({x.shape[0], gate_up.n / 2}) &&
              out.data != x.data && out.data != scratch.data,
          "normed_gated_linear: out is [M, F], neither x nor scratch");
  backend.normed_gated_linear(x, norm, eps, gate_up, normed, scratch, out);
}

void qkv_rope(Backend& backend, const QkvRopeArgs& args) {
  expects_f32(backend, args.qkv, "qkv_rope: qkv is f32 on the device");
  expects_f32(backend, args.q, "qkv_rope: q is f32 on the device");
  expects_f32(backend, args.k, "qkv_rope: k is f32 on the device");
  expects_rank(args.q, 3, "qkv_rope: q is [M, heads, hd]");
  expects_rank(args.k, 3, "qkv_rope: k is [M, kv_heads, hd]");
  const std::int64_t rows = args.q.shape[0], dim = args.q.shape[2];
  expects(args.k.shape[0] == rows && args.k.shape[2] == dim && dim % 2 == 0,
          "qkv_rope: q and k have as many rows and an even head");
  expects(args.qkv.shape == Shape({rows, (args.q.shape[1] + 2 * args.k.shape[1]) * dim}),
          "qkv_rope: qkv is [M, (heads + 2 kv_heads) hd]");
  expects_f32(backend, args.cos, "qkv_rope: cos is f32 on the device");
  expects_f32(backend, args.sin, "qkv_rope: sin is f32 on the device");
  const Shape table{rows, dim / 2};
  expects(args.cos.shape == table && args.sin.shape == table, "qkv_rope: cos and sin are [M, hd/2]");
  if (!args.q_norm.empty()) expects_vector(backend, args.q_norm, dim, "qkv_rope: q_norm is [hd]");
  if (!args.k_norm.empty()) expects_vector(backend, args.k_norm, dim, "qkv_rope: k_norm is [hd]");
  check_cache(backend, args.keys, args.k.shape);
  check_cache(backend, args.values, args.k.shape);
  expects(static_cast<std::int64_t>(args.slots.size()) == rows &&
              static_cast<std::int64_t>(args.identity.size()) == rows,
          "qkv_rope: every row has a slot");
  for (const std::int64_t slot : args.slots) {
    expects(slot >= 0 && slot < args.keys.shape[0] && slot < args.values.shape[0],
            "qkv_rope: every slot is in the cache");
  }
  backend.qkv_rope(args);
}

}  // namespace tessera::ops
