// A decoder-only transformer as plain data: pre-norm blocks of RMSNorm, rotary attention with
// grouped keys and values, and SwiGLU, with biases where a configuration asks for them. Llama and
// everything that follows it; with norms of queries and keys, attention to rows of another model in
// every layer, and places added before every layer, if asked for (Cosmos); with GELU, norms of what
// a part gives, scaled rows and windows in some layers (Gemma 3).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/core/index.h"
#include "engine/nn/rope_table.h"

namespace tessera {

// What the gate of the feed-forward part goes through.
enum class GateKind : std::uint8_t { kSilu, kGeluTanh };

struct ModelConfig {
  std::int64_t layers = 0;     // L
  std::int64_t width = 0;      // D
  std::int64_t heads = 0;      // H
  std::int64_t kv_heads = 0;   // divides H
  std::int64_t head_dim = 0;   // hd, even
  std::int64_t ffn_width = 0;  // F
  float norm_eps = 1e-6f;
  bool qkv_bias = false;
  bool out_bias = false;  // of attention's output
  bool ffn_bias = false;  // of all three matrices
  bool qk_norm = false;  // RMSNorm of each head's query and key, before they turn
  float qk_norm_eps = 0.0f;  // of that; 0 = norm_eps
  // LayerNorm of each head's query and key with the head's own numbers, before they turn, eps 1e-5.
  bool head_norms = false;
  bool input_norms = true;  // RMSNorm of what attention and the feed-forward part read
  // Attention to rows of this width in every layer, after that to its own; 0 = none. Its heads are
  // those above, its queries and keys are normed alike and do not turn.
  std::int64_t context_width = 0;
  GateKind gate = GateKind::kSilu;
  bool result_norms = false;  // RMSNorm of what attention and the feed-forward part add
  float row_scale = 1.0f;     // of rows of the text table
  double query_scale = 0.0;   // of attention's logits; 0 = 1 / sqrt(hd)
  // Of layers that `windowed` names, by number: a row sees the last `window` rows, itself included,
  // and turns by `window_rope`. Empty = no layer has a window.
  std::vector<bool> windowed;
  std::int64_t window = 0;
  RopeSpec window_rope;
  bool added_places = false;  // sine and cosine of the place are added before every layer; 3-D rope
  RopeSpec rope;

  bool is_windowed(std::int64_t layer) const { return !windowed.empty() && nth(windowed, layer); }
  float attention_scale() const {
    return query_scale > 0 ? to_float(query_scale) : 1.0f / std::sqrt(to_float(head_dim));
  }
  // Of cosines and sines, f32.
  std::int64_t rope_numbers() const {
    return (rope.rows() + (windowed.empty() ? 0 : window_rope.rows())) * head_dim;
  }
  float head_eps() const { return qk_norm_eps > 0 ? qk_norm_eps : norm_eps; }
  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
};

}  // namespace tessera
