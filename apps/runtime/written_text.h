// A text on its way from tokens to whoever reads it, which ends before a text that stops it. What
// could still become such a text is held back.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/text_stream.h"
#include "engine/decoding/token_logprobs.h"

namespace tessera {

// Error kUsage (E_STOP_TEXT): more than 16 of them, or one that is empty or longer than 256 bytes.
void check_stop_texts(std::span<const std::string> stop);

// Error kUsage (E_LOGPROBS): neither kNoLogprobs nor up to kMaxTopLogprobs.
void check_logprobs(std::int64_t logprobs);

// What an id could stand for at its place. Special tokens have the bytes of their name.
struct TokenChoice {
  std::int32_t id = 0;
  std::string bytes;
  double logprob = 0;  // token_logprobs()
};
struct TextToken {
  TokenChoice token;
  std::vector<TokenChoice> top;  // as many as were asked for, the likeliest first
};

class WrittenText {
 public:
  enum class Ends : std::uint8_t { kAsWritten, kTrimmed };  // white space around it

  // The tokenizer is borrowed. `stop`: texts, the first of which ends this one.
  WrittenText(const TextTokenizer& tokenizer, std::vector<std::string> stop, Ends ends)
      : tokenizer_(tokenizer), stream_(tokenizer), stop_(std::move(stop)), ends_(ends) {}

  // What these tokens add that can be shown; tokens among `stops` are no part of the text. Nothing
  // once it has ended. `logprobs`: of each token, or of none.
  std::string add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> stops,
                  std::span<const TokenLogprobs> logprobs = {});
  // What was held back, once no token is to come.
  std::string rest();
  // One of the texts that stop it was written.
  bool ended() const { return ended_; }
  // All of it.
  std::string whole() const;
  // Tokens of what was shown since the last call, with log probabilities where they were given:
  // those of which a byte was shown, and what stands between them. Lives until the next add().
  std::span<const TextToken> newly_listed();
  // All of them, when no more is to come.
  std::vector<TextToken> take_listed() { return std::move(listed_); }
  // Tokens so far, up to the one that ended it.
  std::int64_t tokens() const { return tokens_; }

 private:
  std::string show(std::string more, bool last);
  TextToken listed_token(const TokenLogprobs& logprobs) const;
  void list(const TokenLogprobs& logprobs);

  struct Unlisted {
    std::size_t begin = 0;  // byte of the text where it begins
    TextToken token;
  };

  const TextTokenizer& tokenizer_;
  TextStream stream_;
  std::vector<std::string> stop_;
  Ends ends_;
  std::string held_;
  std::size_t passed_ = 0;  // bytes in front of held_
  std::deque<Unlisted> unlisted_;
  std::vector<TextToken> listed_;
  std::size_t taken_ = 0;  // of listed_
  bool begun_ = false;  // something was shown
  std::int64_t tokens_ = 0;
  bool ended_ = false;
};

}  // namespace tessera
