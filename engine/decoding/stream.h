// A stream of tokens under a grammar - an image, a video's window, a text - before it is written,
// and what came of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/tensor.h"
#include "engine/decoding/meters.h"
#include "engine/decoding/prompt_cuts.h"
#include "engine/decoding/token_logprobs.h"
#include "engine/decoding/trace.h"
#include "engine/model/cross_context.h"
#include "engine/sampling/dist.h"
#include "engine/sampling/grammar.h"
#include "engine/sampling/randomness.h"

namespace tessera {

// What a row of a prompt holds: rows of equal keys are equal, bit for bit.
using RowKey = std::array<std::uint64_t, 2>;
// Of a row of the model's prompt table.
inline RowKey key_of_id(std::int32_t id) { return {narrow<std::uint32_t>(id), ~std::uint64_t{0}}; }

// What one branch of a stream begins with: ids of the model's prompt table, or rows that are
// embedded already.
struct StreamPrompt {
  std::vector<std::int32_t> ids;
  std::shared_ptr<const Tensor> rows = {};  // [T, D] f32 on the model's device, instead of ids
  std::vector<std::array<std::int64_t, 3>> positions = {};  // [T] in the rotary table, of rows
  std::int64_t next_position = 0;  // of the first token, after rows; after ids it is their number
  // [T] of rows; none: no row of it is shared with another prompt. Ids are their own keys.
  std::vector<RowKey> keys = {};
  PromptCuts* cuts = nullptr;  // of rows; borrowed until the first token; null = all rows are kept

  std::int64_t length() const { return rows != nullptr ? rows->shape()[0] : std::ssize(ids); }
  std::int64_t first_position() const { return rows != nullptr ? next_position : length(); }
};

// The prompt, under guidance the one without it, and the one of its images alone.
inline constexpr std::size_t kMaxBranches = 3;

// How the errors of a stream name its tokens, and whether they name the layer that broke.
enum class StreamKind : std::uint8_t { kImage, kText };

// A grammar that a stream is under for a while: where it leads, and how its tokens are drawn.
struct StreamGrammar {
  std::size_t space = 0;  // of the loop: whose table its tokens are read by, whose head gives them
  VocabularyGrammar grammar;  // of a line no more tokens are drawn than the stream has left
  DistributionSettings dist;
  std::vector<std::int32_t> stops = {};  // ids that end the stream
  struct Switch {
    std::int32_t id = 0;
    std::size_t to = 0;  // the grammar of the next token
  };
  std::vector<Switch> switches = {};
  std::optional<std::size_t> then = {};  // the grammar after a full one; empty = the stream ends
};

// From `begin` on tokens are of grammar `grammar`.
struct StreamPart {
  std::size_t grammar = 0, begin = 0;
  bool operator==(const StreamPart&) const = default;
};

struct Stream {
  StreamPrompt prompt;         // may be empty where first tokens are given
  StreamPrompt unconditional;  // the second branch under guidance, else empty
  // The third one, where what the first images say is guided apart (Brooks et al. 2023): the logits
  // of the second are (1 - share) of its own and `share` of these.
  StreamPrompt images = {};
  double images_share = 0;
  DistributionSettings dist;
  std::uint64_t seed = 0;
  std::uint64_t item = 0;           // second half of the noise key
  std::vector<std::int32_t> given;  // first tokens of the stream, which nobody draws
  StreamKind kind = StreamKind::kImage;
  std::optional<VocabularyGrammar> grammar = {};  // empty = that of the limits
  std::int64_t max_tokens = 0;            // of a grammar of one line; 0 = the grammar's length
  std::vector<std::int32_t> stops = {};   // ids that end the stream; the stop is among its tokens
  std::vector<std::int32_t> before = {};  // ids of the prompt's text, which drafters may copy from
  // Ids of the prompt as logits processors count them, those that stand for visual tokens too; of the
  // stream's own token space, and of its first part alone.
  std::vector<std::int32_t> processed = {};
  // A stream that switches its grammar begins under the first of these; then distribution, grammar and stops
  // above are not read, max_tokens is that of the whole stream, nothing is given, nothing traced or
  // held. Each part has its own noise (part_random), and its positions begin at 0.
  std::vector<StreamGrammar> grammars = {};
  bool traced = false;  // its result gets a trace
  // Likeliest ids that are recorded with the log probability of each token; kNoLogprobs = none. Of
  // streams that have one grammar and begin with their first token.
  std::int64_t logprobs = kNoLogprobs;
  // When it is done it keeps its slot and its cache, for StreamLoop::slide() or drop().
  bool held = false;
  // What both branches attend to besides themselves, where the model does so; borrowed.
  const CrossContext* context = nullptr;

  int branches() const {
    if (!guided()) return 1;
    return images.length() > 0 ? 3 : 2;
  }
  bool guided() const {
    if (grammars.empty()) return dist.guided();
    return std::any_of(grammars.begin(), grammars.end(),
                       [](const StreamGrammar& part) { return part.dist.guided(); });
  }
  const StreamPrompt& branch(int number) const {
    if (number == 2) return images;
    return number == 0 ? prompt : unconditional;
  }
};

// The chance of part `part` of a stream; that of a stream with one grammar is that of part 0.
inline KeyedRandom part_random(const Stream& stream, std::size_t part) {
  const auto key = philox_key(stream.seed, stream.item);
  if (part == 0) return KeyedRandom(key);
  const PhiloxBlock mixed = philox4x32({narrow<std::uint32_t>(part), 0, 0, 0x50617274u}, key);
  return KeyedRandom(std::array<std::uint32_t, 2>{mixed[0], mixed[1]});
}

enum class StreamStatus : std::uint8_t { kRunning, kDone, kStopped, kFailed };

struct StreamResult {
  StreamStatus status = StreamStatus::kRunning;
  std::vector<std::int32_t> tokens;  // in order, given ones included; all of them when kDone
  std::vector<StreamPart> parts;     // of a stream that switches its grammar
  bool stopped = false;              // by one of its stops, which is the last token
  std::int64_t passes = 0;     // that verified tokens of it: the one after its prompt, and further
  std::int64_t prefilled = 0;  // rows of all branches before that: prompts and given tokens
  std::int64_t reused = 0;     // further ones of prompts, which were cached already
  DecodeMeters meters;         // when it is over
  DecodeTrace trace;           // of traced streams, after every pass
  LogprobRecord logprobs;      // of all tokens so far, where Stream::logprobs asks for them
  ErrorInfo error;             // kFailed: what was wrong, with the token's position
};

// Seconds of one pass: drafts, the model's forward pass, verification with all sampling. A device
// that verifies does so within its forward pass.
struct PassTimes {
  double draft = 0, forward = 0, verify = 0;
};

enum class Flow : std::uint8_t { kContinue, kStop };

}  // namespace tessera
