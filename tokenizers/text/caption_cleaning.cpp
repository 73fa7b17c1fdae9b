// See caption_cleaning.h. Patterns are PCRE2's; \Z is the end, also before a last newline.
#include "tokenizers/text/caption_cleaning.h"

#include <algorithm>
#include <span>

#include "engine/core/index.h"
#include "tokenizers/text/normalizer.h"
#include "tokenizers/text/unicode.h"

namespace tessera {

namespace {

constexpr const char* kCaption = "caption";
constexpr std::size_t kMaxCaptionBytes = std::size_t{1} << 20;

struct RuleText {
  std::string_view pattern, content;
};

constexpr RuleText kFirst[] = {
    {R"(<person>)", "person"},
    // Host names with one of these endings, and paths after them.
    {R"(\b(?:https?:(?:/{1,3}|[a-zA-Z0-9%])|)"
     R"([a-zA-Z0-9.\-]+[.](?:com|co|ru|net|org|edu|gov|it)[\w/-]*\b/?(?!@)))",
     ""},
    {R"(\b(?:www:(?:/{1,3}|[a-zA-Z0-9%])|)"
     R"([a-zA-Z0-9.\-]+[.](?:com|co|ru|net|org|edu|gov|it)[\w/-]*\b/?(?!@)))",
     ""},
    {R"(@\w+\b)", ""},
    {R"([\x{31C0}-\x{9FFF}]+)", ""},
    {R"([-\x{058A}\x{05BE}\x{1400}\x{1806}\x{2010}-\x{2015}\x{2E17}\x{2E1A}\x{2E3A}\x{2E3B}\x{2E40})"
     R"(\x{301C}\x{3030}\x{30A0}\x{FE31}\x{FE32}\x{FE58}\x{FE63}\x{FF0D}]+)",
     "-"},
    {R"([`\x{B4}\x{AB}\x{BB}\x{201C}\x{201D}\x{A8}])", "\""},
    {R"([\x{2018}\x{2019}])", "'"},
    {R"(&quot;?)", ""},
    {R"(&amp)", ""},
    {R"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})", " "},
    {R"(\d:\d\d\s+\Z)", ""},
    {R"(\\n)", " "},
    {R"(#\d{1,3}\b)", ""},
    {R"(#\d{5,}\b)", ""},
    {R"(\b\d{6,}\b)", ""},
    {R"(\S+\.(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4))", ""},
    {R"(["']{2,})", "\""},
    {R"(\.{2,})", " "},
    {R"([#\x{AE}\x{2022}\x{A9}\x{2122}&@\x{B7}\x{BA}\x{BD}\x{BE}\x{BF}\x{A1}\x{A7}~()\[\]{}|\\/*]+)",
     " "},
    {R"(\s+\.\s+)", " "},
};
// Where there are more than three of these.
constexpr RuleText kJoined[] = {{R"([-_])", " "}};
// Characters that are not printed.
constexpr RuleText kControls[] = {
    {R"([\x00-\x08\x0B\x0E-\x1F\x7F\x{206A}-\x{206F}\x{FEFF}\x{FFF9}-\x{FFFC}]+)", ""}};
// What html.parser takes for a tag, a comment or an entity. One tag has a rule of its own.
constexpr RuleText kMarkup[] = {
    {R"(<(?!person>)[a-z/!?][^\s<>]{0,40}>?|&(?:#(?:x[0-9a-f]+|[0-9]+);?|[a-z][a-z0-9]*;))", ""}};
constexpr RuleText kLast[] = {
    {R"(\b[a-zA-Z]{1,3}\d{3,15}\b)", ""},
    {R"(\b[a-zA-Z]+\d+[a-zA-Z]+\b)", ""},
    {R"(\b\d+[a-zA-Z]+\d+\b)", ""},
    {R"((?:worldwide\s+)?(?:free\s+)?shipping)", ""},
    {R"((?:free\s)?download(?:\sfree)?)", ""},
    {R"(\bclick\b\s(?:for|on)\s\w+)", ""},
    {R"(\b(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4)(?:\simages?)?)", ""},
    {R"(\bpage\s+\d+\b)", ""},
    {R"(\b\d*[a-zA-Z]+\d+[a-zA-Z]+\d+[a-zA-Z\d]*\b)", " "},
    {R"(\b\d+\.?\d*[x\x{0445}\x{D7}]\d+\.?\d*\b)", ""},
    {R"(\b\s+:\s+)", ": "},
    {R"((?<=\D[,./])\b)", " "},
    {R"(\s+)", " "},
};

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = char_of(byte_of(c) | 0x20u);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// As in addresses: + is a blank, %41 a byte.
std::string unquoted(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool escape = text[at] == '%' && at + 2 < text.size() && hex_value(text[at + 1]) >= 0 &&
                        hex_value(text[at + 2]) >= 0;
    if (escape) {
      out.push_back(char_of(16 * hex_value(text[at + 1]) + hex_value(text[at + 2])));
      at += 2;
    } else {
      out.push_back(text[at] == '+' ? ' ' : text[at]);
    }
  }
  return utf8_lossy(out);
}

// Quotation marks around all of it, then one mark at each end.
std::string without_ends(std::string text) {
  const auto quote = [](char c) { return c == '"' || c == '\''; };
  if (text.size() > 2 && quote(text.front()) && quote(text.back())) {
    text = text.substr(1, text.size() - 2);
  }
  constexpr std::string_view kBefore = "'_,-:;", kAfter = "'_,-:+";
  if (!text.empty() && kBefore.find(text.front()) != std::string_view::npos) text.erase(0, 1);
  if (!text.empty() && kAfter.find(text.back()) != std::string_view::npos) text.pop_back();
  const bool one_word = text.find_first_of(" ") == std::string::npos;
  if (text.size() > 1 && text.front() == '.' && one_word) text.clear();
  return text;
}

}  // namespace

CaptionCleaner::CaptionCleaner() {
  const auto fill = [](std::span<const RuleText> rules, std::vector<Rule>& out) {
    for (const RuleText& rule : rules) {
      out.push_back(
          {Pattern(Regex::compile_native(rule.pattern, {kCaption, "rule"})), rule.content});
    }
  };
  fill(kFirst, first_);
  fill(kJoined, joined_);
  fill(kControls, controls_);
  fill(kLast, last_);
  fill(kMarkup, markup_);
}

std::string CaptionCleaner::apply(const std::vector<Rule>& rules, std::string text) const {
  for (const Rule& rule : rules) {
    RegexScratch scratch(text.size(), kCaption);
    text = replace_matches(rule.pattern, text, rule.content, kMaxCaptionBytes, scratch, kCaption);
  }
  return text;
}

std::string CaptionCleaner::once(std::string_view text) const {
  std::string out = apply(first_, lower_case(strip_ends(unquoted(text))));
  const auto joins = std::ranges::count_if(out, [](char c) { return c == '-' || c == '_'; });
  if (joins > 3) out = apply(joined_, std::move(out));
  out = normalize_unicode(apply(controls_, std::move(out)), NormalForm::kNfc);
  out = without_ends(apply(last_, std::string(strip_ends(out))));
  return std::string(strip_ends(out));
}

std::string CaptionCleaner::markup(std::string_view text) const {
  const std::string plain = lower_case(unquoted(text));
  RegexScratch scratch(plain.size(), kCaption);
  std::vector<Span> spans;
  markup_.front().pattern.cut(plain, scratch, spans);
  const auto found = std::ranges::find_if(spans, &Span::is_match);
  return found == spans.end() ? "" : plain.substr(found->begin, found->end - found->begin);
}

std::string CaptionCleaner::clean(std::string_view text) const { return once(once(text)); }

}  // namespace tessera
