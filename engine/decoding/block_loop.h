// The sibling of the decode loop for models that predict a whole block at once (next-block
// prediction, Ren et al. 2025, section 3): the last block that stands gives the laws of all tokens
// of the next one, each drawn by itself under the noise of its own position. One clip at a time.
#pragma once

#include <memory>

#include "engine/core/function_ref.h"
#include "engine/decoding/decode_loop.h"
#include "engine/model/block_model.h"

namespace tessera {

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

  // item.prompt: of config.conditions ids, from 0. item.given: whole blocks, at least one where the
  // model does not begin by itself. The law is not guided. As DecodeLoop::run otherwise: a pass is
  // one block, or one token of the first.
  DecodeResult run(const DecodeItem& item, FunctionRef<Flow(const PassEvent&)> on_pass);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
