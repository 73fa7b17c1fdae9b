// The encoder of T5 (Raffel et al. 2020), versions 1.0 and 1.1: pre-norm blocks of RMSNorm without
// biases, attention in both directions whose scores are not scaled and get a learned number by the
// distance of key and query, and a rectified or a GELU-gated feed-forward part. Rows of padding
// change no other row, so texts are encoded without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"

namespace tessera {

struct TextEncoderConfig {
  std::int64_t layers = 0, width = 0;    // L, D
  std::int64_t heads = 0, head_dim = 0;  // H, hd; H hd need not be D
  std::int64_t ffn_width = 0;            // F
  std::int64_t vocabulary = 0;           // V
  std::int64_t buckets = 32;             // of distances, half of them for keys that follow
  std::int64_t max_distance = 128;       // from here on all are in the last bucket
  bool gated = true;                     // gelu(gate) * up, else relu
  float norm_eps = 1e-6f;

  std::int64_t inner_width() const { return heads * head_dim; }
};

// The bucket of a key `distance` rows after the query, negative before it, in [0, buckets).
std::int64_t distance_bucket(const TextEncoderConfig& config, std::int64_t distance);

struct TextEncoderLayer {
  Tensor attention_norm;  // [D]
  LinearWeight qkv;       // [3 H hd, D], rows q | k | v
  LinearWeight out;       // [D, H hd]
  Tensor ffn_norm;        // [D]
  LinearWeight up;        // [2 F, D], rows gate | up, or [F, D]
  LinearWeight down;      // [D, F]
};

struct TextEncoderWeights {
  Tensor table;                      // [V, D] f32 or bf16
  std::vector<float> distance_bias;  // [buckets, H]
  std::vector<TextEncoderLayer> layers;
  Tensor final_norm;  // [D]
};

class TextEncoder {
 public:
  TextEncoder(Backend& backend, const TextEncoderConfig& config, TextEncoderWeights weights);

  const TextEncoderConfig& config() const { return config_; }
  // [T, D] f32 on the device, after the final norm; T >= 1 ids, each in [0, V). Memory for it and
  // scratch_bytes() is taken while it runs. Error kMemory.
  Tensor encode(std::span<const std::int32_t> ids) const;

  static std::size_t weight_bytes(const TextEncoderConfig& config, const Backend& backend,
                                  DType storage);
  static std::size_t scratch_bytes(const TextEncoderConfig& config, std::int64_t rows);

 private:
  struct Pass;
  Tensor bias_of(std::int64_t rows) const;
  void attention_block(const TextEncoderLayer& layer, Pass& pass) const;
  void ffn_block(const TextEncoderLayer& layer, Pass& pass) const;

  Backend* backend_;
  TextEncoderConfig config_;
  TextEncoderWeights weights_;
};

}  // namespace tessera
