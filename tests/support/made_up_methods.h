// Methods put together from parts by name, and everything that any part asks for besides settings:
// a codebook on an arc, a table of drafts.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/decoding/decode_settings.h"
#include "engine/decoding/method_parts.h"

namespace tessera {

inline DecodeAids aids_for(const VocabularyGrammar& grammar) {
  DecodeAids aids;
  aids.grammar = grammar;
  const std::size_t vocabulary = grammar.codes;
  std::vector<float> codebook;
  for (std::size_t id = 0; id < vocabulary; ++id) {
    codebook.push_back(std::cos(0.3f * static_cast<float>(id)));
    codebook.push_back(std::sin(0.3f * static_cast<float>(id)));
  }
  const auto codes = static_cast<std::int64_t>(vocabulary);
  aids.neighbours = std::make_shared<CodeNeighbours>(codebook, codes, codes - 1);
  aids.groups = std::make_shared<CodeGroups>(*aids.neighbours, 2);
  DraftTable drafts;
  drafts.codes = codes;
  for (std::size_t left = 0; left < vocabulary; ++left) {
    drafts.left.push_back(static_cast<std::int16_t>((left + 1) % vocabulary));
    drafts.above.push_back(static_cast<std::int16_t>((2 * left + 1) % vocabulary));
    for (std::size_t above = 0; above < vocabulary; ++above) {
      const bool seen = (left + above) % 3 != 0;
      drafts.left_above.push_back(seen ? static_cast<std::int16_t>((left + 2 * above) % vocabulary)
                                        : std::int16_t{-1});
    }
  }
  aids.drafts = std::make_shared<const DraftTable>(std::move(drafts));
  return aids;
}

// Rows without end tokens; drafters do not ask how many.
inline DecodeAids aids_for(std::size_t vocabulary, std::size_t columns = 2) {
  return aids_for(VocabularyGrammar{.codes = vocabulary, .columns = columns});
}

// Rules that bend a distribution, at the point where they do not: every part's, as its rows say.
inline void set_lossless(DecodeMethod& method, double decay = 0.7) {
  for (const SettingGroup& group : part_groups()) {
    for (const Setting* row : group.rows) {
      if (row->lossless) method.set(*row, *row->lossless);
    }
  }
  method.set(setting::kCoolDecay, decay);
}

inline DecodeMethod combine(std::string_view drafter, std::string_view redraft_policy, std::string_view rule,
                            std::int64_t window) {
  DecodeMethod method;
  method.name = "custom";
  method.drafter = drafter;
  method.redraft_policy = redraft_policy;
  method.rule = rule;
  method.window = window;
  return method;
}

}  // namespace tessera
