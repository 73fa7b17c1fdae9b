#include "engine/decoding/stream_slot.h"

#include <algorithm>
#include <string>

#include "engine/decoding/broken_logits.h"

namespace tessera {

namespace {

void fail(StreamSlot& slot, const BrokenLogit& broken) {
  const bool image = slot.stream.kind == StreamKind::kImage;
  ++slot.result.passes;
  slot.result.status = StreamStatus::kFailed;
  slot.result.error = unsound_logit((image ? "image token " : "text token ") +
                                        std::to_string(slot.result.tokens.size() + broken.row) +
                                        (image ? ", code " : ", id ") + std::to_string(broken.id),
                                    broken.value);
}

// What was committed in a pass.
void take_tokens(StreamSlot& slot) {
  StreamResult& result = slot.result;
  const std::vector<std::int32_t>& tokens = slot.sequence->tokens();
  result.tokens.insert(result.tokens.end(),
                       tokens.begin() + static_cast<std::ptrdiff_t>(result.tokens.size()),
                       tokens.end());
  result.passes = slot.sequence->meters().passes;
  if (!slot.sequence->done()) return;
  const std::vector<std::int32_t>& stops = slot.stream.stops;
  result.status = StreamStatus::kDone;
  result.stopped =
      !tokens.empty() && std::find(stops.begin(), stops.end(), tokens.back()) != stops.end();
}

}  // namespace

void take_verdict(StreamSlot& slot, const std::optional<BrokenLogit>& broken) {
  broken ? fail(slot, *broken) : take_tokens(slot);
}

}  // namespace tessera
