// A prompt's pass through the layers in parts, with rows dropped between them: what a pruner inside
// the language model needs, without knowing cache or transformer.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/model/transformer.h"

namespace tessera {

// Where a prompt is when its layers pause.
struct PromptPause {
  std::int64_t layer = 0;              // the next one to run
  std::span<const std::int64_t> rows;  // of the prompt, those that are left, ascending
  ConstTensorView hidden;              // [rows left, D] the residual stream that enters the layer
  const KvCache* cache = nullptr;
  std::int64_t sequence = 0;
};

class PromptCuts {
 public:
  virtual ~PromptCuts() = default;
  // Layers before which it is asked, ascending, above 0 and below the model's number.
  virtual std::vector<std::int64_t> layers() const = 0;
  // Sees queries and activations of the layers as they run; may be null. Rows are those left.
  virtual LayerObserver* observer() { return nullptr; }
  // Of the rows that are left, those that stay: places in pause.rows, ascending. The last row of
  // the prompt stays.
  virtual std::vector<std::int64_t> keep(const PromptPause& pause) = 0;
};

// Runs a prompt [T, D] of an empty sequence and writes the last row's hidden state after the final
// norm to last [1, D]. Rows keep their places whatever is dropped. The sequence must have room.
void run_prompt_in_parts(const Transformer& transformer, std::int64_t sequence,
                         ConstTensorView rows, std::span<const std::array<std::int64_t, 3>> places,
                         PromptCuts& cuts, KvCache& cache, Arena& arena, TensorView last);

}  // namespace tessera
