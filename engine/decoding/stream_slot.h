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
  // behind them.
  std::array<std::int64_t, 2> prompt_rows = {}, first_position = {};
  StreamResult result;
  PromptFeed feed;
  std::size_t emitted = 0;  // tokens that the listener knows of
  bool slid = false;        // what it began with was cached but for the last given token
  // Of the pass at hand.
  bool in_pass = false;         // it has logits in it
  std::size_t verified = 0;     // its number among the streams that are verified
  std::size_t window_rows = 0;  // logits rows of a branch
  std::int64_t first_row = 0;   // of the logits
  std::int64_t cached = 0;      // rows of the stream in the cache before it

  bool taken() const { return sequence != nullptr; }
  bool running() const { return taken() && result.status == StreamStatus::kRunning; }
  bool writing() const { return running() && feed.done(); }
  bool first_pass() const { return result.tokens.size() == stream.given.size(); }
};

// What the verdict on a pass made of its stream, which has settled it; or fails it by what is
// broken.
void take_verdict(StreamSlot& slot, const std::optional<BrokenLogit>& broken);

}  // namespace tessera
