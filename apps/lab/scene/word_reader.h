// Reads the words of a caption one after another and names the place of the first that does not
// fit. Internal to the worlds.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

// The enumerator of that number; enumerations of the worlds count from 0.
template <typename Enum>
constexpr Enum enum_at(int index) {
  return static_cast<Enum>(index);
}

class WordReader {
 public:
  explicit WordReader(std::string_view text) : text_(text) {}

  bool is_next(std::string_view expected) const {
    return text_.substr(at_, expected.size()) == expected;
  }

  bool accept(std::string_view expected) {
    if (!is_next(expected)) return false;
    at_ += expected.size();
    return true;
  }

  void need(std::string_view expected) {
    if (!accept(expected)) fail("\"" + std::string(expected) + "\"");
  }

  // The place in `words` of the one that comes next, or -1.
  int one_of(std::span<const std::string_view> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (accept(words[i])) return narrow<int>(i);
    }
    return -1;
  }

  int need_one_of(std::span<const std::string_view> words) {
    const int found = one_of(words);
    if (found >= 0) return found;
    std::string expected = "one of";
    for (const std::string_view word : words) expected += " " + std::string(word);
    fail(expected);
  }

  void need_end() const {
    if (at_ != text_.size()) fail("the end of the caption");
  }

  std::size_t place() const { return at_; }
  // To a place() of before.
  void back_to(std::size_t place) { at_ = place; }

  [[noreturn]] void fail(const std::string& expected) const {
    const std::string_view rest = text_.substr(at_, 24);
    throw Error{{.kind = ErrorKind::kUsage,
                 .code = "E_SCENE_CAPTION",
                 .file = "caption",
                 .where = "byte " + std::to_string(at_),
                 .expected = expected,
                 .found = rest.empty() ? "the end" : "\"" + std::string(rest) + "\"",
                 .hint = {}}};
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace tessera
