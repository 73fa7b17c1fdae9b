#include "engine/decoding/host_verifier.h"
#include "engine/core/index.h"

namespace tessera {

HostVerifier::HostVerifier(const LoopParts& parts, std::int64_t items, std::int64_t window)
    : parts_(parts), window_(to_size(window)) {
  streams_.reserve(to_size(items));
}

std::unique_ptr<LoopSequence> HostVerifier::make_sequence(const DistributionSettings& dist,
                                                          const VocabularyGrammar& grammar,
                                                          KeyedRandom random, std::size_t slot) {
  return tessera::make_sequence(dist, grammar, window_, parts_, random, slot);
}

void HostVerifier::read(ModelPass& pass, std::size_t space) {
  pass.fetch_logits(space);
  pass_ = &pass;
  space_ = space;
}

// A broken row fails the stream if it is the first one. Further ones stand after drafts that may be
// wrong: they and what follows are left out, where the shape bears that.
std::optional<BrokenLogit> HostVerifier::settle(std::size_t number) {
  const StreamRows& stream = streams_[number];
  const bool guided = stream.sequence->dist().guided();
  const auto raw = [&](std::size_t row) {
    const auto cond = stream.first + to_index(row);
    const auto uncond = cond + to_index(stream.rows);
    return RawRow<float>{pass_->logits(cond, space_),
                         guided ? pass_->logits(uncond, space_) : std::span<const float>()};
  };
  std::size_t sound = 0;
  for (; sound < stream.rows; ++sound) {
    const RawRow<float> row = raw(sound);
    const bool bad_cond = first_unsound(row.cond).has_value();
    if (!bad_cond && !first_unsound(row.uncond)) continue;
    if (sound > 0 && stream.sequence->bears_broken_rows()) break;
    const std::span<const float> branch = bad_cond ? row.cond : row.uncond;
    const std::int64_t id = *first_unsound(branch);
    return BrokenLogit{sound, id, nth(branch, id)};
  }
  const std::size_t before = stream.sequence->tokens().size();
  stream.sequence->verify(raw, sound);
  record_committed(*stream.sequence, before, raw);
  return std::nullopt;
}

}  // namespace tessera
