// Texts as they grow.
#include "apps/runtime/text_stream.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::string_view kBroken = "\xef\xbf\xbd";
// Tokens that may wait for the rest of a character. Real ones have four bytes at most; what stays
// broken for longer is shown as it is.
constexpr std::size_t kMaxWaiting = 16;

// Where the character begins that byte `at` belongs to.
std::size_t back_to_character(const std::string& text, std::size_t at) {
  while (at > 0 && at < text.size() && (byte_of(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::string TextStream::add(std::span<const std::int32_t> tokens,
                            std::span<const std::int32_t> stops) {
  for (const std::int32_t token : tokens) {
    if (std::find(stops.begin(), stops.end(), token) == stops.end()) tokens_.push_back(token);
  }
  return show(kMaxWaiting);
}

std::string TextStream::show(std::size_t most_waiting) {
  if (tokens_.size() == shown_) return {};
  const std::span<const std::int32_t> all(tokens_);
  const std::string before = tokenizer_.decode(all.subspan(begin_, shown_ - begin_));
  const std::string now = tokenizer_.decode(all.subspan(begin_));
  // What was shown broken may turn out to begin a character: that one is shown again, whole.
  std::size_t same = to_size(std::ranges::mismatch(before, now).in2 - now.begin());
  if (same < before.size()) same = back_to_character(now, same);
  const bool broken = now.ends_with(kBroken) || same < before.size();
  if (broken && tokens_.size() - shown_ < most_waiting) return {};
  if (now.size() <= same) return {};
  begin_ = shown_;
  shown_ = tokens_.size();
  return now.substr(same);
}

}  // namespace tessera
