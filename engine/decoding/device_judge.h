// The judgement of a pass on the device that ran it: streams on the one side, the backend's judge
// of rows on the other. Neither logits nor laws come to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/row_judge.h"
#include "engine/decoding/judged_sequence.h"
#include "engine/decoding/sequence_parts.h"

namespace tessera {

class DeviceJudge {
 public:
  using Parts = SequenceParts<float, KeyedRandom>;

  // For passes of at most `items` items with `window` rows each. Null where the backend has no
  // judge, or where the parts need rows on the host: draft models elsewhere, drafters that read
  // rows and have no laws kept, or do so for trees, rules that a device does not know. Error
  // kMemory.
  static std::unique_ptr<DeviceJudge> make(Backend& backend, const Parts& parts,
                                           const VocabularyGrammar& grammar, std::int64_t items,
                                           std::int64_t window);

  // A stream that is judged here, as make_sequence() makes one for the host.
  struct Made {
    std::unique_ptr<PictureSequence<float, KeyedRandom>> sequence;
    JudgedSequence* judged = nullptr;  // the same
  };
  static Made make_sequence(const LawSettings& law, const VocabularyGrammar& grammar,
                            std::size_t rows, const Parts& parts, KeyedRandom random,
                            std::size_t item);

  // Completes the rows of the next pass, when the drafter is through; waits where ids are drawn.
  void grow(std::span<JudgedSequence* const> sequences);

  void begin();
  // The next stream of the pass; returns its number.
  std::size_t add(JudgedSequence& sequence, std::int64_t cond, std::int64_t uncond);
  // Judges the pass by the logits [any, codes] on the device; waits.
  void run(ConstTensorView logits);
  const JudgedCount& item(std::size_t number) const { return item_records_[number]; }
  std::span<const RowRecord> rows(std::size_t number) const;

 private:
  DeviceJudge(std::unique_ptr<RowJudge> judge, const JudgeLimits& limits);

  std::unique_ptr<RowJudge> judge_;
  const float* guest_laws() const {
    if (memory_ != nullptr) return memory_->kept();
    return guest_ == nullptr ? nullptr : guest_->laws();
  }

  const RowJudge* guest_ = nullptr;  // a draft model's
  LawMemory* memory_ = nullptr;      // the judge's, where a drafter draws from it
  std::size_t width_;                // of trees
  std::vector<KeptLaw> kept_laws_;
  JudgedBatch batch_;
  std::vector<JudgedDraw> draws_;
  std::vector<std::size_t> first_draws_;  // of each sequence
  std::span<const JudgedCount> item_records_;
  std::span<const RowRecord> row_records_;
};

}  // namespace tessera
