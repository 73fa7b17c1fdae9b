#include "engine/decoding/stream_limits.h"

#include <algorithm>

#include "engine/core/index.h"
#include "engine/decoding/sequence_parts.h"
#include "engine/nn/pass_views.h"
#include "engine/sampling/randomness.h"

namespace tessera {

std::int64_t StreamLimits::stream_rows() const {
  return shape == PassShape::kBlock ? blocks.rows_of(tokens() - blocks.block) : tokens() - 1;
}

// A stream of blocks begins with a token that nobody gives.
std::int64_t StreamLimits::given_rows() const {
  return shape == PassShape::kBlock ? blocks.rows_of(given_tokens) : given_tokens;
}

// Prompts of a model of blocks are read at once, and so are blocks.
std::int64_t StreamLimits::min_prompt_rows() const {
  const std::int64_t least = std::max(branches(), budget / 4);
  return shape == PassShape::kBlock ? std::max({least, prompt_rows, blocks.block}) : least;
}

std::int64_t StreamLimits::pass_rows() const {
  const std::int64_t of_slot = branches() * window, decode = items * of_slot;
  // Prompts and given tokens of all slots together.
  const std::int64_t waiting = items * branches() * std::max(prompt_rows, given_rows());
  const std::int64_t least = std::min(min_prompt_rows(), waiting);
  return std::max(
      {decode, std::min(std::max(budget, branches()), waiting), (items - 1) * of_slot + least});
}

std::int64_t StreamLimits::spare_cache_rows() const {
  return shape == PassShape::kLine ? 0 : window;
}

ModelPass::Limits StreamLimits::pass_limits() const {
  const std::int64_t rows = pass_rows(), decode = items * branches() * window;
  const std::int64_t token_rows = given_rows() > 0 ? rows : decode;
  return {.sequences = items * branches(),
          .capacity = prompt_rows + stream_rows(),
          .logit_rows = decode,
          .token_rows = token_rows,
          .prompt_rows = std::max<std::int64_t>(1, rows - token_rows),
          .mixed = true,
          .guest_rows = prompt_rows,
          .branch_rows = spare_cache_rows(),
          .branch_seen = shape == PassShape::kRows ? tokens() : window,
          .kv = kv};
}

StreamLimits block_limits(const BlockModelConfig& model, const VocabularyGrammar& grammar,
                          StreamLimits limits) {
  limits.grammar = grammar;
  limits.shape = PassShape::kBlock;
  limits.blocks = model.reading();
  limits.window = model.block;
  limits.given_tokens = limits.tokens() - model.block;
  return limits;
}

std::size_t stream_activation_bytes(const StreamModelShape& model, const Backend& backend,
                                    const StreamLimits& limits) {
  const std::size_t vocabulary = limits.grammar.vocabulary();
  const auto window = to_size(limits.window);
  const std::size_t sequence =
      limits.shape == PassShape::kTree
          ? TreeSequence<float, KeyedRandom>::buffer_bytes(vocabulary, window)
          : ChainSequence<float, KeyedRandom>::buffer_bytes(vocabulary, window, limits.dists);
  const ModelPass::Limits pass = limits.pass_limits();
  const std::size_t scratch =
      model.scratch_bytes(std::max(ModelPass::max_rows(pass), pass.guest_rows));
  const std::size_t mixed =
      limits.branches() == 3 ? matrix_bytes(limits.window, model.logit_ids) : 0;
  return ModelPass::buffer_bytes(model.transformer, model.logit_ids, scratch, backend, pass) + mixed +
         to_size(limits.items) * sequence;
}

std::size_t stream_cache_bytes(const StreamModelShape& model, const Backend& backend,
                               const StreamLimits& limits) {
  return ModelPass::cache_bytes(model.transformer, backend, limits.pass_limits());
}

std::size_t stream_verifier_bytes(const StreamModelShape& model, const StreamLimits& limits) {
  return VerifyLimits{model.logit_ids, limits.items * limits.window, limits.items}.bytes(
      limits.dists);
}

}  // namespace tessera
