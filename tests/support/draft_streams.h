// What a draft model is asked for the streams of a test: the target's own prompt, grammar and
// settings, unless the test changes them.
#pragma once

#include <utility>

#include "engine/decoding/drafters/model_drafter.h"
#include "engine/decoding/text_loop.h"

namespace tessera {

inline DraftStreamItem draft_stream(const DecodeItem& item, const VocabularyGrammar& grammar) {
  DraftStreamItem out;
  out.branches.push_back({.ids = item.prompt});
  if (item.law.guided()) out.branches.push_back({.ids = item.unconditional});
  out.grammar = grammar;
  out.law = item.law;
  return out;
}

// Tells a drafter of an image in each slot, from the first one on.
inline void set_streams(ModelDrafter& drafter, const std::vector<DecodeItem>& items,
                        const VocabularyGrammar& grammar) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    drafter.set_stream(i, draft_stream(items[i], grammar));
  }
}

inline DraftStreamItem draft_stream(TextItem item, std::int64_t vocab) {
  DraftStreamItem out;
  out.branches.push_back({.rows = std::move(item.rows),
                          .places = std::move(item.places),
                          .next_place = item.next_place,
                          .cuts = item.cuts});
  out.grammar = VocabularyGrammar::line(static_cast<std::size_t>(vocab),
                                        static_cast<std::size_t>(item.most_tokens));
  out.law = item.law;
  out.stops = std::move(item.stops);
  out.in_parts = true;
  return out;
}

// For the texts of a loop of these limits.
inline DraftLimits draft_limits(const TextLimits& limits) {
  return {.items = limits.items,
          .prompt_rows = limits.prompt_rows,
          .tokens = limits.tokens,
          .window = limits.window,
          .chunk = limits.chunk,
          .guided = false,
          .kv = limits.kv};
}

}  // namespace tessera
