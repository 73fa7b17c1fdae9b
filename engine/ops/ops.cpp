// Checks in front of every backend call. The messages name the op; the numbers are the caller's.
#include "engine/ops/ops.h"

#include "engine/ops/checks.h"

namespace tessera::ops {

void linear(Backend& backend, ConstTensorView x, const LinearWeight& w, ConstTensorView bias,
            TensorView out) {
  expects_f32(backend, x, "linear: x is f32 on the device");
  expects_f32(backend, out, "linear: out is f32 on the device");
  expects_rank(x, 2, "linear: x is [M, k]");
  expects(!w.packed.empty() && x.shape[1] == w.k, "linear: x has as many columns as w has inputs");
  expects(out.shape == Shape({x.shape[0], w.n}), "linear: out is [M, n]");
  expects(x.data != out.data || x.data == nullptr, "linear: out is not x");
  if (!bias.empty()) expects_vector(backend, bias, w.n, "linear: bias is [n]");
  backend.linear(x, w, bias, out);
}

void embedding(Backend& backend, ConstTensorView table, std::span<const std::int32_t> ids,
               TensorView out) {
  expects_rank(table, 2, "embedding: table is [V, C]");
  expects(is_storage(table.dtype) && table.device == backend.device(),
          "embedding: table is f32 or bf16 on the device");
  expects_f32(backend, out, "embedding: out is f32 on the device");
  expects(out.shape == Shape({static_cast<std::int64_t>(ids.size()), table.shape[1]}),
          "embedding: out is [M, C]");
  for (const std::int32_t id : ids) {
    expects(id >= 0 && id < table.shape[0], "embedding: every id is in the table");
  }
  backend.embedding(table, ids, out);
}

void rms_norm(Backend& backend, ConstTensorView x, ConstTensorView weight, float eps,
              TensorView out) {
  expects_f32(backend, x, "rms_norm: x is f32 on the device");
  expects_f32(backend, out, "rms_norm: out is f32 on the device");
  expects_rank(x, 2, "rms_norm: x is [M, C]");
  expects(out.shape == x.shape, "rms_norm: out has the shape of x");
  expects_vector(backend, weight, x.shape[1], "rms_norm: weight is [C]");
  expects(eps > 0.0f, "rms_norm: eps is positive");
  backend.rms_norm(x, weight, eps, out);
}

void add(Backend& backend, ConstTensorView a, ConstTensorView b, TensorView out) {
  expects_f32(backend, a, "add: a is f32 on the device");
  expects_f32(backend, b, "add: b is f32 on the device");
  expects_f32(backend, out, "add: out is f32 on the device");
  expects(a.shape == b.shape && a.shape == out.shape, "add: equal shapes");
  backend.add(a, b, out);
}

void silu_mul(Backend& backend, ConstTensorView gate_up, TensorView out) {
  expects_f32(backend, gate_up, "silu_mul: gate_up is f32 on the device");
  expects_f32(backend, out, "silu_mul: out is f32 on the device");
  expects_rank(out, 2, "silu_mul: out is [M, F]");
  expects(gate_up.shape == Shape({out.shape[0], 2 * out.shape[1]}), "silu_mul: gate_up is [M, 2F]");
  expects(gate_up.data != out.data || out.data == nullptr, "silu_mul: out is not gate_up");
  backend.silu_mul(gate_up, out);
}

void gelu(Backend& backend, ConstTensorView x, TensorView out) {
  expects_f32(backend, x, "gelu: x is f32 on the device");
  expects_f32(backend, out, "gelu: out is f32 on the device");
  expects(x.shape == out.shape, "gelu: equal shapes");
  backend.gelu(x, out);
}

void rope(Backend& backend, TensorView x, ConstTensorView cos, ConstTensorView sin,
          RopePairing pairing) {
  expects_f32(backend, x, "rope: x is f32 on the device");
  expects_f32(backend, cos, "rope: cos is f32 on the device");
  expects_f32(backend, sin, "rope: sin is f32 on the device");
  expects_rank(x, 3, "rope: x is [M, heads, hd]");
  expects(x.shape[2] % 2 == 0, "rope: the head dimension is even");
  const Shape table{x.shape[0], x.shape[2] / 2};
  expects(cos.shape == table && sin.shape == table, "rope: cos and sin are [M, hd/2]");
  backend.rope(x, cos, sin, pairing);
}

void store_rows(Backend& backend, const float* rows, std::int64_t row_stride,
                std::span<const std::int64_t> slots, TensorView cache) {
  expects_rank(cache, 3, "store_rows: cache is [capacity, heads, hd]");
  expects(is_storage(cache.dtype) && cache.device == backend.device(),
          "store_rows: cache is f32 or bf16 on the device");
  expects(slots.empty() || rows != nullptr, "store_rows: rows are there");
  expects(slots.size() <= 1 || row_stride >= cache.shape[1] * cache.shape[2],
          "store_rows: rows do not overlap");
  for (const std::int64_t slot : slots) {
    expects(slot >= 0 && slot < cache.shape[0], "store_rows: every slot is in the cache");
  }
  backend.store_rows(rows, row_stride, slots, cache);
}

namespace {

void check_segment(Backend& backend, const AttentionArgs& args, const AttentionSegment& segment) {
  const ConstTensorView& keys = segment.keys;
  expects_rank(keys, 3, "attention: keys are [capacity, kv_heads, hd]");
  expects(is_storage(keys.dtype) && keys.device == backend.device(),
          "attention: keys are f32 or bf16 on the device");
  expects(segment.values.shape[1] == keys.shape[1] && segment.values.shape[2] == keys.shape[2] &&
              segment.values.dtype == keys.dtype && segment.values.device == keys.device,
          "attention: values are like keys");
  expects(keys.shape[1] == args.segments[0].keys.shape[1],
          "attention: all segments have the same heads");
  expects(
      keys.shape[1] > 0 && args.q.shape[1] % keys.shape[1] == 0 && keys.shape[2] == args.q.shape[2],
      "attention: query heads share key heads evenly");
  expects(segment.row_begin >= 0 && segment.rows >= 0 &&
              segment.row_begin + segment.rows <= args.q.shape[0],
          "attention: the segment's rows are in the batch");
  const std::int64_t visible = segment.first_visible + (segment.causal ? segment.rows : 0);
  expects(segment.first_visible >= (segment.causal ? 0 : 1) && visible <= keys.shape[0] &&
              visible <= segment.values.shape[0],
          "attention: every visible key is in the cache, and there is one");
  if (!segment.key_bias.empty()) {
    expects_f32(backend, segment.key_bias, "attention: key_bias is f32 on the device");
    expects(segment.key_bias.shape.elements() >= visible, "attention: key_bias has every key");
  }
  if (segment.listed.empty()) return;
  expects(segment.listed_from >= 0 && segment.listed_from <= visible &&
              static_cast<std::int64_t>(segment.listed.size()) >= visible - segment.listed_from,
          "attention: the list has every key behind those in order");
  for (const std::int32_t row : segment.listed) {
    expects(row >= 0 && row < keys.shape[0], "attention: listed keys are in the cache");
  }
}

}  // namespace

void attention(Backend& backend, const AttentionArgs& args) {
  expects_f32(backend, args.q, "attention: q is f32 on the device");
  expects_f32(backend, args.out, "attention: out is f32 on the device");
  expects_rank(args.q, 3, "attention: q is [M, heads, hd]");
  expects(args.out.shape == args.q.shape && args.out.data != args.q.data,
          "attention: out has the shape of q and is not q");
  if (!args.log_sum.empty()) {
    expects_f32(backend, args.log_sum, "attention: log_sum is f32 on the device");
    expects(args.log_sum.shape == Shape({args.q.shape[0], args.q.shape[1]}),
            "attention: log_sum is [M, heads]");
  }
  std::int64_t next = 0;
  for (const AttentionSegment& segment : args.segments) {
    check_segment(backend, args, segment);
    expects(segment.row_begin >= next, "attention: segments are in order and do not overlap");
    next = segment.row_begin + segment.rows;
  }
  backend.attention(args);
}

void conv2d(Backend& backend, const Conv2dArgs& args) {
  expects_f32(backend, args.in, "conv2d: in is f32 on the device");
  expects_f32(backend, args.out, "conv2d: out is f32 on the device");
  expects_rank(args.in, 3, "conv2d: in is [H, W, c_in]");
  expects(args.weight != nullptr && !args.weight->packed.empty(), "conv2d: a kernel is given");
  const ConvWeight& weight = *args.weight;
  expects(args.in.shape[2] == weight.c_in && args.in.shape.elements() > 0,
          "conv2d: in has the channels of the kernel");
  expects(args.upsample == 1 || args.upsample == 2, "conv2d: upsample is 1 or 2");
  expects(args.stride >= 1 && args.pad_top >= 0 && args.pad_left >= 0 && args.pad_bottom >= 0 &&
              args.pad_right >= 0,
          "conv2d: stride is positive, pads are not negative");
  const std::int64_t height =
      args.in.shape[0] * args.upsample + args.pad_top + args.pad_bottom - weight.kh;
  const std::int64_t width =
      args.in.shape[1] * args.upsample + args.pad_left + args.pad_right - weight.kw;
  expects(height >= 0 && width >= 0, "conv2d: the kernel fits the padded input");
  expects(
      args.out.shape == Shape({height / args.stride + 1, width / args.stride + 1, weight.c_out}),
      "conv2d: out is [H', W', c_out]");
  expects(args.out.data != args.in.data, "conv2d: out is not in");
  expects(args.scale.empty() == args.shift.empty(), "conv2d: scale and shift come together");
  if (!args.scale.empty()) {
    expects_vector(backend, args.scale, weight.c_in, "conv2d: scale is [c_in]");
    expects_vector(backend, args.shift, weight.c_in, "conv2d: shift is [c_in]");
  }
  if (!args.bias.empty())
    expects_vector(backend, args.bias, weight.c_out, "conv2d: bias is [c_out]");
  backend.conv2d(args);
}

void group_norm_coefficients(Backend& backend, ConstTensorView x, int groups, float eps,
                             ConstTensorView gamma, ConstTensorView beta, TensorView scale,
                             TensorView shift) {
  expects_f32(backend, x, "group_norm: x is f32 on the device");
  expects_rank(x, 3, "group_norm: x is [H, W, C]");
  expects(x.shape.elements() > 0, "group_norm: x is not empty");
  const std::int64_t channels = x.shape[2];
  expects(groups > 0 && channels % groups == 0, "group_norm: groups divide the channels");
  expects_vector(backend, gamma, channels, "group_norm: gamma is [C]");
  expects_vector(backend, beta, channels, "group_norm: beta is [C]");
  expects_vector(backend, scale, channels, "group_norm: scale is [C]");
  expects_vector(backend, shift, channels, "group_norm: shift is [C]");
  backend.group_norm_coefficients(x, groups, eps, gamma, beta, scale, shift);
}

void affine_channels(Backend& backend, ConstTensorView x, ConstTensorView scale,
                     ConstTensorView shift, TensorView out) {
  expects_f32(backend, x, "affine_channels: x is f32 on the device");
  expects_f32(backend, out, "affine_channels: out is f32 on the device");
  expects(x.shape.rank() >= 1 && x.shape == out.shape, "affine_channels: equal shapes");
  const std::int64_t channels = x.shape[x.shape.rank() - 1];
  expects(channels > 0, "affine_channels: there are channels");
  expects_vector(backend, scale, channels, "affine_channels: scale is [C]");
  expects_vector(backend, shift, channels, "affine_channels: shift is [C]");
  backend.affine_channels(x, scale, shift, out);
}

void modulate(Backend& backend, const ModulateArgs& args) {
  expects_f32(backend, args.in, "modulate: in is f32 on the device");
  expects_f32(backend, args.out, "modulate: out is f32 on the device");
  expects_f32(backend, args.gain, "modulate: gain is f32 on the device");
  expects_f32(backend, args.bias, "modulate: bias is f32 on the device");
  expects(args.in.shape.rank() == 3 && args.in.shape == args.out.shape, "modulate: in is [H, W, C]");
  const std::int64_t channels = args.in.shape[2];
  expects_vector(backend, args.scale, channels, "modulate: scale is [C]");
  expects_vector(backend, args.shift, channels, "modulate: shift is [C]");
  expects(args.gain.shape.rank() == 3 && args.gain.shape == args.bias.shape &&
              args.gain.shape[2] == channels && args.gain.shape[0] > 0 && args.gain.shape[1] > 0,
          "modulate: gain and bias are [h, w, C]");
  expects(args.in.shape[0] % args.gain.shape[0] == 0 && args.in.shape[1] % args.gain.shape[1] == 0,
          "modulate: the grid divides the map evenly");
  backend.modulate(args);
}

void nearest_code(Backend& backend, ConstTensorView z, ConstTensorView codebook,
                  std::span<std::int32_t> ids) {
  expects_f32(backend, z, "nearest_code: z is f32 on the device");
  expects_f32(backend, codebook, "nearest_code: codebook is f32 on the device");
  expects_rank(z, 2, "nearest_code: z is [N, D]");
  expects_rank(codebook, 2, "nearest_code: codebook is [V, D]");
  expects(codebook.shape[0] > 0 && codebook.shape[1] == z.shape[1],
          "nearest_code: codebook has the width of z");
  expects(static_cast<std::int64_t>(ids.size()) == z.shape[0], "nearest_code: one id a row");
  backend.nearest_code(z, codebook, ids);
}

void l2_normalize(Backend& backend, ConstTensorView x, float eps, TensorView out) {
  expects_f32(backend, x, "l2_normalize: x is f32 on the device");
  expects_f32(backend, out, "l2_normalize: out is f32 on the device");
  expects_rank(x, 2, "l2_normalize: x is [N, D]");
  expects(out.shape == x.shape, "l2_normalize: out has the shape of x");
  expects(eps > 0.0f, "l2_normalize: eps is positive");
  backend.l2_normalize(x, eps, out);
}

}  // namespace tessera::ops
