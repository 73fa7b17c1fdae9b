// The judgement of a pass on the device that ran it: chains on the one side, the backend's judge of
// rows on the other. Neither logits nor laws come to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/row_judge.h"
#include "engine/decoding/judged_chain.h"
#include "engine/decoding/sequence_parts.h"

namespace tessera {

class DeviceJudge {
 public:
  using Parts = SequenceParts<float, KeyedRandom>;

  // For passes of at most `items` items with `window` rows each. Null where the backend has no
  // judge, or where the parts need rows on the host: trees and rows side by side, drafters that
  // read rows, rules that a device does not know, and budgets, by which a draft's test depends on
  // the one before. Error kMemory.
  static std::unique_ptr<DeviceJudge> make(Backend& backend, const Parts& parts,
                                           const VocabularyGrammar& grammar, std::int64_t items,
                                           std::int64_t window);

  void begin();
  // The next chain of the pass; returns its number.
  std::size_t add(JudgedChain& chain, std::int64_t cond, std::int64_t uncond);
  // Judges the pass by the logits [any, codes] on the device; waits.
  void run(ConstTensorView logits);
  const JudgedCount& item(std::size_t number) const { return item_records_[number]; }
  std::span<const RowRecord> rows(std::size_t number) const;

 private:
  DeviceJudge(std::unique_ptr<RowJudge> judge, std::int64_t items, std::int64_t rows);

  std::unique_ptr<RowJudge> judge_;
  std::vector<JudgedItem> items_;
  std::vector<JudgedRow> rows_;
  std::span<const JudgedCount> item_records_;
  std::span<const RowRecord> row_records_;
};

}  // namespace tessera
