// Texts as they grow.
#include "apps/runtime/text_stream.h"

#include <algorithm>

namespace tessera {

namespace {

constexpr std::string_view kBroken = "\xef\xbf\xbd";
// Tokens that may wait for the rest of a character. Real ones have four bytes at most; what stays
// broken for longer is shown as it is.
constexpr std::size_t kMaxWaiting = 16;

}  // namespace

std::string TextStream::add(std::span<const std::int32_t> tokens,
                            std::span<const std::int32_t> stops) {
  for (const std::int32_t token : tokens) {
    if (std::find(stops.begin(), stops.end(), token) == stops.end()) tokens_.push_back(token);
  }
  if (tokens_.size() == shown_) return {};
  const std::span<const std::int32_t> all(tokens_);
  const std::string before = tokenizer_.decode(all.subspan(begin_, shown_ - begin_));
  const std::string now = tokenizer_.decode(all.subspan(begin_));
  const bool waits = now.ends_with(kBroken) && tokens_.size() - shown_ < kMaxWaiting;
  if (waits || now.size() <= before.size() || !now.starts_with(before)) return {};
  begin_ = shown_;
  shown_ = tokens_.size();
  return now.substr(before.size());
}

}  // namespace tessera
