#include "engine/model/cross_context.h"
#include "engine/core/index.h"

namespace tessera {

std::size_t CrossWeights::bytes() const {
  return norm.bytes() + q.packed.bytes() + kv.packed.bytes() + out.packed.bytes() + q_norm.bytes() +
         k_norm.bytes();
}

CrossContext::CrossContext(Backend& backend, const ModelConfig& config, std::int64_t rows,
                           DType storage)
    : rows_(rows) {
  expects(config.context_width > 0, "the model attends to other rows");
  expects(rows > 0, "there are rows to attend to");
  for (std::int64_t i = 0; i < 2 * config.layers; ++i) {
    parts_.push_back(backend.allocate(storage, Shape{rows, config.kv_heads, config.head_dim}));
  }
}

std::size_t CrossContext::bytes() const {
  std::size_t sum = 0;
  for (const Tensor& part : parts_) sum += part.bytes();
  return sum;
}

std::size_t CrossContext::bytes(const ModelConfig& config, std::int64_t rows, DType storage) {
  return to_size(2 * config.layers * rows * config.kv_width()) * dtype_size(storage);
}

}  // namespace tessera
