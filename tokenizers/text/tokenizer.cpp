// The straight line from text to ids: added tokens, normaliser, added tokens again, pre-tokeniser,
// BPE, template; and back through the decoder.
#include "tokenizers/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/tokenizer_folder.h"
#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

struct TextTokenizer::Parts : TokenizerParts {};

namespace {

constexpr std::size_t kMaxDecodedBytes = std::size_t{64} << 20;

[[noreturn]] void fail_text_size(const std::string& file, std::size_t limit, std::size_t found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_TOK_TEXT_SIZE",
               .file = file,
               .where = "text",
               .expected = "at most " + std::to_string(limit) + " bytes",
               .found = std::to_string(found)});
}

void check_text(std::string_view text, const std::string& file) {
  if (text.size() > TextTokenizer::kMaxTextBytes) {
    fail_text_size(file, TextTokenizer::kMaxTextBytes, text.size());
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

// A text and the spans of it in which special tokens are ordinary characters.
struct MarkedText {
  std::string text;
  std::vector<PlainSpan> plain;
};

MarkedText join(std::span<const TextStretch> stretches, const std::string& file) {
  MarkedText out;
  for (const TextStretch& stretch : stretches) {
    check_text(stretch.text, file);
    const std::size_t begin = out.text.size();
    out.text += stretch.text;
    if (out.text.size() > TextTokenizer::kMaxStretchesBytes) {
      fail_text_size(file, TextTokenizer::kMaxStretchesBytes, out.text.size());
    }
    if (stretch.in_text == SpecialText::kControl || stretch.text.empty()) continue;
    if (!out.plain.empty() && out.plain.back().end == begin) {
      out.plain.back().end = out.text.size();
    } else {
      out.plain.push_back({begin, out.text.size()});
    }
  }
  return out;
}

// One text on its way to ids.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, const MarkedText& marked)
      : parts_(parts), marked_(marked), scratch_(marked.text.size(), parts.file) {}

  std::vector<std::int32_t> run() {
    for (const TextPart& part : parts_.raw_finder.split(marked_.text, marked_.plain, scratch_)) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        add_part(part);
      }
    }
    return std::move(ids_);
  }

 private:
  // Special tokens that are looked for in normalised text: what is plain there is not known any
  // more, so the part is cut where plain text begins and ends.
  void add_part(const TextPart& part) {
    std::size_t at = part.begin;
    if (parts_.normal_finder.has_specials()) {
      const std::vector<PlainSpan>& plain = marked_.plain;
      while (next_plain_ < plain.size() && plain[next_plain_].end <= at) ++next_plain_;
      for (std::size_t i = next_plain_; i < plain.size() && plain[i].begin < part.end; ++i) {
        const std::size_t begin = std::max(plain[i].begin, at);
        const std::size_t end = std::min(plain[i].end, part.end);
        add_normalized(at, begin, false);
        add_normalized(begin, end, true);
        at = end;
      }
    }
    add_normalized(at, part.end, false);
  }

  void add_normalized(std::size_t begin, std::size_t end, bool plain) {
    if (begin == end) return;
    const std::string_view raw = std::string_view(marked_.text).substr(begin, end - begin);
    const std::string text = normalize(parts_.normalizer, raw, scratch_, parts_.file);
    const PlainSpan whole{0, text.size()};
    const std::span<const PlainSpan> spans(&whole, plain ? 1 : 0);
    for (const TextPart& part : parts_.normal_finder.split(text, spans, scratch_)) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        add_words(text.substr(part.begin, part.end - part.begin), begin == 0 && part.begin == 0);
      }
    }
  }

  void add_words(std::string text, bool at_start) {
    const Words words = pre_tokenize(parts_.pre_tokenizer, std::move(text), at_start, scratch_);
    for (const Words::Word& word : words.words) {
      parts_.model->encode(std::string_view(words.text).substr(word.begin, word.end - word.begin),
                           scratch_, ids_);
    }
  }

  const TokenizerParts& parts_;
  const MarkedText& marked_;
  RegexScratch scratch_;
  std::size_t next_plain_ = 0;  // the first plain span that may reach into what is left
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

TextTokenizer TextTokenizer::from_folder(const std::filesystem::path& folder,
                                         std::span<const std::string_view> again) {
  return from_parts(read_tokenizer_folder(folder, again));
}

TextTokenizer TextTokenizer::from_parts(TokenizerParts parts) {
  return TextTokenizer(std::make_unique<const Parts>(Parts{std::move(parts)}));
}

TextTokenizer TextTokenizer::from_json(std::string_view text, const std::string& file) {
  return from_parts(read_tokenizer_json(text, file));
}

std::vector<std::int32_t> TextTokenizer::encode(std::string_view text, bool add_special,
                                                SpecialText in_text) const {
  const TextStretch whole{text, in_text};
  return encode(std::span(&whole, 1), add_special);
}

std::vector<std::int32_t> TextTokenizer::encode(std::span<const TextStretch> stretches,
                                                bool add_special) const {
  const MarkedText marked = join(stretches, parts_->file);
  std::vector<std::int32_t> ids = Encoding(*parts_, marked).run();
  if (!add_special) return ids;
  const std::vector<std::int32_t> before = ids_before(), after = ids_after();
  ids.insert(ids.begin(), before.begin(), before.end());
  ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

std::vector<std::int32_t> TextTokenizer::ids_before() const {
  std::vector<std::int32_t> out;
  for (const IdTemplate& around : parts_->templates) {
    out.insert(out.begin(), around.before.begin(), around.before.end());
  }
  return out;
}

std::vector<std::int32_t> TextTokenizer::ids_after() const {
  std::vector<std::int32_t> out;
  for (const IdTemplate& around : parts_->templates) {
    out.insert(out.end(), around.after.begin(), around.after.end());
  }
  return out;
}

std::string TextTokenizer::bytes_of(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const std::int32_t added = nth(parts_->added_by_id, id);
  if (added >= 0) return std::string(nth(parts_->added, added).shown);
  const std::string_view token = parts_->model->token(id);
  RegexScratch scratch(token.size(), parts_->file);
  if (parts_->decoder) return token_bytes(*parts_->decoder, token, scratch, parts_->file);
  return " " + std::string(token);
}

std::string TextTokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  std::size_t bytes = 0;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) continue;
    const std::int32_t added = nth(parts_->added_by_id, id);
    tokens.emplace_back(added >= 0 ? std::string_view(nth(parts_->added, added).shown)
                                   : parts_->model->token(id));
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
  return parts_->model->id_of(token);
}

std::string_view TextTokenizer::token(std::int32_t id) const {
  expects(id >= 0 && id < vocab_size(), "id within the vocabulary");
  const std::int32_t added = nth(parts_->added_by_id, id);
  if (added >= 0) return nth(parts_->added, added).content;
  return parts_->model->token(id);
}

bool TextTokenizer::is_special(std::int32_t id) const {
  expects(id >= 0 && id < vocab_size(), "id within the vocabulary");
  const std::int32_t added = nth(parts_->added_by_id, id);
  return added >= 0 && nth(parts_->added, added).special;
}

std::int64_t TextTokenizer::vocab_size() const { return std::ssize(parts_->added_by_id); }

std::span<const TokenizerNote> TextTokenizer::notes() const { return parts_->notes; }

}  // namespace tessera
