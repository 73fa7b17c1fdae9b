// One slot of a loop of streams: the stream that holds it, and where it is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/decoding/prompt_feed.h"
#include "engine/decoding/stream.h"
#include "engine/decoding/verifier.h"

namespace tessera {

struct StreamSlot {
  Stream stream;
  std::unique_ptr<LoopSequence> sequence;  // null = the slot is free
  // Of each branch: rows of its prompt, which are given up when they were read, and the position
  // after them.
  std::array<std::int64_t, kMaxBranches> prompt_rows = {}, first_position = {};
  StreamResult result;
  PromptFeed feed;
  std::size_t emitted = 0;  // tokens that the listener knows of
  // The part that is written: its grammar, the space of that, and the tokens and figures of those
  // before it. `next` is the grammar that follows the part, which is over.
  std::size_t grammar = 0, space = 0, part_begin = 0;
  std::int64_t earlier_passes = 0;
  DecodeMeters earlier;
  std::optional<std::size_t> next;
  std::vector<std::int32_t> ends;  // ids that end the part
  std::int64_t freed_at = 0;       // when it was given up, for slots that are free
  bool slid = false;               // what it began with was cached but for the last given token
  // Of the pass at hand.
  bool in_pass = false;         // it has logits in it
  bool decodes = false;         // they are of its window
  std::size_t verified = 0;     // its number among the streams that are verified
  std::size_t window_rows = 0;  // logits rows of a branch
  std::int64_t first_row = 0;   // of its space's logits
  std::int64_t pass_row = 0;    // of the pass, where it decodes
  std::int64_t cached = 0;      // rows of the stream in the cache before it

  bool taken() const { return sequence != nullptr; }
  bool running() const { return taken() && result.status == StreamStatus::kRunning; }
  bool writing() const { return running() && feed.done(); }
  // No token was drawn yet of the part that is written.
  bool first_pass() const {
    return grammar_parts() > 1 ? result.tokens.size() == part_begin
                               : result.tokens.size() == stream.given.size();
  }
  std::size_t grammar_parts() const { return result.parts.size(); }
  const DistributionSettings& dist() const {
    return stream.grammars.empty() ? stream.dist : stream.grammars[grammar].dist;
  }
  // Of all parts. The sequence gives up its own.
  DecodeMeters take_meters();
};

// What the outcome of a pass made of its stream, which has settled it; or fails it by what is
// broken.
void take_verdict(StreamSlot& slot, const std::optional<BrokenLogit>& broken);

}  // namespace tessera
