// Regular expressions of tokenizer files: written for Oniguruma (Ruby syntax), run by PCRE2 after a
// translation that keeps their meaning, with one step budget for a whole text. What the translation
// does not cover is refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

// Part of a text, in bytes.
struct Span {
  std::size_t begin = 0, end = 0;
  bool is_match = false;
};

// Where a pattern stands: named in messages.
struct PatternPlace {
  std::string file;
  std::string path;
};

// Oniguruma pattern -> PCRE2 pattern. Error kModel, E_TOK_REGEX_FEATURE, for constructs that the
// two read differently and that no published tokenizer needs.
std::string translate_regex(std::string_view pattern, const PatternPlace& place);

// Items of a PCRE2 class for a named set of the reference ("rust-word", "onig-word",
// "rust-number", "space").
std::string class_items(std::string_view name);

// What one text may still spend, and the matching state that is reused for all its pieces.
class RegexScratch {
 public:
  // `file` is the tokenizer's name in messages.
  RegexScratch(std::size_t text_bytes, std::string file);
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

  // Error kGeneral, E_TOK_BUDGET, once more than the budget is spent.
  void spend(std::uint64_t steps);
  [[noreturn]] void fail_budget() const;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
  std::string file_;
};

// A compiled pattern; const and shared by threads.
class Regex {
 public:
  static constexpr std::size_t kMaxPatternBytes = 4096;

  // Error kModel: E_TOK_REGEX_LENGTH, E_TOK_REGEX_FEATURE, E_TOK_REGEX (does not compile).
  static Regex compile(std::string_view pattern, const PatternPlace& place);
  // A pattern that is already PCRE2's: one of our own.
  static Regex compile_native(std::string_view pattern, const PatternPlace& place);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Cuts `text` (valid UTF-8) into matches and what lies between them, in order, leftmost match
  // first; an empty match right after a match does not count. Error kGeneral, E_TOK_BUDGET.
  void cut(std::string_view text, RegexScratch& scratch, std::vector<Span>& out) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<const Code> code);
  std::unique_ptr<const Code> code_;
};

// A Regex or a literal string, as `{"Regex": ...}` and `{"String": ...}` give it.
class Pattern {
 public:
  explicit Pattern(Regex regex);
  explicit Pattern(std::string literal);  // not empty
  void cut(std::string_view text, RegexScratch& scratch, std::vector<Span>& out) const;

 private:
  std::unique_ptr<Regex> regex_;
  std::string literal_;
};

}  // namespace tessera
