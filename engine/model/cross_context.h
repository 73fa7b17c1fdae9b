// What the rows of a sequence attend to next to themselves: rows of another model, for instance a
// text encoder's, as keys and values of every layer, computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/index.h"
#include "engine/core/tensor.h"
#include "engine/model/model_config.h"

namespace tessera {

// One layer's. C is config.context_width.
struct CrossWeights {
  Tensor norm;            // [D]
  LinearWeight q;         // [H hd, D]
  LinearWeight kv;        // [2 KV hd, C], rows k | v
  LinearWeight out;       // [D, H hd]
  Tensor q_norm, k_norm;  // [hd], with config.qk_norm

  std::size_t bytes() const;
};

class CrossContext {
 public:
  // Room for the keys and values of `rows` rows, f32 or bf16. Error kMemory.
  CrossContext(Backend& backend, const ModelConfig& config, std::int64_t rows, DType storage);

  std::int64_t rows() const { return rows_; }
  ConstTensorView keys(std::int64_t layer) const { return part(2 * layer).view(); }
  ConstTensorView values(std::int64_t layer) const { return part(2 * layer + 1).view(); }
  TensorView keys_out(std::int64_t layer) { return parts_[index(2 * layer)].view(); }
  TensorView values_out(std::int64_t layer) { return parts_[index(2 * layer + 1)].view(); }
  std::size_t bytes() const;
  static std::size_t bytes(const ModelConfig& config, std::int64_t rows, DType storage);

 private:
  static std::size_t index(std::int64_t part) { return to_size(part); }
  const Tensor& part(std::int64_t number) const { return parts_[index(number)]; }

  std::int64_t rows_;
  std::vector<Tensor> parts_;  // of each layer keys, then values: [rows, KV, hd]
};

}  // namespace tessera
