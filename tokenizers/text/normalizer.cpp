// See normalizer.h. Each step takes a text and gives a text; none depends on another.
#include "tokenizers/text/normalizer.h"

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/character_classes.h"
#include "tokenizers/text/pre_tokenizer.h"

namespace tessera {

namespace {

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const Utf8Char c = decode_utf8(text, 0);
    if (!is_white_space(c.code)) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (byte_of(text[at]) & 0xc0) == 0x80) --at;
    if (!is_white_space(decode_utf8(text, at).code)) break;
    text = text.substr(0, at);
  }
  return text;
}

[[noreturn]] void fail_size(const std::string& file, std::size_t limit) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_TOK_TEXT_SIZE",
               .file = file,
               .where = "replaced text",
               .expected = "at most " + std::to_string(limit) + " bytes",
               .found = "more"});
}

// The text without the characters of which `drop` is true.
template <class Drop>
std::string without(std::string_view text, Drop&& drop) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!drop(c.code)) out += text.substr(at, c.length);
    at += c.length;
  }
  return out;
}

// The rules of the reference's Nmt normaliser.
std::string nmt(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char read = decode_utf8(text, at);
    const char32_t c = read.code;
    const bool dropped = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
                         c == 0x8f || c == 0x9f;
    const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    if (space) {
      out.push_back(' ');
    } else if (!dropped) {
      out += text.substr(at, read.length);
    }
    at += read.length;
  }
  return out;
}

std::string bert(std::string text, const NormalizeBert& step) {
  if (step.clean_text || step.chinese_characters) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      const std::string_view character = std::string_view(text).substr(at, c.length);
      at += c.length;
      if (step.clean_text && is_bert_control(c.code)) continue;
      const bool space = step.clean_text && is_white_space(c.code);
      const bool alone = step.chinese_characters && is_chinese(c.code);
      if (alone) out.push_back(' ');
      out += space ? " " : character;
      if (alone) out.push_back(' ');
    }
    text = std::move(out);
  }
  if (step.strip_accents) {
    text = without(normalize_unicode(text, NormalForm::kNfd),
                   [](char32_t c) { return is_nonspacing_mark(c); });
  }
  return step.lowercase ? lower_case(text) : text;
}

struct ApplyNormalize {
  std::string text;
  RegexScratch& scratch;
  const std::string& file;

  std::string operator()(const NormalizeForm& step) const {
    return normalize_unicode(text, step.form);
  }
  std::string operator()(const NormalizeLowercase&) const { return lower_case(text); }
  std::string operator()(const NormalizePrepend& step) const {
    return text.empty() ? text : step.text + text;
  }
  std::string operator()(const NormalizeReplace& step) const {
    return replace_matches(step.pattern, text, step.content, kMaxNormalizedBytes, scratch, file);
  }
  std::string operator()(const NormalizeStrip& step) const {
    return std::string(strip(text, step.left, step.right));
  }
  std::string operator()(const NormalizeCharsmap& step) const {
    auto out = map_characters(step.map, text, kMaxNormalizedBytes);
    if (!out) fail_size(file, kMaxNormalizedBytes);
    return std::move(*out);
  }
  std::string operator()(const NormalizeStripAccents&) const {
    return without(text, [](char32_t c) { return is_mark(c); });
  }
  std::string operator()(const NormalizeNmt&) const { return nmt(text); }
  std::string operator()(const NormalizeByteLevel&) const {
    std::string out;
    for (const char c : text) out += byte_letter(byte_of(c));
    return out;
  }
  std::string operator()(const NormalizeBert& step) const { return bert(text, step); }
};

}  // namespace

std::string replace_matches(const Pattern& pattern, std::string_view text, std::string_view content,
                            std::size_t max_bytes, RegexScratch& scratch, const std::string& file) {
  std::vector<Span> spans;
  pattern.cut(text, scratch, spans);
  std::string out;
  for (const Span& span : spans) {
    out += span.is_match ? content : text.substr(span.begin, span.end - span.begin);
    if (out.size() > max_bytes) fail_size(file, max_bytes);
  }
  return out;
}

std::string normalize(const Normalizer& normalizer, std::string_view text, RegexScratch& scratch,
                      const std::string& file) {
  ApplyNormalize apply{std::string(text), scratch, file};
  for (const NormalizeStep& step : normalizer) {
    apply.text = std::visit(apply, step);
    if (apply.text.size() > kMaxNormalizedBytes) fail_size(file, kMaxNormalizedBytes);
  }
  return std::move(apply.text);
}

}  // namespace tessera
