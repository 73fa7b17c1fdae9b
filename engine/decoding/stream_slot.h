// One slot of a loop of streams: the stream that holds it, and where it is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/decoding/judged_sequence.h"
#include "engine/decoding/picture_sequence.h"
#include "engine/decoding/prompt_feed.h"
#include "engine/decoding/stream.h"
#include "engine/sampling/randomness.h"

namespace tessera {

struct StreamSlot {
  Stream stream;
  std::unique_ptr<PictureSequence<float, KeyedRandom>> sequence;  // null = the slot is free
  JudgedSequence* judged = nullptr;  // the sequence, where a device verifies
  // Of each branch: rows of its prompt, which are given up when they were read, and the position
  // behind them.
  std::array<std::int64_t, 2> prompt_rows = {}, first_position = {};
  StreamResult result;
  PromptFeed feed;
  std::size_t emitted = 0;  // tokens that the listener knows of
  bool slid = false;        // what it began with was cached but for the last given token
  // Of the pass at hand.
  bool in_pass = false;           // it has logits in it
  std::size_t judged_number = 0;  // among the streams that a device verifies
  std::size_t window_rows = 0;    // logits rows of a branch
  std::int64_t first_row = 0;     // of the logits
  std::int64_t cached = 0;        // rows of the stream in the cache before it

  bool taken() const { return sequence != nullptr; }
  bool running() const { return taken() && result.status == StreamStatus::kRunning; }
  bool writing() const { return running() && feed.done(); }
  bool first_pass() const { return result.tokens.size() == stream.given.size(); }
};

// Verifies the logits rows of a pass on the host: `logits(row)` gives one. A broken row fails the
// stream if it is the first one. Further ones stand behind drafts that may be wrong: they and what
// follows are left out.
void verify_on_host(StreamSlot& slot, FunctionRef<std::span<const float>(std::int64_t row)> logits);
// The same by a device's records.
void verify_by_records(StreamSlot& slot, std::span<const RowRecord> rows, const JudgedCount& item);

}  // namespace tessera
