// A chain that is judged on a device: it says what each row of a pass is about and takes the
// records that come back. Laws of drafts are known by the row of the last pass that they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/decoding/chain_base.h"
#include "engine/decoding/judged_sequence.h"

namespace tessera {

class JudgedChain final : public ChainBase<float, KeyedRandom>, public JudgedSequence {
 public:
  JudgedChain(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t window,
              const ChainParts<float, KeyedRandom>& parts, KeyedRandom random, std::size_t item)
      : ChainBase(law, grammar, window, parts,
                  parts.needs_laws() ? DraftLaws::kOfRows : DraftLaws::kForgotten, random, item),
        columns_(parts.drafter != nullptr ? parts.drafter->needs().kept_laws : 0) {
    kept_laws_.reserve(std::min(columns_, window));
    wishes_.reserve(window);
  }

  void describe(std::int32_t cond, std::int32_t uncond, JudgedBatch& batch) override;
  void take(std::span<const RowRecord> records, const JudgedCount& item) override;
  void remember(std::vector<KeptLaw>& laws) override;
  void wish(std::vector<JudgedDraw>& draws) override;
  void take_drawn(std::span<const DrawnId> drawn) override;

  void judge(RawRows<float>, std::size_t) override {
    expects(false, "a chain that a device judges has no rows on the host");
  }

 private:
  struct Records;

  std::int32_t first_ = 0;           // of the pass's rows
  std::size_t columns_;              // of laws that a memory keeps
  std::vector<KeptLaw> kept_laws_;   // of the last pass, one a column
  std::vector<std::size_t> wishes_;  // drafts, one a draw
};

}  // namespace tessera
