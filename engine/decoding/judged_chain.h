// A chain that is judged on a device: it says what each row of a pass is about and takes the
// records that come back. Laws of drafts are known by the row of the last pass that they are.
#pragma once

#include <cstdint>
#include <span>

#include "engine/decoding/chain_base.h"
#include "engine/decoding/judged_sequence.h"

namespace tessera {

class JudgedChain final : public ChainBase<float, KeyedRandom>, public JudgedSequence {
 public:
  JudgedChain(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t window,
              const ChainParts<float, KeyedRandom>& parts, KeyedRandom random, std::size_t item)
      : ChainBase(law, grammar, window, parts,
                  parts.needs_laws() ? DraftLaws::kOfRows : DraftLaws::kForgotten, random, item) {}

  void describe(std::int32_t cond, std::int32_t uncond, JudgedBatch& batch) override;
  void take(std::span<const RowRecord> records, const JudgedCount& item) override;

  void judge(RawRows<float>, std::size_t) override {
    expects(false, "a chain that a device judges has no rows on the host");
  }

 private:
  struct Records;

  std::int32_t first_ = 0;  // of the pass's rows
};

}  // namespace tessera
