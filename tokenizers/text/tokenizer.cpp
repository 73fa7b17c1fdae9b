// The straight line from text to ids: added tokens, normaliser, added tokens again, pre-tokeniser,
// BPE, template; and back through the decoder.
#include "tokenizers/text/tokenizer.h"

#include <utility>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

struct TextTokenizer::Parts : TokenizerParts {};

namespace {

constexpr std::size_t kMaxDecodedBytes = std::size_t{64} << 20;

void check_text(std::string_view text, const std::string& file) {
  if (text.size() > TextTokenizer::kMaxTextBytes) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_TOK_TEXT_SIZE",
                 .file = file,
                 .where = "text",
                 .expected = "at most " + std::to_string(TextTokenizer::kMaxTextBytes) + " bytes",
                 .found = std::to_string(text.size())});
  }
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) {
      throw Error({.kind = ErrorKind::kGeneral,
                   .code = "E_TOK_TEXT_UTF8",
                   .file = file,
                   .where = "text, byte " + std::to_string(at),
                   .expected = "UTF-8",
                   .found = "a byte that is not"});
    }
    at += c.length;
  }
}

// One text on its way to ids.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, std::string_view text, SpecialText in_text)
      : parts_(parts),
        text_(text),
        specials_(in_text == SpecialText::kControl),
        scratch_(text.size(), parts.file) {}

  std::vector<std::int32_t> run() {
    for (const TextPart& part : parts_.raw_finder.split(text_, specials_, scratch_)) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        add_normalized(text_.substr(part.begin, part.end - part.begin), part.begin == 0);
      }
    }
    return std::move(ids_);
  }

 private:
  void add_normalized(std::string_view raw, bool at_start) {
    const std::string text = normalize(parts_.normalizer, raw, scratch_, parts_.file);
    for (const TextPart& part : parts_.normal_finder.split(text, specials_, scratch_)) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        add_words(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0);
      }
    }
  }

  void add_words(std::string text, bool at_start) {
    const Words words = pre_tokenize(parts_.pre_tokenizer, std::move(text), at_start, scratch_);
    for (const Words::Word& word : words.words) {
      parts_.model.encode(std::string_view(words.text).substr(word.begin, word.end - word.begin),
                          ids_);
    }
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  bool specials_;
  RegexScratch scratch_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

TextTokenizer::TextTokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
TextTokenizer::TextTokenizer(TextTokenizer&&) noexcept = default;
TextTokenizer& TextTokenizer::operator=(TextTokenizer&&) noexcept = default;
TextTokenizer::~TextTokenizer() = default;

TextTokenizer TextTokenizer::from_file(const std::filesystem::path& tokenizer_json) {
  return from_json(read_file(tokenizer_json, kMaxFileBytes), tokenizer_json.string());
}

TextTokenizer TextTokenizer::from_json(std::string_view text, const std::string& file) {
  return TextTokenizer(std::make_unique<const Parts>(Parts{read_tokenizer_json(text, file)}));
}

std::vector<std::int32_t> TextTokenizer::encode(std::string_view text, bool add_special,
                                                SpecialText in_text) const {
  check_text(text, parts_->file);
  std::vector<std::int32_t> ids = Encoding(*parts_, text, in_text).run();
  if (!add_special) return ids;
  for (const IdTemplate& around : parts_->templates) {
    ids.insert(ids.begin(), around.before.begin(), around.before.end());
    ids.insert(ids.end(), around.after.begin(), around.after.end());
  }
  return ids;
}

std::string TextTokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  std::size_t bytes = 0;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) continue;
    const std::int32_t added = nth(parts_->added_by_id, id);
    tokens.emplace_back(added >= 0 ? std::string_view(nth(parts_->added, added).shown)
                                   : parts_->model.token(id));
    bytes += tokens.back().size();
  }
  RegexScratch scratch(bytes, parts_->file);
  if (parts_->decoder) {
    return decode_tokens(*parts_->decoder, std::move(tokens), kMaxDecodedBytes, scratch,
                         parts_->file);
  }
  for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  return decode_tokens({}, std::move(tokens), kMaxDecodedBytes, scratch, parts_->file);
}

std::optional<std::int32_t> TextTokenizer::id_of(std::string_view token) const {
  const auto added = parts_->added_ids.find(std::string(token));
  if (added != parts_->added_ids.end()) return added->second;
  return parts_->model.id_of(token);
}

std::string_view TextTokenizer::token(std::int32_t id) const {
  expects(id >= 0 && id < vocab_size(), "id within the vocabulary");
  const std::int32_t added = nth(parts_->added_by_id, id);
  if (added >= 0) return nth(parts_->added, added).content;
  return parts_->model.token(id);
}

bool TextTokenizer::is_special(std::int32_t id) const {
  expects(id >= 0 && id < vocab_size(), "id within the vocabulary");
  const std::int32_t added = nth(parts_->added_by_id, id);
  return added >= 0 && nth(parts_->added, added).special;
}

std::int64_t TextTokenizer::vocab_size() const { return std::ssize(parts_->added_by_id); }

}  // namespace tessera
