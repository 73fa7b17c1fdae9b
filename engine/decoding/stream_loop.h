// The one loop that writes streams of tokens: images, videos and texts, many at once, each at its
// own pace, token by token or block by block. A pass drafts, runs the drafts of all running
// streams, verifies them and emits what was committed. A slot that becomes free takes the
// next stream between two passes; its prompts enter in parts together with the rows of the others
// (Agrawal et al. 2023, SARATHI). A prompt with cuts inside the model runs as a whole, one a pass:
// selections look at all rows.
//
// What a stream writes depends on its own prompt, settings and key alone: not on its neighbours, on
// parts, slots, drafts or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/decoding/stream.h"
#include "engine/decoding/stream_limits.h"
#include "engine/decoding/verifier.h"
#include "engine/decoding/window_controller.h"
#include "engine/model/pass_model.h"
#include "engine/sampling/randomness.h"

namespace tessera {

using LoopDrafter = Drafter<float, KeyedRandom>;

// A stream that holds a slot, and what it has so far.
struct StreamView {
  std::size_t slot = 0;
  const StreamResult* result = nullptr;
};

// After a pass. The spans live during the call only.
struct StreamPass {
  std::int64_t pass = 0;                          // of the loop, from 1
  std::int64_t decode_rows = 0, prompt_rows = 0;  // in it; prompts with cuts are not counted
  std::span<const StreamView> streams;            // by slot
  PassTimes times;
};

// Seconds spent so far: passes with nothing but decode rows, passes with prompt rows in them,
// verification.
struct StreamTimes {
  double tokens = 0, prompts = 0, verify = 0;
  std::int64_t token_passes = 0, prompt_passes = 0;
  std::int64_t tokens_written = 0;  // in the passes of decode rows alone
};

class StreamListener {
 public:
  virtual ~StreamListener() = default;
  // After each pass, before the calls below.
  virtual void on_pass(const StreamPass&) {}
  // What is known of the tokens of the call below that follows, of a stream that asks for it.
  virtual void on_logprobs(std::size_t /*slot*/, std::span<const TokenLogprobs> /*of_tokens*/) {}
  // Tokens that were committed in a pass.
  virtual void on_tokens(std::size_t /*slot*/, std::span<const std::int32_t> /*tokens*/) {}
  // A stream is done or has failed. Its slot is free when this is called, unless it is held.
  virtual void on_done(std::size_t slot, StreamResult&& result) = 0;
};

class StreamLoop {
 public:
  // Allocates cache, activations and sampling buffers; between two passes nothing more. Model,
  // parts and controller are borrowed; parts.drafter may be null. A controller chooses the width of
  // each pass within limits.window, else it is that one. Error kMemory.
  StreamLoop(const PassModel& model, const StreamLimits& limits, const LoopParts& parts,
             WindowController* controller = nullptr);
  ~StreamLoop();
  StreamLoop(StreamLoop&&) noexcept;
  StreamLoop& operator=(StreamLoop&&) = delete;

  // Another method, of the same limits, from here on; no slot is taken.
  void use(const LoopParts& parts, WindowController* controller = nullptr);

  // Another token space over the model's body, which streams switch to (Stream::grammars): its
  // number. Parts of streams are as long as `grammar` at most; `parts` have the shape of the
  // limits. Limits count whole streams. No slot is taken. Error kMemory.
  std::size_t add_space(const PassModel& model, const VocabularyGrammar& grammar,
                        const LoopParts& parts);

  const StreamLimits& limits() const;
  bool full() const;                   // no slot is free
  bool idle() const;                   // no stream runs
  bool taken(std::size_t slot) const;  // by a stream that runs, or is done and held

  // Takes a stream into a free slot, which it returns: the item that drafters are asked for. The
  // stream must fit the limits; what is given of one that a model of blocks writes is whole blocks,
  // at least one where the model does not begin by itself. A draft model is notified of it next. An
  // error leaves the slot free.
  std::size_t add(Stream stream);
  // Frees a slot; returns what its stream had, kStopped if it was running. No call of the listener.
  StreamResult drop(std::size_t slot);
  // One pass. A NaN or infinity among the logits fails the stream that it is of.
  void step(StreamListener& listener);

  // A sliding window with attention sinks (Xiao et al. 2024, section 3.2): of the stream in `slot`,
  // which is done and held, the tokens [first, end) stay cached after its prompts, which are the
  // sinks; tokens between them go, and the keys of those that stay are turned to their new
  // positions. `next` goes on in the same slot: the same prompts, those tokens for `given`. An
  // error leaves the slot free. The model's body is a transformer.
  void slide(std::size_t slot, std::size_t first, std::size_t end, Stream next);

  const StreamTimes& times() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
