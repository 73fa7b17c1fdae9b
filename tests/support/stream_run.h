// Limits of loops for tests by the model that they are for, and streams with draft models.
#pragma once

#include "engine/decoding/run_streams.h"
#include "engine/model/stream_model.h"
#include "tests/support/draft_streams.h"

namespace tessera {

// Of images of a model, guided or not.
inline StreamLimits image_limits(const StreamModel& model, StreamLimits limits = {}) {
  limits.grammar = model.config().grammar();
  limits.guided = true;
  return limits;
}

// Of texts of so many tokens at most.
inline StreamLimits text_limits(const StreamModel& model, std::int64_t tokens,
                                StreamLimits limits = {}) {
  limits.grammar = VocabularyGrammar::line(static_cast<std::size_t>(model.config().vocab),
                                           static_cast<std::size_t>(tokens));
  return limits;
}

// A greedy text after a prompt that is embedded.
inline Stream greedy_text(Tensor rows, std::vector<std::array<std::int64_t, 3>> positions,
                          std::int64_t next_position, PromptCuts* cuts, std::int64_t max_tokens) {
  return {.prompt = {.ids = {},
                     .rows = std::make_shared<Tensor>(std::move(rows)),
                     .positions = std::move(positions),
                     .next_position = next_position,
                     .cuts = cuts},
          .dist = {.temperature = 0},
          .kind = StreamKind::kText,
          .max_tokens = max_tokens};
}

// A draft model (null = there is none) is notified of every stream: `drafts`, or the stream itself.
inline std::vector<StreamResult> run_drafted(StreamLoop& loop, std::span<const Stream> streams,
                                             ModelDrafter* drafter,
                                             std::span<const DraftStreamItem> drafts = {}) {
  return run_streams(
      loop, streams, [](const RunPass&) { return Flow::kContinue; },
      [&](std::size_t slot, std::size_t number) {
        if (drafter == nullptr) return;
        drafter->set_stream(slot, drafts.empty()
                                      ? draft_stream(streams[number], loop.limits().grammar)
                                      : drafts[number]);
      });
}

}  // namespace tessera
