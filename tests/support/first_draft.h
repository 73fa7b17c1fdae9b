// What a drafter drafts first after codes that were written, for tests of a drafter alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/made_up_methods.h"

namespace tessera {

// The method's drafter on a line of `codes` ids; nothing where it has no draft.
inline std::optional<std::int32_t> first_draft(const DecodeMethod& method,
                                               const std::vector<std::int32_t>& committed,
                                               std::size_t codes = 8) {
  const VocabularyGrammar grammar = VocabularyGrammar::line(codes, committed.size() + 4);
  const OwnedParts<float, KeyedRandom> owned(method, aids_for(grammar));
  Drafter<float, KeyedRandom>& drafter = *owned.parts().drafter;
  DraftWindow<float> window(1, grammar, DraftDistributions::kHere);
  KeyedRandom random(1, 0);
  std::vector<DraftJob<float, KeyedRandom>> jobs = {
      {.committed = committed, .want = 1, .window = &window, .random = &random}};
  drafter.start(1);
  drafter.extend(jobs);
  if (window.size() == 0) return std::nullopt;
  return window.token(0);
}

}  // namespace tessera
