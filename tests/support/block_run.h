// Models of blocks in tests: spans of ids through their layers, and streams through a loop.
#pragma once

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "engine/decoding/run_streams.h"
#include "engine/model/block_model.h"

namespace tessera {

inline KvCacheShape block_cache_shape(const BlockModelConfig& config, std::int64_t capacity) {
  return {.layers = config.layers,
          .kv_heads = config.heads,
          .head_dim = config.head_dim(),
          .capacity = capacity,
          .sequences = 1};
}

// Ids of the model's own table, in spans whose rows see one another, after what sequence 0 has
// cached; hidden rows [M, D].
inline void run_spans(const BlockModel& model, std::span<const std::int32_t> table_ids,
                      std::span<const std::int64_t> spans, KvCache& cache, Arena& arena,
                      TensorView hidden) {
  const BlockModelConfig& config = model.config();
  const auto rows = static_cast<std::int64_t>(table_ids.size());
  Tensor embedded = model.backend().allocate(DType::kF32, Shape{rows, config.width});
  // As ids of a stream or of a prompt, whichever it is.
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int32_t id = table_ids[static_cast<std::size_t>(i)];
    const TensorView row{DType::kF32, Shape{1, config.width},
                         embedded.view().f32() + i * config.width, model.backend().device()};
    const auto code = static_cast<std::int64_t>(id) - config.first_code;
    const auto condition = static_cast<std::int64_t>(id) - config.first_condition;
    if (config.conditions > 0 && condition >= 0 && condition < config.conditions) {
      const auto local = static_cast<std::int32_t>(condition);
      model.embed_prompt({&local, 1}, row);
    } else {
      const bool of_code = code >= 0 && code < config.codes;
      const auto local = static_cast<std::int32_t>(of_code ? code : config.codes + id);
      model.embed_tokens({&local, 1}, arena, row);
    }
  }
  std::vector<std::int32_t> sequences(table_ids.size(), 0);
  std::vector<std::int64_t> positions(table_ids.size());
  std::iota(positions.begin(), positions.end(), cache.length(0));
  std::vector<RowPath> paths;
  for (const std::int64_t span : spans) paths.push_back({.rows = span});
  model.forward(
      {.rows = embedded.view(), .sequences = sequences, .positions = positions, .paths = paths},
      cache, arena, hidden, {});
}

inline LoopParts block_parts(const BlockModel& model) {
  LoopParts out;
  out.blocks = model.reading();
  return out;
}

// One stream through a loop of its own.
inline StreamResult run_blocks(const BlockModel& model, const VocabularyGrammar& grammar,
                               const Stream& item, FunctionRef<Flow(const RunPass&)> on_pass) {
  const StreamLimits limits = block_limits(
      model.config(), grammar, {.prompt_rows = std::max<std::int64_t>(1, item.prompt.length())});
  StreamLoop loop(model, limits, block_parts(model));
  return std::move(run_streams(loop, {&item, 1}, on_pass)[0]);
}

}  // namespace tessera
