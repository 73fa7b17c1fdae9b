// See decoder.h. Each step maps a list of tokens to a list of tokens; the text is their
// concatenation.
#include "tokenizers/text/decoder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/normalizer.h"
#include "tokenizers/text/unicode.h"

namespace tessera {

namespace {

using Tokens = std::vector<std::string>;

// Appends the bytes that the letters stand for, or the token itself if one of them is no letter of
// the byte alphabet.
void append_bytes(std::string& out, std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const Utf8Char c = decode_utf8(token, at);
    at += c.length;
    const int byte = letter_byte(c.code);
    if (byte < 0) {
      out += token;
      return;
    }
    bytes.push_back(char_of(byte));
  }
  out += bytes;
}

// The byte of "<0xNN>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if ((c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f')) {
      value = value * 16 + ((c | 0x20) - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return char_of(value);
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, done)) {
    out += text.substr(done, at - done);
    out += with;
    done = at + what.size();
  }
  return out += text.substr(done);
}

std::string clean_up(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kSteps = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [what, with] : kSteps) text = replace_all(text, what, with);
  return text;
}

struct ApplyDecode {
  Tokens tokens;
  std::size_t max_bytes;
  RegexScratch& scratch;
  const std::string& file;

  Tokens operator()(const DecodeByteLevel&) const {
    std::string bytes;
    for (const std::string& token : tokens) append_bytes(bytes, token);
    return {utf8_lossy(bytes)};
  }

  Tokens operator()(const DecodeByteFallback&) const {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_valid_utf8(bytes)) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (const std::string& token : tokens) {
      if (const auto byte = fallback_byte(token)) {
        bytes.push_back(*byte);
        continue;
      }
      flush();
      out.push_back(token);
    }
    flush();
    return out;
  }

  Tokens operator()(const DecodeFuse&) const {
    std::string all;
    for (const std::string& token : tokens) all += token;
    return {all};
  }

  Tokens operator()(const DecodeReplace& step) const {
    Tokens out;
    std::size_t total = 0;
    for (const std::string& token : tokens) {
      out.push_back(
          replace_matches(step.pattern, token, step.content, max_bytes - total, scratch, file));
      total += out.back().size();
    }
    return out;
  }

  Tokens operator()(const DecodeStrip& step) const {
    std::string mark;
    append_utf8(mark, step.content);
    Tokens out = tokens;
    for (std::string& token : out) {
      std::string_view rest = token;
      for (std::size_t i = 0; i < step.start && rest.starts_with(mark); ++i)
        rest.remove_prefix(mark.size());
      for (std::size_t i = 0; i < step.stop && rest.ends_with(mark); ++i)
        rest.remove_suffix(mark.size());
      token = std::string(rest);
    }
    return out;
  }

  Tokens operator()(const DecodeMetaspace& step) const {
    Tokens out;
    bool first = true;
    for (const std::string& token : tokens) {
      std::string text;
      for (std::size_t at = 0; at < token.size();) {
        const Utf8Char c = decode_utf8(token, at);
        if (c.code != step.replacement) {
          text += std::string_view(token).substr(at, c.length);
        } else if (!first || step.scheme == PrependScheme::kNever) {
          text.push_back(' ');
        }
        at += c.length;
      }
      out.push_back(std::move(text));
      first = false;
    }
    return out;
  }

  Tokens operator()(const DecodeWordPiece& step) const {
    Tokens out = tokens;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i > 0) {
        const bool inside = out[i].starts_with(step.prefix);
        out[i] = inside ? out[i].substr(step.prefix.size()) : " " + out[i];
      }
      if (step.cleanup) out[i] = clean_up(std::move(out[i]));
    }
    return out;
  }

  Tokens operator()(const DecodeBpe& step) const {
    Tokens out;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      out.push_back(replace_all(tokens[i], step.suffix, i + 1 < tokens.size() ? " " : ""));
    }
    return out;
  }
};

// The same for one token that is not the first, as bytes.
struct BytesOfToken {
  static constexpr std::size_t kMaxTokenBytes = std::size_t{1} << 20;
  std::string token;
  RegexScratch& scratch;
  const std::string& file;
  bool fused = false;  // steps that follow see whole texts
  bool bytes = false;  // nothing is left to be done

  void operator()(const DecodeByteLevel&) {
    std::string out;
    append_bytes(out, token);
    token = std::move(out);
    bytes = true;
  }
  void operator()(const DecodeByteFallback&) {
    const auto byte = fallback_byte(token);
    if (!byte) return;
    token.assign(1, *byte);
    bytes = true;
  }
  void operator()(const DecodeFuse&) { fused = true; }
  template <typename Step>
  void operator()(const Step& step) {
    // What is taken off the ends of a text is not this token's.
    if (fused && std::is_same_v<Step, DecodeStrip>) return;
    token = ApplyDecode{{"", token, ""}, kMaxTokenBytes, scratch, file}(step)[1];
  }
};

}  // namespace

std::string decode_tokens(const Decoder& decoder, std::vector<std::string> tokens,
                          std::size_t max_bytes, RegexScratch& scratch, const std::string& file) {
  std::size_t total = 0;
  for (const std::string& token : tokens) {
    total += token.size();
    if (total > max_bytes) {
      throw Error({.kind = ErrorKind::kGeneral,
                   .code = "E_TOK_TEXT_SIZE",
                   .file = file,
                   .where = "text of " + std::to_string(tokens.size()) + " tokens",
                   .expected = "at most " + std::to_string(max_bytes) + " bytes",
                   .found = "more"});
    }
  }
  ApplyDecode apply{std::move(tokens), max_bytes, scratch, file};
  for (const DecodeStep& step : decoder) apply.tokens = std::visit(apply, step);
  std::string out;
  for (const std::string& token : apply.tokens) out += token;
  return out;
}

std::string token_bytes(const Decoder& decoder, std::string_view token, RegexScratch& scratch,
                        const std::string& file) {
  BytesOfToken out{std::string(token), scratch, file};
  for (const DecodeStep& step : decoder) {
    if (!out.bytes) std::visit(out, step);
  }
  return std::move(out.token);
}

}  // namespace tessera
