#include "engine/decoding/stream_slot.h"

#include <algorithm>
#include <string>

#include "engine/core/index.h"
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

bool among(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The grammar after the part that is over; empty = the stream is.
std::optional<std::size_t> grammar_after(const StreamSlot& slot, std::size_t most) {
  if (slot.stream.grammars.empty() || slot.result.tokens.size() >= most) return std::nullopt;
  const StreamGrammar& own = slot.stream.grammars[slot.grammar];
  const std::int32_t last = slot.result.tokens.back();
  if (among(own.stops, last)) return std::nullopt;
  for (const StreamGrammar::Switch& other : own.switches) {
    if (other.id == last) return other.to;
  }
  return own.then;
}

// What was committed in a pass.
void take_tokens(StreamSlot& slot) {
  StreamResult& result = slot.result;
  const std::vector<std::int32_t>& tokens = slot.sequence->tokens();
  const auto known = to_index(result.tokens.size() - slot.part_begin);
  result.tokens.insert(result.tokens.end(), tokens.begin() + known, tokens.end());
  result.passes = slot.earlier_passes + slot.sequence->meters().passes;
  if (!slot.sequence->done()) return;
  slot.next = grammar_after(slot, to_size(slot.stream.max_tokens));
  if (slot.next) return;
  const std::vector<std::int32_t>& stops =
      slot.stream.grammars.empty() ? slot.stream.stops : slot.stream.grammars[slot.grammar].stops;
  result.status = StreamStatus::kDone;
  result.stopped = !tokens.empty() && among(stops, tokens.back());
}

}  // namespace

DecodeMeters StreamSlot::take_meters() {
  if (grammar_parts() <= 1) return sequence->take_meters();
  earlier.add(sequence->meters());
  return std::move(earlier);
}

void take_verdict(StreamSlot& slot, const std::optional<BrokenLogit>& broken) {
  broken ? fail(slot, *broken) : take_tokens(slot);
}

}  // namespace tessera
