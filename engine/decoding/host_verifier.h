// Verification on the host: logits come to it, and every stream reads its own.
#pragma once

#include <vector>

#include "engine/decoding/verifier.h"

namespace tessera {

class HostVerifier final : public Verifier {
 public:
  // `window` rows of a stream in a pass at most.
  HostVerifier(const LoopParts& parts, std::int64_t items, std::int64_t window);

  std::unique_ptr<LoopSequence> make_sequence(const DistributionSettings& dist,
                                              const VocabularyGrammar& grammar, KeyedRandom random,
                                              std::size_t slot) override;
  void complete(std::span<LoopSequence* const>) override {}
  void begin() override { streams_.clear(); }
  void add(const StreamRows& rows) override { streams_.push_back(rows); }
  void read(ModelPass& pass, std::size_t space) override;
  std::optional<BrokenLogit> settle(std::size_t number) override;

 private:
  LoopParts parts_;
  std::size_t window_;
  const ModelPass* pass_ = nullptr;
  std::size_t space_ = 0;
  std::vector<StreamRows> streams_;
};

}  // namespace tessera
