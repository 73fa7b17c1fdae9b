// Attention weights of chosen query rows.
#pragma once

#include <cstdint>

#include "engine/ops/checks.h"

namespace tessera {

// Which of the axes query and head of a block of attention weights are averaged away.
enum class AttentionMean : std::uint8_t {
  kNone,   // out [R, heads, N]
  kHeads,  // out [R, N]
  kRows,   // out [heads, N]
  kBoth,   // out [N]
};

// Attention weights of a few query rows over all keys, recovered from the log-sum-exp of the
// attention that ran: weight = exp(scale q.k + key_bias - log_sum). Without log_sum they are the
// softmax over these keys. Nothing of size heads x N x N is ever held.
struct RowAttentionArgs {
  static constexpr const char* kName = "row_attention";
  ConstTensorView q;         // [R, heads, head_dim] f32, R >= 1
  ConstTensorView keys;      // [N, kv_heads, head_dim] f32, N >= 1
  ConstTensorView key_bias;  // [N] f32 or empty
  ConstTensorView log_sum;   // [R, heads] f32 or empty
  float scale = 1.0f;
  AttentionMean mean = AttentionMean::kNone;
  TensorView out;  // f32, shape by `mean`

  Shape out_shape() const {
    const std::int64_t count = keys.shape[0];
    switch (mean) {
      case AttentionMean::kNone:
        return {q.shape[0], q.shape[1], count};
      case AttentionMean::kHeads:
        return {q.shape[0], count};
      case AttentionMean::kRows:
        return {q.shape[1], count};
      case AttentionMean::kBoth:
        return {count};
    }
    return {};
  }
  void check(const Backend& backend) const {
    expects_f32(backend, q, "row_attention: q is f32 on the device");
    expects_f32(backend, keys, "row_attention: keys are f32 on the device");
    expects_f32(backend, out, "row_attention: out is f32 on the device");
    expects_rank(q, 3, "row_attention: q is [R, heads, hd]");
    expects_rank(keys, 3, "row_attention: keys are [N, kv_heads, hd]");
    expects(q.shape[0] > 0 && keys.shape[0] > 0, "row_attention: there are rows and keys");
    expects(keys.shape[1] > 0 && q.shape[1] % keys.shape[1] == 0 && q.shape[2] == keys.shape[2],
            "row_attention: query heads share key heads evenly");
    if (!key_bias.empty()) {
      expects_vector(backend, key_bias, keys.shape[0], "row_attention: key_bias is [N]");
    }
    if (!log_sum.empty()) {
      expects_f32(backend, log_sum, "row_attention: log_sum is f32 on the device");
      expects(log_sum.shape == Shape({q.shape[0], q.shape[1]}),
              "row_attention: log_sum is [R, heads]");
    }
    expects(out.shape == out_shape(), "row_attention: out has the shape of mean");
  }
  void visit(OpVisitor& visitor) { visitor(q, keys, key_bias, log_sum, scale, mean, out); }
};

namespace ops {

inline void row_attention(Backend& backend, const RowAttentionArgs& args) { run(backend, args); }

}  // namespace ops
}  // namespace tessera
