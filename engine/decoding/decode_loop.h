// The one sequencing of a decoding run: propose -> forward -> accept -> truncate -> emit, for a
// batch of pictures whose two guidance branches run in one pass. Each picture goes at its own pace.
// Its tokens depend on the item and the method alone: neither on batch size, order, nor threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/function_ref.h"
#include "engine/decoding/pass_shape.h"
#include "engine/decoding/sequence_parts.h"
#include "engine/decoding/trace.h"
#include "engine/decoding/window_controller.h"
#include "engine/model/stream_model.h"
#include "engine/sampling/law.h"

namespace tessera {

// One picture to decode.
struct DecodeItem {
  std::vector<std::int32_t> prompt;         // may be empty where first tokens are given
  std::vector<std::int32_t> unconditional;  // empty when law.guidance is 1
  LawSettings law;
  std::uint64_t seed = 0;
  std::uint64_t item = 0;           // second half of the noise key
  std::vector<std::int32_t> given;  // first tokens of the stream, which stand already
  bool slid = false;                // prompts and `given` are cached: slide() was called with them
  bool traced = false;              // its result gets a trace
  // What both branches attend to beside themselves, where the model does so; borrowed.
  const CrossContext* context = nullptr;
};

enum class DecodeStatus : std::uint8_t { kRunning, kDone, kStopped, kFailed };

struct DecodeResult {
  DecodeStatus status = DecodeStatus::kRunning;
  // Of the stream, in its order, given ones included; all of them when kDone.
  std::vector<std::int32_t> tokens;
  std::int64_t passes = 0;     // forward passes this item took part in
  std::int64_t prefilled = 0;  // rows of the first one, both branches: prompts and given tokens
  DecodeMeters meters;         // when the run is over
  DecodeTrace trace;           // of traced items, after every pass
  ErrorInfo error;             // kFailed: what was wrong, with the token's position
};

// Seconds of one pass: guesses, the target's forward pass, judgement with all sampling. A device that
// judges does so within its forward pass.
struct PassTimes {
  double draft = 0, forward = 0, judge = 0;
};

// After each pass; tokens of every item so far. The spans live during the call only.
struct PassEvent {
  std::int64_t pass = 0;  // 1 = the prefill, which gives the first token
  std::span<const DecodeResult> items;
  PassTimes times;
};
enum class Flow : std::uint8_t { kContinue, kStop };

struct DecodeLimits {
  std::int64_t items = 1;          // pictures at once
  std::int64_t prompt_tokens = 1;  // longest prompt of either branch
  std::int64_t window = 1;         // rows an item may run in one pass: 1 + the longest guess
  bool guided = true;              // room for the second branch
  DType kv = DType::kF32;
  bool laws = false;  // room for the laws of drafts, which all rules but equality need
  PassShape shape = PassShape::kLine;  // kRows takes no given tokens
  std::int64_t given_tokens = 0;       // most first tokens of a stream that stand already
};

using LoopParts = SequenceParts<float, KeyedRandom>;
using LoopDrafter = Drafter<float, KeyedRandom>;

class DecodeLoop {
 public:
  // Allocates cache, activations and sampling buffers for the limits; run() allocates no more
  // between two passes. The model must outlive the loop. Error kMemory.
  DecodeLoop(const StreamModel& model, const DecodeLimits& limits);
  ~DecodeLoop();
  DecodeLoop(DecodeLoop&&) noexcept;
  DecodeLoop& operator=(DecodeLoop&&) = delete;

  const DecodeLimits& limits() const;
  // Cache rows of a sequence beyond its prompt and picture: what a pass may run beside its line.
  static std::int64_t spare_cache_rows(const DecodeLimits& limits);
  // What a loop of these limits holds beside the cache: rows, logits, scratch, sampling buffers.
  static std::size_t activation_bytes(const StreamModelConfig& config, const Backend& backend,
                                      const DecodeLimits& limits);

  // One result an item, in order. At most limits.items items, prompts of 1..limits.prompt_tokens
  // ids, or none and given tokens instead. A NaN or infinity among the logits fails that item
  // alone. on_pass may stop the run: items then end as kStopped with the tokens they have. `parts`
  // are borrowed; their drafter may be null. A controller chooses the width of each pass within
  // limits.window, else it is that one.
  std::vector<DecodeResult> run(std::span<const DecodeItem> items, const LoopParts& parts,
                                FunctionRef<Flow(const PassEvent&)> on_pass,
                                WindowController* controller = nullptr);

  // A sliding window with attention sinks (Xiao et al. 2024, section 3.2), between two runs: of the
  // item `number` of the last run, which was done, the tokens [first, end) of its stream stay
  // cached behind the prompts, which are the sinks; tokens between them go, and the keys of those
  // that stay are turned to their new places. The next run's item has the same prompts, those
  // tokens for `given`, and `slid`; of the given ones it runs the last one alone.
  void slide(const DecodeItem& item, std::size_t number, std::size_t first, std::size_t end);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
