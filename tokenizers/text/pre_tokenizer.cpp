// See pre_tokenizer.h. A cut gives spans that are matches or lie between matches; the behaviour
// then joins or drops spans; empty words vanish.
#include "tokenizers/text/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/character_classes.h"

namespace tessera {

namespace {

// Joins or removes spans as the behaviour says.
void settle(std::vector<Span>& spans, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kIsolated) return;
  if (behavior == SplitBehavior::kRemoved) {
    std::erase_if(spans, [](const Span& span) { return span.is_match; });
    return;
  }
  std::vector<Span> out;
  bool previous = false;
  const auto keep = [&](const Span& span, bool join) {
    if (join && !out.empty()) {
      out.back().begin = std::min(out.back().begin, span.begin);
      out.back().end = std::max(out.back().end, span.end);
    } else {
      out.push_back(span);
    }
    previous = span.is_match;
  };
  if (behavior == SplitBehavior::kContiguous) {
    for (const Span& span : spans) keep(span, span.is_match == previous);
  } else if (behavior == SplitBehavior::kMergedWithPrevious) {
    for (const Span& span : spans) keep(span, span.is_match && !previous);
  } else {
    for (auto span = spans.rbegin(); span != spans.rend(); ++span)
      keep(*span, span->is_match && !previous);
    std::reverse(out.begin(), out.end());
  }
  spans = std::move(out);
}

std::string_view view(const Words& words, const Words::Word& word) {
  return std::string_view(words.text).substr(word.begin, word.end - word.begin);
}

// find_spans(text, spans) gives the matches in one word and what lies between.
template <class FindSpans>
std::vector<Words::Word> cut_words(const Words& words, SplitBehavior behavior,
                                   FindSpans&& find_spans) {
  std::vector<Words::Word> out;
  out.reserve(words.words.size() + 16);
  std::vector<Span> spans;
  for (const Words::Word& word : words.words) {
    spans.clear();
    find_spans(view(words, word), spans);
    settle(spans, behavior);
    for (const Span& span : spans) {
      if (span.begin == span.end) continue;
      out.push_back(
          {word.begin + span.begin, word.begin + span.end, word.at_start && span.begin == 0});
    }
  }
  return out;
}

void find_punctuation(std::string_view text, std::vector<Span>& out) {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (is_punctuation(c.code)) {
      if (done < at) out.push_back({done, at, false});
      done = at + c.length;
      out.push_back({at, done, true});
    }
    at += c.length;
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

// Appends a rewritten word to a new buffer.
void append_word(Words& out, std::string_view text, bool at_start) {
  if (text.empty()) return;
  const std::size_t begin = out.text.size();
  out.text += text;
  out.words.push_back({begin, out.text.size(), at_start});
}

struct ApplySplit {
  Words& words;
  RegexScratch& scratch;

  void operator()(const SplitWords& split) const {
    words.words =
        cut_words(words, split.behavior, [&](std::string_view text, std::vector<Span>& spans) {
          split.pattern.cut(text, scratch, spans);
          if (!split.invert) return;
          for (Span& span : spans) span.is_match = !span.is_match;
        });
  }

  void operator()(const PunctuationWords& step) const {
    words.words = cut_words(words, step.behavior, find_punctuation);
  }

  void operator()(const ByteLevelWords& step) const {
    if (step.add_prefix_space) {
      Words spaced;
      for (const Words::Word& word : words.words) {
        const std::string_view text = view(words, word);
        append_word(spaced, (text.starts_with(' ') ? "" : " ") + std::string(text), word.at_start);
      }
      words = std::move(spaced);
    }
    for (const SplitWords& cut : step.cut) (*this)(cut);
    Words letters;
    letters.text.reserve(words.text.size() * 3 / 2);
    letters.words.reserve(words.words.size());
    for (const Words::Word& word : words.words) {
      const std::size_t begin = letters.text.size();
      for (char c : view(words, word)) letters.text += byte_letter(byte_of(c));
      letters.words.push_back({begin, letters.text.size(), word.at_start});
    }
    words = std::move(letters);
  }

  void operator()(const MetaspaceWords& step) const {
    Words marked;
    for (const Words::Word& word : words.words) {
      std::string text;
      for (char c : view(words, word)) {
        if (c == ' ') {
          text += step.replacement;
        } else {
          text.push_back(c);
        }
      }
      const bool wanted = step.scheme == PrependScheme::kAlways ||
                          (step.scheme == PrependScheme::kFirst && word.at_start);
      if (wanted && !text.starts_with(step.replacement)) text = step.replacement + text;
      append_word(marked, text, word.at_start);
    }
    words = std::move(marked);
    if (step.split)
      (*this)(SplitWords{Pattern(step.replacement), SplitBehavior::kMergedWithNext, false});
  }
};

// Printable Latin-1 stands for itself; the other bytes, in order, for U+0100 and up (GPT-2).
struct ByteAlphabet {
  std::array<std::string, 256> letters;
  std::array<int, 0x200> bytes;

  ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const char32_t letter = prints ? byte : next++;
      append_utf8(letters[byte], letter);
      bytes[letter] = narrow<int>(byte);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_letter(unsigned char byte) { return alphabet().letters[byte]; }

int letter_byte(char32_t letter) {
  return letter < alphabet().bytes.size() ? alphabet().bytes[letter] : -1;
}

Words pre_tokenize(const PreTokenizer& steps, std::string text, bool at_start,
                   RegexScratch& scratch) {
  Words words;
  words.text = std::move(text);
  if (!words.text.empty()) words.words.push_back({0, words.text.size(), at_start});
  for (const PreTokenizeStep& step : steps) std::visit(ApplySplit{words, scratch}, step);
  return words;
}

}  // namespace tessera
