#include "apps/runtime/written_text.h"

#include <algorithm>
#include <utility>

#include "apps/runtime/generation_parts.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxStops = 16, kMaxBytes = 256;
constexpr const char* kWhite = " \t\r\n";

// Where the first of them begins.
std::size_t find_first(const std::string& text, const std::vector<std::string>& stop) {
  std::size_t at = std::string::npos;
  for (const std::string& each : stop) at = std::min(at, text.find(each));
  return at;
}

// Bytes at the end of a text that could be the beginning of one of them.
std::size_t bytes_to_hold(const std::string& text, const std::vector<std::string>& stop) {
  std::size_t held = 0;
  for (const std::string& each : stop) {
    const std::size_t longest = std::min(each.size() - 1, text.size());
    for (std::size_t count = longest; count > held; --count) {
      if (!text.ends_with(std::string_view(each).substr(0, count))) continue;
      held = count;
      break;
    }
  }
  return held;
}

}  // namespace

void check_stop_texts(std::span<const std::string> stop) {
  if (stop.size() > kMaxStops) {
    refuse_request("E_STOP_TEXT", "stop", "at most " + std::to_string(kMaxStops) + " texts",
                   std::to_string(stop.size()));
  }
  for (const std::string& each : stop) {
    if (!each.empty() && each.size() <= kMaxBytes) continue;
    refuse_request("E_STOP_TEXT", "stop", "texts of 1 to " + std::to_string(kMaxBytes) + " bytes",
                   std::to_string(each.size()));
  }
}

void check_logprobs(std::int64_t logprobs) {
  if (logprobs >= kNoLogprobs && logprobs <= kMaxTopLogprobs) return;
  refuse_request("E_LOGPROBS", "logprobs",
                 "0 to " + std::to_string(kMaxTopLogprobs) + ", or -1 for none",
                 std::to_string(logprobs));
}

TextToken WrittenText::listed_token(const TokenLogprobs& logprobs) const {
  const auto choice = [&](const IdLogprob& one) {
    return TokenChoice{one.id, tokenizer_.bytes_of(one.id), one.logprob};
  };
  TextToken out{choice(logprobs.token), {}};
  for (const IdLogprob& one : logprobs.top) out.top.push_back(choice(one));
  return out;
}

// A token whose text is not known yet waits for the rest of a character, behind those that do.
void WrittenText::list(const TokenLogprobs& logprobs) {
  Unlisted made{passed_ + held_.size(), listed_token(logprobs)};
  if (!unlisted_.empty() && unlisted_.back().begin >= made.begin) {
    const TokenChoice& before = unlisted_.back().token.token;
    made.begin = unlisted_.back().begin;
    if (!tokenizer_.is_special(before.id)) made.begin += before.bytes.size();
  }
  unlisted_.push_back(std::move(made));
}

std::span<const TextToken> WrittenText::newly_listed() {
  return std::span(listed_).subspan(std::exchange(taken_, listed_.size()));
}

std::string WrittenText::add(std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> stops,
                             std::span<const TokenLogprobs> logprobs) {
  expects(logprobs.empty() || logprobs.size() == tokens.size(), "of each token, or of none");
  if (stop_.empty() && logprobs.empty()) {
    tokens_ += std::ssize(tokens);
    return show(stream_.add(tokens, stops), false);
  }
  std::string out;
  for (std::size_t i = 0; i < tokens.size() && !ended_; ++i) {
    ++tokens_;
    if (!logprobs.empty()) list(logprobs[i]);
    out += show(stream_.add(tokens.subspan(i, 1), stops), false);
  }
  return out;
}

std::string WrittenText::rest() { return ended_ ? std::string() : show(stream_.rest(), true); }

// What of held_ and `more` can be shown.
std::string WrittenText::show(std::string more, bool last) {
  held_ += more;
  if (!more.empty()) {  // of which each token that waited has some
    const std::size_t last_byte = passed_ + held_.size() - 1;
    for (Unlisted& one : unlisted_) one.begin = std::min(one.begin, last_byte);
  }
  const std::size_t at = find_first(held_, stop_);
  ended_ = at != std::string::npos;
  std::size_t shown = ended_ ? at : held_.size();
  if (!ended_ && !last) shown -= bytes_to_hold(held_, stop_);
  std::size_t from = 0;
  if (ends_ == Ends::kTrimmed) {
    const std::size_t end = held_.find_last_not_of(kWhite, shown == 0 ? 0 : shown - 1);
    shown = shown == 0 || end == std::string::npos ? 0 : end + 1;
    if (!begun_) from = std::min(held_.find_first_not_of(kWhite), shown);
    begun_ = begun_ || shown > 0;
  }
  std::string out = held_.substr(from, shown - from);
  held_.erase(0, shown);
  passed_ += shown;
  for (; !unlisted_.empty() && unlisted_.front().begin < passed_; unlisted_.pop_front()) {
    listed_.push_back(std::move(unlisted_.front().token));
  }
  return out;
}

std::string WrittenText::whole() const {
  std::string out = stream_.whole();
  if (ended_) out.resize(std::min(out.size(), find_first(out, stop_)));
  if (ends_ == Ends::kAsWritten) return out;
  const std::size_t first = out.find_first_not_of(kWhite);
  if (first == std::string::npos) return {};
  return out.substr(first, out.find_last_not_of(kWhite) - first + 1);
}

}  // namespace tessera
