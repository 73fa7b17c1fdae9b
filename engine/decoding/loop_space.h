// One token space of a loop: the head that gives its tokens, and how they are drafted and verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/decoding/stream_limits.h"
#include "engine/decoding/stream_slot.h"
#include "engine/decoding/verifier.h"

namespace tessera {

class LoopSpace {
 public:
  // Space `number` of a pass, for parts of streams that are as long as `grammar` at most. Error
  // kMemory.
  LoopSpace(std::size_t number, const VocabularyGrammar& grammar, const StreamLimits& limits);

  // Another method; no slot is taken.
  void use(Backend& backend, const LoopParts& parts, const StreamLimits& limits);
  const LoopParts& parts() const { return parts_; }
  Verifier& verifier() { return *verifier_; }
  const VocabularyGrammar& grammar() const { return grammar_; }
  bool drafts() const { return parts_.drafter != nullptr || parts_.tree.source != nullptr; }
  // A slot goes to another stream, or to another part of one.
  void renew(std::size_t slot);

  // Fills the windows of the slots of this space that decode, or grows their trees, with passes of
  // `most` rows at most.
  void draft(std::span<StreamSlot> slots, std::size_t most);

  // The pass at hand: logits rows of the space that are taken.
  void begin() { rows_ = 0; }
  std::int64_t take_rows(std::int64_t rows) {
    rows_ += rows;
    return rows_ - rows;
  }
  // Reads the logits of the slots of this space that have some.
  void read_logits(std::span<StreamSlot> slots, ModelPass& pass);

 private:
  void grow_trees();

  std::size_t number_;
  VocabularyGrammar grammar_;
  LoopParts parts_;
  std::unique_ptr<Verifier> verifier_;  // never null after use()
  std::vector<DraftJob<float, KeyedRandom>> jobs_;
  std::vector<TreeJob<float>> tree_jobs_;
  std::vector<LoopSequence*> drafted_;  // of the jobs
  std::int64_t rows_ = 0;
};

}  // namespace tessera
