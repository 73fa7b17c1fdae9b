// See added_tokens.h.
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

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  contents_.reserve(tokens_.size());
  for (const AddedToken& token : tokens_) {
    expects(!token.content.empty(), "an added token has characters");
    contents_.push_back(token.content);
    has_specials_ = has_specials_ || token.special;
    if (token.single_word && !word_) {
      word_ = Regex::compile_native("[" + class_items("rust-word") + "]", {"", "word class"});
    }
  }
  index_ = PrefixIndex(contents_);
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t at,
                                               RegexScratch& scratch) const {
  const AddedToken* best = nullptr;
  index_.visit_at(text, at, scratch,
                  [&](std::size_t, std::int32_t token) { best = &nth(tokens_, token); });
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

std::vector<TextPart> AddedTokenFinder::split(std::string_view text,
                                              std::span<const PlainSpan> plain,
                                              RegexScratch& scratch) const {
  std::vector<TextPart> out;
  std::size_t done = 0;  // everything before is in `out`
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = longest_at(text, at, scratch);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    while (!plain.empty() && plain.front().end <= begin) plain = plain.subspan(1);
    const bool touches = !plain.empty() && plain.front().begin < end;
    if (touches && (begin < plain.front().begin || plain.front().end < end)) {
      at = begin < plain.front().begin ? plain.front().begin : plain.front().end;
      continue;
    }
    at = end;  // a match that is then discarded is used up all the same, as in the reference
    if (token->special && touches) continue;
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
