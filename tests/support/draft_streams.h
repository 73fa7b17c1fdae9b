// What a draft model is asked for the streams of a test: the target's own prompt, grammar and
// settings, unless the test changes them.
#pragma once

#include "engine/decoding/drafters/model_drafter.h"
#include "engine/decoding/stream_loop.h"

namespace tessera {

// `grammar` is that of streams that bring none.
inline DraftStreamItem draft_stream(const Stream& stream, const VocabularyGrammar& grammar) {
  DraftStreamItem out;
  out.branches.push_back(stream.prompt);
  if (stream.dist.guided()) out.branches.push_back(stream.unconditional);
  out.grammar = stream.grammar.value_or(grammar);
  if (stream.max_tokens > 0) out.grammar.columns = static_cast<std::size_t>(stream.max_tokens);
  out.dist = stream.dist;
  out.stops = stream.stops;
  out.in_parts = stream.kind == StreamKind::kText;
  return out;
}

// For a loop of these limits.
inline DraftLimits draft_limits(const StreamLimits& limits) {
  return {.items = limits.items,
          .prompt_rows = limits.prompt_rows,
          .tokens = limits.tokens(),
          .window = limits.window,
          .chunk = limits.budget,
          .guided = limits.guided,
          .trees = limits.shape == PassShape::kTree,
          .kv = limits.kv};
}

}  // namespace tessera
