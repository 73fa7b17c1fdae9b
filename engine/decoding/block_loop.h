// The sibling of the stream loop for models that predict a whole block at once (next-block
// prediction, Ren et al. 2025, section 3): the last block that stands gives the laws of all tokens
// of the next one, each drawn by itself under the noise of its own position. One clip at a time.
#pragma once

#include <memory>

#include "engine/core/function_ref.h"
#include "engine/decoding/stream.h"
#include "engine/model/block_model.h"
#include "engine/sampling/randomness.h"

namespace tessera {

// After each pass; lives during the call only.
struct BlockPass {
  std::int64_t pass = 0;  // from 1
  const StreamResult& result;
  PassTimes times;
};

struct BlockLimits {
  std::int64_t prompt_tokens = 0;  // longest prompt
  DType kv = DType::kF32;
};

class BlockLoop {
 public:
  // Allocates cache, activations and sampling buffers; run() allocates no more between two passes.
  // The model must outlive the loop; a block divides each grid of the stream. Error kMemory.
  BlockLoop(const BlockModel& model, const VocabularyGrammar& grammar, const BlockLimits& limits);
  ~BlockLoop();

  static std::size_t cache_bytes(const BlockModelConfig& config, const VocabularyGrammar& grammar,
                                 const BlockLimits& limits);
  static std::size_t activation_bytes(const BlockModelConfig& config, const Backend& backend,
                                      const BlockLimits& limits);

  // stream.prompt: of config.conditions ids, from 0. stream.given: whole blocks, at least one where
  // the model does not begin by itself. The law is not guided. A pass is one block, or one token of
  // the first; on_pass may stop the run: it ends as kStopped then.
  StreamResult run(const Stream& stream, FunctionRef<Flow(const BlockPass&)> on_pass);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
