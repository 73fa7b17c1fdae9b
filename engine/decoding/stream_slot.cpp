#include "engine/decoding/stream_slot.h"

#include <algorithm>
#include <string>

#include "engine/decoding/broken_logits.h"

namespace tessera {

namespace {

void fail(StreamSlot& slot, std::int64_t id, float logit) {
  const bool image = slot.stream.kind == StreamKind::kImage;
  ++slot.result.passes;
  slot.result.status = StreamStatus::kFailed;
  slot.result.error = unsound_logit((image ? "image token " : "text token ") +
                                        std::to_string(slot.result.tokens.size()) +
                                        (image ? ", code " : ", id ") + std::to_string(id),
                                    logit);
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

void verify_on_host(StreamSlot& slot,
                    FunctionRef<std::span<const float>(std::int64_t row)> logits) {
  const bool guided = slot.stream.branches() == 2;
  const auto raw = [&](std::size_t row) {
    const auto cond = slot.first_row + static_cast<std::int64_t>(row);
    const auto uncond = cond + static_cast<std::int64_t>(slot.window_rows);
    return RawRow<float>{logits(cond), guided ? logits(uncond) : std::span<const float>()};
  };
  std::size_t sound = 0;
  for (; sound < slot.window_rows; ++sound) {
    const RawRow<float> row = raw(sound);
    const bool bad_cond = first_unsound(row.cond).has_value();
    if (!bad_cond && !first_unsound(row.uncond)) continue;
    if (sound > 0) break;
    const std::span<const float> branch = bad_cond ? row.cond : row.uncond;
    const std::int64_t id = *first_unsound(branch);
    return fail(slot, id, branch[static_cast<std::size_t>(id)]);
  }
  slot.sequence->judge(raw, sound);
  take_tokens(slot);
}

void verify_by_records(StreamSlot& slot, std::span<const RowRecord> rows, const JudgedCount& item) {
  if (item.sound == 0) return fail(slot, rows[0].unsound, rows[0].unsound_logit);
  slot.judged->take(rows, item);
  take_tokens(slot);
}

}  // namespace tessera
