#include "engine/decoding/verifier.h"

#include "engine/core/index.h"
#include "engine/decoding/device_verifier.h"
#include "engine/decoding/host_verifier.h"

namespace tessera {

// Each token by the row before it: those rows stay cached. The first pass has one row a token.
void record_committed(const LoopSequence& sequence, std::size_t before, RawRows<float> rows) {
  LogprobRecord* const record = sequence.record();
  if (record == nullptr) return;
  const std::span<const std::int32_t> kept = sequence.kept_rows();
  for (std::size_t i = before; i < sequence.tokens().size(); ++i) {
    const std::size_t place = i - before;
    const RawRow<float> row = rows(kept.empty() ? place : to_size(kept[place]));
    record->tokens.push_back(token_logprobs(row.cond, row.uncond, sequence.dist().guidance,
                                            sequence.tokens()[i], record->top));
  }
}

std::unique_ptr<Verifier> make_verifier(Backend& backend, const LoopParts& parts,
                                        const VocabularyGrammar& grammar, std::int64_t items,
                                        std::int64_t window) {
  if (auto on_device = DeviceVerifier::make(backend, parts, grammar, items, window)) {
    return on_device;
  }
  return std::make_unique<HostVerifier>(parts, items, window);
}

}  // namespace tessera
