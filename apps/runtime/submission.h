// What a lane is asked to write in one go: one request or a list of them, heard by one listener.
// A submission gives streams one by one, when a slot is free, and is notified of what becomes of
// them. It knows pixels, texts and files; the lane knows slots, room and turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "engine/core/error.h"
#include "engine/decoding/stream.h"

namespace tessera {

// Names a submission within its runtime. 0 = none.
struct Ticket {
  std::uint64_t number = 0;
  explicit operator bool() const { return number != 0; }
  friend bool operator==(Ticket, Ticket) = default;
};

// What a loop must have room for.
struct LoopNeeds {
  std::int64_t slots = 1;              // streams that could be written at once
  std::int64_t prompt_rows = 1;        // of the longest branch
  bool guided = false;                 // two branches
  bool images_apart = false;           // three
  std::int64_t draft_prompt_rows = 1;  // the same in a draft model, where there is one
  bool draft_guided = false;
};

// Room for both, one after the other.
LoopNeeds both(const LoopNeeds& a, const LoopNeeds& b);

// A stream that waits for a slot.
struct NextStream {
  std::size_t number = 0;  // of its request; the calls below name the stream by it
  Stream stream;
  LoopNeeds needs;  // slots are not read
  // Called once the stream has its slot, so that a draft model is notified of it; may be empty.
  std::function<void(std::size_t slot)> on_slot;
};

// A stream that goes on in the slot of one that is done (StreamLoop::slide): its tokens [first,
// end) stay cached.
struct SlidingStream {
  NextStream next;
  std::size_t first = 0, end = 0;
};

// A stream of the submission in a pass. The spans live during the call only.
struct SubmissionStream {
  std::size_t number = 0;  // of its request
  const StreamResult* result = nullptr;
};

struct SubmissionPass {
  double seconds = 0;              // of the pass
  std::size_t streams_of_all = 0;  // in the pass, those of other submissions included
  std::int64_t decode_rows = 0, prompt_rows = 0;
  PassTimes times;
  std::span<const SubmissionStream> streams;  // of this submission, in the order of their numbers
};

enum class Wait : std::uint8_t { kNo, kYes };

class Submission {
 public:
  virtual ~Submission() = default;

  // Room that is needed sooner or later, as far as it is known. Asked when it is submitted, and
  // whenever a loop is made later.
  virtual LoopNeeds needs() const { return {}; }
  // The next stream; none when none is ready. With kYes nothing else is to be done: it may block
  // for a moment. A request that cannot become a stream is the submission's own to report.
  virtual std::optional<NextStream> next(Wait wait) = 0;
  // Whether next() may give more, now or later.
  virtual bool more() const = 0;

  // After each pass of the lane with streams of this submission, and while it waits after most
  // passes, in a long queue after some. kStop ends it: on_stopped() is called for the streams that
  // are at work.
  virtual Flow on_pass(const SubmissionPass& /*pass*/) { return Flow::kContinue; }
  // After each pass, for each of its streams that goes on: true ends that stream alone;
  // on_stopped() is called for it.
  virtual bool drops(std::size_t /*number*/) const { return false; }
  // Of the tokens of the call below that follows, where the stream asks for it.
  virtual void on_logprobs(std::size_t /*number*/, std::span<const TokenLogprobs> /*of_tokens*/) {}
  // Tokens that were committed in a pass.
  virtual void on_tokens(std::size_t /*number*/, std::span<const std::int32_t> /*tokens*/) {}
  // A stream is done or has failed. One that was done and held may go on in its slot.
  virtual std::optional<SlidingStream> on_done(std::size_t number, StreamResult&& result) = 0;
  // A stream was at work when its submission was stopped or cancelled.
  virtual void on_stopped(std::size_t /*number*/, StreamResult&& /*result*/) {}

  // Where memory does not last for the loop that a stream needs: whether half as many slots are
  // tried, down to one. Else that error ends the submission.
  virtual bool takes_fewer_slots() const { return false; }
  // So many slots from here on, because memory did not last for `had`.
  virtual void on_fewer_slots(std::int64_t /*had*/, std::int64_t /*have*/) {}
  // There is no room for this stream, not even alone. Where takes_fewer_slots().
  virtual void on_no_room(std::size_t /*number*/, const ErrorInfo& /*error*/) {}

  // Nothing more will be called: all is written, or it was stopped or cancelled. With an error it
  // failed: its streams are gone without another call, and the error is thrown by step().
  virtual void on_over(const ErrorInfo* /*error*/) {}
};

}  // namespace tessera
