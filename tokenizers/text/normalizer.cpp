// See normalizer.h. Each step takes a text and gives a text; none depends on another.
#include "tokenizers/text/normalizer.h"

#include "engine/core/index.h"
#include "engine/core/utf8.h"

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
};

[[noreturn]] void fail_size(const std::string& file, std::size_t limit) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_TOK_TEXT_SIZE",
               .file = file,
               .where = "replaced text",
               .expected = "at most " + std::to_string(limit) + " bytes",
               .found = "more"});
}

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
