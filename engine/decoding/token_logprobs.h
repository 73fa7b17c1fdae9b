// Log probabilities of the tokens of a stream, recorded on request where the row that a token was
// verified by is at hand: what the model said, whatever the token was drawn from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct IdLogprob {
  std::int32_t id = -1;
  double logprob = 0;  // natural
  bool operator==(const IdLogprob&) const = default;
};

struct TokenLogprobs {
  IdLogprob token;
  std::vector<IdLogprob> top;  // the likeliest ids, falling; equal ones by id
  bool operator==(const TokenLogprobs&) const = default;
};

inline constexpr std::int64_t kNoLogprobs = -1, kMaxTopLogprobs = 20;

// The logarithm of softmax over a row of raw logits: temperature 1, no processor, no cut, no
// grammar. With `uncond` (else empty) the row is uncond + guidance (cond - uncond), as tokens are
// drawn from it. `top` likeliest ids. The same bits wherever and however the row came in.
TokenLogprobs token_logprobs(std::span<const float> cond, std::span<const float> uncond,
                             double guidance, std::int32_t id, std::int64_t top);

// Of one stream.
struct LogprobRecord {
  std::int64_t top = 0;
  std::vector<TokenLogprobs> tokens;  // in order
};

}  // namespace tessera
