// Checks in front of the ops that an encoder of pictures adds: LayerNorm, two more GELUs, softmax,
// merged rows, attention weights of chosen rows.
#include "engine/ops/checks.h"
#include "engine/ops/ops.h"

namespace tessera::ops {

void gelu_tanh(Backend& backend, ConstTensorView x, TensorView out) {
  expects_f32(backend, x, "gelu_tanh: x is f32 on the device");
  expects_f32(backend, out, "gelu_tanh: out is f32 on the device");
  expects(x.shape == out.shape, "gelu_tanh: equal shapes");
  backend.gelu_tanh(x, out);
}

void quick_gelu(Backend& backend, ConstTensorView x, TensorView out) {
  expects_f32(backend, x, "quick_gelu: x is f32 on the device");
  expects_f32(backend, out, "quick_gelu: out is f32 on the device");
  expects(x.shape == out.shape, "quick_gelu: equal shapes");
  backend.quick_gelu(x, out);
}

void layer_norm(Backend& backend, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                float eps, TensorView out) {
  expects_f32(backend, x, "layer_norm: x is f32 on the device");
  expects_f32(backend, out, "layer_norm: out is f32 on the device");
  expects_rank(x, 2, "layer_norm: x is [M, C]");
  expects(out.shape == x.shape, "layer_norm: out has the shape of x");
  expects_vector(backend, weight, x.shape[1], "layer_norm: weight is [C]");
  expects_vector(backend, bias, x.shape[1], "layer_norm: bias is [C]");
  expects(eps > 0.0f, "layer_norm: eps is positive");
  backend.layer_norm(x, weight, bias, eps, out);
}

void softmax_rows(Backend& backend, ConstTensorView x, TensorView out) {
  expects_f32(backend, x, "softmax_rows: x is f32 on the device");
  expects_f32(backend, out, "softmax_rows: out is f32 on the device");
  expects_rank(x, 2, "softmax_rows: x is [M, N]");
  expects(out.shape == x.shape && x.shape[1] > 0, "softmax_rows: out has the shape of x");
  backend.softmax_rows(x, out);
}

void combine_rows(Backend& backend, ConstTensorView x, std::span<const std::int32_t> to,
                  std::span<const float> weight, TensorView out) {
  expects_f32(backend, x, "combine_rows: x is f32 on the device");
  expects_f32(backend, out, "combine_rows: out is f32 on the device");
  expects_rank(x, 2, "combine_rows: x is [N, C]");
  expects_rank(out, 2, "combine_rows: out is [K, C]");
  expects(out.shape[1] == x.shape[1] && out.data != x.data, "combine_rows: out is [K, C], not x");
  expects(static_cast<std::int64_t>(to.size()) == x.shape[0] && weight.size() == to.size(),
          "combine_rows: every row has a destination and a weight");
  for (const std::int32_t row : to) {
    expects(row >= 0 && row < out.shape[0], "combine_rows: every destination is a row of out");
  }
  backend.combine_rows(x, to, weight, out);
}

namespace {

Shape row_attention_shape(const RowAttentionArgs& args) {
  const std::int64_t keys = args.keys.shape[0];
  switch (args.mean) {
    case AttentionMean::kNone:
      return {args.q.shape[0], args.q.shape[1], keys};
    case AttentionMean::kHeads:
      return {args.q.shape[0], keys};
    case AttentionMean::kRows:
      return {args.q.shape[1], keys};
    case AttentionMean::kBoth:
      return {keys};
  }
  return {};
}

}  // namespace

void row_attention(Backend& backend, const RowAttentionArgs& args) {
  expects_f32(backend, args.q, "row_attention: q is f32 on the device");
  expects_f32(backend, args.keys, "row_attention: keys are f32 on the device");
  expects_f32(backend, args.out, "row_attention: out is f32 on the device");
  expects_rank(args.q, 3, "row_attention: q is [R, heads, hd]");
  expects_rank(args.keys, 3, "row_attention: keys are [N, kv_heads, hd]");
  expects(args.q.shape[0] > 0 && args.keys.shape[0] > 0, "row_attention: there are rows and keys");
  expects(args.keys.shape[1] > 0 && args.q.shape[1] % args.keys.shape[1] == 0 &&
              args.q.shape[2] == args.keys.shape[2],
          "row_attention: query heads share key heads evenly");
  if (!args.key_bias.empty()) {
    expects_vector(backend, args.key_bias, args.keys.shape[0], "row_attention: key_bias is [N]");
  }
  if (!args.log_sum.empty()) {
    expects_f32(backend, args.log_sum, "row_attention: log_sum is f32 on the device");
    expects(args.log_sum.shape == Shape({args.q.shape[0], args.q.shape[1]}),
            "row_attention: log_sum is [R, heads]");
  }
  expects(args.out.shape == row_attention_shape(args), "row_attention: out has the shape of mean");
  backend.row_attention(args);
}

}  // namespace tessera::ops
