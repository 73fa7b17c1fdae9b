// A text on its way from tokens to whoever reads it, which ends before a text that stops it. What
// could still become such a text is held back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/text_stream.h"

namespace tessera {

// Error kUsage (E_STOP_TEXT): more than 16 of them, or one that is empty or longer than 256 bytes.
void check_stop_texts(std::span<const std::string> stop);

class WrittenText {
 public:
  enum class Ends : std::uint8_t { kAsWritten, kTrimmed };  // white space around it

  // The tokenizer is borrowed. `stop`: texts, the first of which ends this one.
  WrittenText(const TextTokenizer& tokenizer, std::vector<std::string> stop, Ends ends)
      : stream_(tokenizer), stop_(std::move(stop)), ends_(ends) {}

  // What these tokens add that can be shown; tokens among `stops` are no part of the text. Nothing
  // once it has ended.
  std::string add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> stops);
  // What was held back, once no token is to come.
  std::string rest();
  // One of the texts that stop it was written.
  bool ended() const { return ended_; }
  // All of it.
  std::string whole() const;
  // Tokens so far, up to the one that ended it.
  std::int64_t tokens() const { return tokens_; }

 private:
  std::string show(std::string more, bool last);

  TextStream stream_;
  std::vector<std::string> stop_;
  Ends ends_;
  std::string held_;
  bool begun_ = false;  // something was shown
  std::int64_t tokens_ = 0;
  bool ended_ = false;
};

}  // namespace tessera
