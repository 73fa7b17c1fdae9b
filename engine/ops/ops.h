// Free functions in front of a Backend: each checks shape, dtype and device of what it is given and
// calls the backend. A mismatch here is a programmer's error (files were checked when they loaded).
// M rows, k inputs, n outputs; all activations f32.
#pragma once

#include <cstdint>
#include <span>

#include "engine/backend/backend.h"

namespace tessera::ops {

// out[m, :] = w x[m, :] + bias.  x [M,k], w [n,k], bias [n] or empty, out [M,n].
void linear(Backend& backend, ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
            TensorView out);
// sum[m, :] += w x[m, :] + bias; scratch and sum [M,n].
void linear_add(Backend& backend, ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
                TensorView sum, TensorView scratch);
// out = silu(gate) * up, [gate | up] = gate_up x. gate_up [2F,k], scratch [M,2F], out [M,F].
void gated_linear(Backend& backend, ConstTensorView x, const LinearWeight& gate_up,
                  TensorView scratch, TensorView out);
// Both of rms_norm(x, norm, eps) instead of x; norm [k], normed [M,k] is scratch.
void normed_linear(Backend& backend, ConstTensorView x, ConstTensorView norm, float eps,
                   const LinearWeight& w, ConstTensorView bias, TensorView normed, TensorView out);
void normed_gated_linear(Backend& backend, ConstTensorView x, ConstTensorView norm, float eps,
                         const LinearWeight& gate_up, TensorView normed, TensorView scratch,
                         TensorView out);
// table [V,C] f32 or bf16, every id in [0,V), out [M,C].
void embedding(Backend& backend, ConstTensorView table, std::span<const std::int32_t> ids,
               TensorView out);
// y = x * rsqrt(mean(x^2) + eps) * weight (Zhang & Sennrich 2019).  x, out [M,C], weight [C].
void rms_norm(Backend& backend, ConstTensorView x, ConstTensorView weight, float eps,
              TensorView out);
void add(Backend& backend, ConstTensorView a, ConstTensorView b, TensorView out);
// SwiGLU (Shazeer 2020): out = silu(gate) * up with gate_up [M,2F] = [gate | up], out [M,F].
void silu_mul(Backend& backend, ConstTensorView gate_up, TensorView out);
void gelu(Backend& backend, ConstTensorView x, TensorView out);
// The tanh form of GELU, and x sigmoid(1.702 x) (Hendrycks & Gimpel 2016).
void gelu_tanh(Backend& backend, ConstTensorView x, TensorView out);
void quick_gelu(Backend& backend, ConstTensorView x, TensorView out);
// LayerNorm (Ba et al. 2016).  x, out [M,C], weight, bias [C].
void layer_norm(Backend& backend, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                float eps, TensorView out);
// Softmax over every row [N] of x [M,N]; out may be x.
void softmax_rows(Backend& backend, ConstTensorView x, TensorView out);
// out [K,C]: row to[i] is the sum of weight[i] * x[i] in the order of i, zero if there is none.
void combine_rows(Backend& backend, ConstTensorView x, std::span<const std::int32_t> to,
                  std::span<const float> weight, TensorView out);
// Rotary embedding (Su et al. 2021). x [M,heads,hd] in place; cos, sin [M,hd/2].
void rope(Backend& backend, TensorView x, ConstTensorView cos, ConstTensorView sin,
          RopePairing pairing);
void store_rows(Backend& backend, const float* rows, std::int64_t row_stride,
                std::span<const std::int64_t> slots, TensorView cache);
void qkv_rope(Backend& backend, const QkvRopeArgs& args);
void attention(Backend& backend, const AttentionArgs& args);
void row_attention(Backend& backend, const RowAttentionArgs& args);
void conv2d(Backend& backend, const Conv2dArgs& args);
void group_norm_coefficients(Backend& backend, ConstTensorView x, int groups, float eps,
                             ConstTensorView gamma, ConstTensorView beta, TensorView scale,
                             TensorView shift);
void affine_channels(Backend& backend, ConstTensorView x, ConstTensorView scale,
                     ConstTensorView shift, TensorView out);
void modulate(Backend& backend, const ModulateArgs& args);
void nearest_code(Backend& backend, ConstTensorView z, ConstTensorView codebook,
                  std::span<std::int32_t> ids);
void l2_normalize(Backend& backend, ConstTensorView x, float eps, TensorView out);

}  // namespace tessera::ops
