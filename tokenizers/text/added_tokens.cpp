// The tokens are sorted, so that reading a text byte by byte narrows a range of them by bisection:
// no automaton whose size a file could blow up. Each byte read counts against the step budget.
#include "tokenizers/text/added_tokens.h"

#include <algorithm>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/unicode.h"

namespace tessera {

namespace {

std::size_t previous_character(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (byte_of(text[at]) & 0xc0) == 0x80);
  return at;
}

std::size_t skip_space_back(std::string_view text, std::size_t at, std::size_t floor) {
  while (at > floor) {
    const std::size_t before = previous_character(text, at);
    if (!is_white_space(decode_utf8(text, before).code)) break;
    at = before;
  }
  return at;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (!is_white_space(c.code)) break;
    at += c.length;
  }
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), first_bytes_(256, false) {
  const auto by_content = [](const AddedToken& a, const AddedToken& b) {
    return a.content < b.content;
  };
  std::stable_sort(tokens_.begin(), tokens_.end(), by_content);
  const auto same = [](const AddedToken& a, const AddedToken& b) { return a.content == b.content; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same), tokens_.end());
  for (const AddedToken& token : tokens_) {
    expects(!token.content.empty(), "an added token has characters");
    first_bytes_[byte_of(token.content[0])] = true;
    if (token.single_word && !word_) {
      word_ = Regex::compile_native("[" + class_items("rust-word") + "]", {"", "word class"});
    }
  }
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t at,
                                               RegexScratch& scratch) const {
  const AddedToken* best = nullptr;
  auto low = tokens_.begin(), high = tokens_.end();
  for (std::size_t depth = 0; at + depth < text.size() && low != high; ++depth) {
    if (high - low == 1) {  // one candidate: compare what is left of it
      const std::string& content = low->content;
      const std::size_t length = std::min(content.size(), text.size() - at);
      const auto stop =
          std::mismatch(content.begin() + to_index(depth), content.begin() + to_index(length),
                        text.begin() + to_index(at + depth));
      scratch.spend(1 + narrow<std::uint64_t>(stop.first - content.begin()) / 8);
      return stop.first == content.end() ? &*low : best;
    }
    scratch.spend(1);
    const auto byte = byte_of(text[at + depth]);
    const auto byte_there = [depth](const AddedToken& token) {
      return depth < token.content.size() ? int{byte_of(token.content[depth])} : -1;
    };
    low = std::lower_bound(low, high, byte,
                           [&](const AddedToken& t, int value) { return byte_there(t) < value; });
    high = std::upper_bound(low, high, byte,
                            [&](int value, const AddedToken& t) { return value < byte_there(t); });
    if (low != high && low->content.size() == depth + 1) best = &*low;
  }
  return best;
}

bool AddedTokenFinder::touches_word(std::string_view text, std::size_t begin, std::size_t end,
                                    RegexScratch& scratch) const {
  std::vector<Span> spans;
  const auto is_word = [&](std::string_view character) {
    spans.clear();
    word_->cut(character, scratch, spans);
    return !spans.empty() && spans.front().is_match;
  };
  if (begin > 0) {
    const std::size_t before = previous_character(text, begin);
    if (is_word(text.substr(before, begin - before))) return true;
  }
  return end < text.size() && is_word(text.substr(end, decode_utf8(text, end).length));
}

std::vector<TextPart> AddedTokenFinder::split(std::string_view text, bool specials,
                                              RegexScratch& scratch) const {
  std::vector<TextPart> out;
  std::size_t done = 0;  // everything before is in `out`
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = nullptr;
    if (first_bytes_[byte_of(text[at])]) token = longest_at(text, at, scratch);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    at = end;  // a match that is then discarded is used up all the same, as in the reference
    if (token->special && !specials) continue;
    if (token->single_word && touches_word(text, begin, end, scratch)) continue;
    if (token->lstrip) begin = std::max(skip_space_back(text, begin, done), done);
    if (token->rstrip) end = skip_space(text, end);
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token->id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

}  // namespace tessera
