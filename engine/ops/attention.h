// Attention of rows over the keys of their sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/ops/checks.h"

namespace tessera {

// One sequence's part of an attention call. Keys and values are [capacity, kv_heads, stored], of
// any type of cached_types(), where a head of head_dim numbers takes so many elements. Query rows [row_begin, row_begin + rows) of the batch belong
// to it; row r sees keys [0, first_visible + r + 1), which is causal attention when first_visible
// keys were cached before the window. With `causal` false every row sees keys [0, first_visible).
// Keys need not lie in order: with `listed`, key i from `listed_from` on is row
// listed[i - listed_from] - listed_base of the tables. The result is that of tables in order, bit
// for bit.
// `key_bias`, if given, is added to every score of a key, heads and rows alike: ln(size) weighs a
// key as that many equal ones (Bolya et al. 2023), the lowest float hides it.
struct AttentionSegment {
  ConstTensorView keys;
  ConstTensorView values;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t first_visible = 0;
  bool causal = true;
  std::int64_t listed_from = 0;
  std::span<const std::int32_t> listed;
  std::int64_t listed_base = 0;  // of tables that begin further on than the list counts from
  ConstTensorView key_bias;  // f32, one number a visible key, or empty
  // With steps rows and heads have numbers of their own: those of row r and head h begin at
  // bias_first + r bias_row_step + h bias_head_step.
  std::int64_t bias_first = 0, bias_row_step = 0, bias_head_step = 0;

  std::int64_t bias_of(std::int64_t row, std::int64_t head) const {
    return bias_first + row * bias_row_step + head * bias_head_step;
  }

  // A sequence grows from repeat to repeat of a recorded pass.
  void visit(OpVisitor& visitor) {
    visitor(keys, values, row_begin, rows, causal, listed, listed_base, key_bias, bias_first,
            bias_row_step, bias_head_step);
    visitor.varying(first_visible, listed_from);
  }
};

struct AttentionArgs {
  static constexpr const char* kName = "attention";
  ConstTensorView q;  // [M, heads, head_dim] f32
  TensorView out;     // [M, heads, head_dim] f32
  std::span<const AttentionSegment> segments;
  float scale = 1.0f;
  TensorView log_sum;  // [M, heads] f32: ln sum exp(score) over the keys a row sees, or empty

  void check(const Backend& backend) const {
    expects_f32(backend, q, "attention: q is f32 on the device");
    expects_f32(backend, out, "attention: out is f32 on the device");
    expects_rank(q, 3, "attention: q is [M, heads, hd]");
    expects(out.shape == q.shape && out.data != q.data,
            "attention: out has the shape of q and is not q");
    if (!log_sum.empty()) {
      expects_f32(backend, log_sum, "attention: log_sum is f32 on the device");
      expects(log_sum.shape == Shape({q.shape[0], q.shape[1]}), "attention: log_sum is [M, heads]");
    }
    std::int64_t next = 0;
    for (const AttentionSegment& segment : segments) {
      check_segment(backend, segment);
      expects(segment.row_begin >= next, "attention: segments are in order and do not overlap");
      next = segment.row_begin + segment.rows;
    }
  }
  void check_segment(const Backend& backend, const AttentionSegment& segment) const {
    const ConstTensorView& keys = segment.keys;
    expects_rank(keys, 3, "attention: keys are [capacity, kv_heads, hd]");
    expects_cached(backend, keys, "attention: keys are f32, bf16 or q8 on the device");
    expects(segment.values.shape[1] == keys.shape[1] && segment.values.shape[2] == keys.shape[2] &&
                segment.values.dtype == keys.dtype && segment.values.device == keys.device,
            "attention: values are like keys");
    expects(keys.shape[1] == segments[0].keys.shape[1],
            "attention: all segments have the same heads");
    expects(keys.shape[1] > 0 && q.shape[1] % keys.shape[1] == 0 &&
                cached_head(keys) == q.shape[2],
            "attention: query heads share key heads evenly");
    expects(segment.row_begin >= 0 && segment.rows >= 0 &&
                segment.row_begin + segment.rows <= q.shape[0],
            "attention: the segment's rows are in the batch");
    const std::int64_t visible = segment.first_visible + (segment.causal ? segment.rows : 0);
    expects(segment.first_visible >= (segment.causal ? 0 : 1) && visible <= keys.shape[0] &&
                visible <= segment.values.shape[0],
            "attention: every visible key is in the cache, and there is one");
    if (!segment.key_bias.empty()) {
      expects_f32(backend, segment.key_bias, "attention: key_bias is f32 on the device");
      const std::int64_t last = std::max<std::int64_t>(segment.rows, 1) - 1;
      for (const std::int64_t row : {std::int64_t{0}, last}) {
        for (const std::int64_t head : {std::int64_t{0}, q.shape[1] - 1}) {
          const std::int64_t first = segment.bias_of(row, head);
          expects(first >= 0 && first + visible <= segment.key_bias.shape.elements(),
                  "attention: key_bias has every key");
        }
      }
    }
    if (segment.listed.empty()) return;
    expects(segment.listed_from >= 0 && segment.listed_from <= visible &&
                std::ssize(segment.listed) >= visible - segment.listed_from,
            "attention: the list has every key after those in order");
    for (const std::int32_t row : segment.listed) {
      expects(row >= segment.listed_base && row - segment.listed_base < keys.shape[0],
              "attention: listed keys are in the cache");
    }
  }
  void visit(OpVisitor& visitor) { visitor(q, out, segments, scale, log_sum); }
};

namespace ops {

inline void attention(Backend& backend, const AttentionArgs& args) { run(backend, args); }

}  // namespace ops
}  // namespace tessera
