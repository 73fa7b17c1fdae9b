#include "engine/decoding/verifier.h"

#include "engine/decoding/device_verifier.h"
#include "engine/decoding/host_verifier.h"

namespace tessera {

std::unique_ptr<Verifier> make_verifier(Backend& backend, const LoopParts& parts,
                                        const VocabularyGrammar& grammar, std::int64_t items,
                                        std::int64_t window) {
  if (auto on_device = DeviceVerifier::make(backend, parts, grammar, items, window)) {
    return on_device;
  }
  return std::make_unique<HostVerifier>(parts, items, window);
}

}  // namespace tessera
