// See word_piece.h.
#include "tokenizers/text/word_piece.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

namespace {

std::size_t character_count(std::string_view text) {
  return to_size(
      std::count_if(text.begin(), text.end(), [](char c) { return (byte_of(c) & 0xc0) != 0x80; }));
}

}  // namespace

WordPieceModel::WordPieceModel(std::vector<std::string> tokens, WordPieceOptions options)
    : WordModel(std::move(tokens)), options_(std::move(options)), first_(this->tokens()) {
  inside_.reserve(this->tokens().size());
  for (const std::string& token : this->tokens()) {
    inside_.push_back(token.starts_with(options_.prefix) ? token.substr(options_.prefix.size())
                                                         : std::string());
  }
  inside_index_ = PrefixIndex(inside_);
}

void WordPieceModel::encode(std::string_view word, RegexScratch& scratch,
                            std::vector<std::int32_t>& out) const {
  const std::size_t before = out.size();
  bool cut = character_count(word) <= options_.max_characters;
  for (std::size_t at = 0; cut && at < word.size();) {
    std::size_t length = 0;
    std::int32_t id = -1;
    const PrefixIndex& index = at == 0 ? first_ : inside_index_;
    index.visit_at(word, at, scratch, [&](std::size_t found, std::int32_t token) {
      length = found;
      id = token;
    });
    cut = id >= 0;
    if (cut) out.push_back(id);
    at += length;
  }
  if (cut) return;
  out.resize(before);
  out.push_back(options_.unknown);
}

}  // namespace tessera
