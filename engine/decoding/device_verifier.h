// Verification on the device that ran the pass: streams on the one side, the backend's verify of
// rows on the other. Neither logits nor distributions come to the host, but a record a row.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/row_verifier.h"
#include "engine/decoding/device_batch.h"
#include "engine/decoding/verifier.h"

namespace tessera {

class DeviceTree;

class DeviceVerifier final : public Verifier {
 public:
  // For passes of at most `items` streams with `window` rows each. Null where the backend has no
  // verify, or where the parts need rows on the host: draft models elsewhere, drafters that read
  // rows and have no distributions kept, or do so for trees, rules that a device does not know.
  // Error kMemory.
  static std::unique_ptr<DeviceVerifier> make(Backend& backend, const LoopParts& parts,
                                              const VocabularyGrammar& grammar, std::int64_t items,
                                              std::int64_t window);

  std::unique_ptr<LoopSequence> make_sequence(const DistributionSettings& dist,
                                              const VocabularyGrammar& grammar, KeyedRandom random,
                                              std::size_t slot) override;
  // Waits where ids are drawn.
  void complete(std::span<LoopSequence* const> sequences) override;
  void begin() override;
  void add(const StreamRows& rows) override;
  void read(ModelPass& pass, std::size_t space) override;
  std::optional<BrokenLogit> settle(std::size_t number) override;

  // read() by the logits [any, codes] on the device.
  void read(ConstTensorView logits);
  // What came of stream `number`.
  const VerifiedCount& item(std::size_t number) const { return item_records_[number]; }
  std::span<const RowRecord> rows(std::size_t number) const;

 private:
  // What the device keeps of a slot's stream next to the sequence.
  struct Slot {
    DeviceTree* tree = nullptr;        // the sequence, if it is one
    std::int32_t first = 0;            // of the last pass's rows
    std::vector<KeptDistribution> kept_dists;    // of the last pass, one a column
    std::vector<std::size_t> awaited;  // drafts that are drawn, one a draw
  };

  DeviceVerifier(const LoopParts& parts, std::unique_ptr<RowVerifier> verifier, const VerifyLimits& limits,
                 std::int64_t window);
  void ask_for_drafts(LoopSequence& sequence);
  void add_edits_of(LoopSequence& sequence, std::size_t first, std::size_t position);
  void note_dists(const LoopSequence& sequence, std::size_t before);
  void record(std::size_t number, std::size_t before) const;
  const float* guest_dists() const {
    if (memory_ != nullptr) return memory_->kept();
    return guest_ == nullptr ? nullptr : guest_->dists();
  }

  LoopParts parts_;
  std::unique_ptr<RowVerifier> verifier_;
  const RowVerifier* guest_ = nullptr;  // a draft model's
  DistributionMemory* memory_ = nullptr;      // the verifier's, where a drafter draws from it
  std::size_t width_;                // of trees
  std::size_t columns_ = 0;          // of distributions that a drafter has kept, an item
  std::size_t window_;
  std::vector<Slot> slots_;
  std::vector<KeptDistribution> kept_dists_;
  DeviceBatch batch_;
  std::vector<LoopSequence*> streams_;  // of the pass
  // Its rows on the host, where somebody asks for log probabilities; null = they stay where they are.
  const ModelPass* fetched_ = nullptr;
  std::size_t space_ = 0;
  std::vector<VerifiedDraw> draws_;
  std::vector<std::size_t> first_draws_;  // of each sequence
  std::span<const VerifiedCount> item_records_;
  std::span<const RowRecord> row_records_;
};

}  // namespace tessera
