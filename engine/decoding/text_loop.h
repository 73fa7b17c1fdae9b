// Texts, many at once, each at its own pace: a place that becomes free takes the next prompt while
// the others go on. Prompts enter a part at a time beside the tokens that are decoded, so that the
// others wait for no more than a part (Agrawal et al. 2023, SARATHI). A prompt with cuts inside the
// model goes through as a whole, one in a pass, and the others wait for all of it: selections look
// at all rows. What a text says depends on its prompt, law and seed alone: neither on the texts
// beside it, nor on parts, drafts, or threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/function_ref.h"
#include "engine/decoding/decode_loop.h"
#include "engine/decoding/prompt_cuts.h"
#include "engine/decoding/sequence_parts.h"
#include "engine/decoding/window_controller.h"
#include "engine/model/stream_model.h"
#include "engine/sampling/law.h"

namespace tessera {

struct TextItem {
  Tensor rows;  // [T, D] f32 on the model's device: the prompt, embedded
  std::vector<std::array<std::int64_t, 3>> places;  // [T] in the rotary table
  std::int64_t next_place = 0;                      // of the first token that is written
  std::vector<std::int32_t> before;  // ids of the prompt's text, which drafters may copy from
  std::vector<std::int32_t> stops;   // ids behind which the text ends; the stop is in the tokens
  std::int64_t most_tokens = 1;      // written at most
  LawSettings law;                   // without guidance
  std::uint64_t seed = 0;
  std::uint64_t item = 0;      // second half of the noise key
  PromptCuts* cuts = nullptr;  // borrowed until the item's first token; null = the prompt as it is
};

struct TextResult {
  DecodeStatus status = DecodeStatus::kRunning;
  std::vector<std::int32_t> tokens;
  bool stopped = false;  // by one of the stops, which is the last token; else it ran to its end
  std::int64_t passes = 0;
  DecodeMeters meters;
  ErrorInfo error;  // kFailed
};

struct TextLimits {
  std::int64_t items = 1;        // at once
  std::int64_t prompt_rows = 1;  // longest prompt
  std::int64_t tokens = 1;       // most that one text may have
  std::int64_t window = 1;       // rows of a text in one pass
  std::int64_t chunk = 256;      // prompt rows in one pass
  DType kv = DType::kF32;
  bool laws = false;  // room for the laws of drafts, which all rules but equality need
};

// Seconds spent so far: passes with nothing but tokens, passes with prompt rows in them, judgement.
struct TextTimes {
  double tokens = 0, prompts = 0, judge = 0;
  std::int64_t token_passes = 0, prompt_passes = 0;
  std::int64_t tokens_written = 0;  // in the passes of tokens alone
};

class TextListener {
 public:
  virtual ~TextListener() = default;
  // Tokens that came to stand in a pass.
  virtual void on_tokens(std::size_t /*slot*/, std::span<const std::int32_t> /*tokens*/) {}
  // The slot is free when this returns.
  virtual void on_done(std::size_t slot, TextResult&& result) = 0;
};

class TextLoop {
 public:
  // Allocates cache, activations and buffers for the limits. Model, parts and controller are
  // borrowed; parts stand in a line. Error kMemory.
  TextLoop(const TokenModel& model, const TextLimits& limits, const LoopParts& parts,
           WindowController* controller = nullptr);
  ~TextLoop();
  TextLoop(TextLoop&&) noexcept;
  TextLoop& operator=(TextLoop&&) = delete;

  const TextLimits& limits() const;
  bool full() const;
  bool idle() const;
  // Takes a prompt into a free slot, which it returns. The prompt must fit the limits.
  std::size_t add(TextItem item);
  // Drops a text as it is; on_done() is not called.
  void drop(std::size_t slot);
  // One pass. NaN or infinity among the logits fails that text alone.
  void step(TextListener& listener);
  const TextTimes& times() const;

  // Cache and buffers of a loop, before one is made.
  static std::size_t bytes(const StreamModelConfig& config, const Backend& backend,
                           const TextLimits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
