// Foreign text on its way to terminals, logs and lists. Oracle: nothing that comes out moves a
// cursor, begins an escape sequence, turns the writing direction or breaks a line; what was escaped
// can be told from what was not, so that the text can be had back; a JSON line parses to the text.
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "tests/fuzz/targets/fuzz_support.h"

namespace tessera::fuzz {
namespace {

// Written down once more, from the tables of Unicode: C0, DEL, C1, line and paragraph separators,
// the marks, embeddings, overrides and isolates of the bidirectional algorithm.
bool is_dangerous(char32_t c) {
  const bool control = c <= 0x1f || (c >= 0x7f && c <= 0x9f);
  const bool mark = c == 0x061c || c == 0x200e || c == 0x200f;
  const bool embedding = c >= 0x202a && c <= 0x202e;
  const bool isolate = c >= 0x2066 && c <= 0x2069;
  return control || mark || embedding || isolate || c == 0x2028 || c == 0x2029;
}

bool is_harmless(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid || is_dangerous(c.code)) return false;
    at += c.length;
  }
  return true;
}

// The text that was escaped: \xNN is a byte, \u{N...} a character.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const std::size_t end = rest.find('}');
    if (rest.starts_with("\\u{") && end != std::string_view::npos) {
      append_utf8(out, static_cast<char32_t>(
                           std::stoul(std::string(rest.substr(3, end - 3)), nullptr, 16)));
      at += end + 1;
    } else if (rest.starts_with("\\x") && rest.size() >= 4) {
      out += static_cast<char>(std::stoul(std::string(rest.substr(2, 2)), nullptr, 16));
      at += 4;
    } else {
      out += text[at++];
    }
  }
  return out;
}

void check_terminal(std::string_view text) {
  const std::string whole = escape_for_terminal(text, 1 << 20);
  require(is_harmless(whole), "nothing dangerous is left");
  // Text that holds an escape of its own reads the same as what it stands for.
  const bool plain =
      text.find("\\x") == std::string_view::npos && text.find("\\u{") == std::string_view::npos;
  if (plain) require(unescaped(whole) == text, "the text can be had back");
  for (const std::size_t most : {3, 4, 7, 16, 64}) {
    const std::string cut = escape_for_terminal(text, most);
    require(cut.size() <= most, "the limit holds");
    require(is_harmless(cut), "nothing dangerous is left of what was cut");
    if (cut == whole) continue;
    require(cut.ends_with("..."), "a cut is seen");
    require(whole.starts_with(cut.substr(0, cut.size() - 3)), "a cut is a beginning");
  }
}

void check_error(std::string_view text) {
  const std::string line(text);
  const std::string message = format_error(
      {.code = "E_X", .file = line, .where = line, .expected = line, .found = line, .hint = line});
  require(is_harmless(message), "an error is one harmless line");
  require(message.size() <= 1024, "an error has at most 1024 bytes");
}

void check_json(std::string_view text) {
  const std::string line = json_line(Json{{std::string(text), std::string(text)}});
  require(is_harmless(line), "a line of JSON is harmless");
  const Json back = Json::parse(line, nullptr, false);
  require(back.is_object() && back.size() == 1, "a line of JSON is JSON");
  if (is_valid_utf8(text)) {
    require(back.begin().key() == text && back.begin().value() == text, "the text comes back");
  }
}

void check_names(std::string_view text) {
  const std::string stable = stable_text(text);
  require(is_harmless(stable), "a stable name is harmless");
  require(name_of_stable(stable) == text, "the name comes back");
  // Captions keep line breaks and tabs.
  std::string caption = clean_caption(text);
  std::erase_if(caption, [](char c) { return c == '\n' || c == '\t'; });
  require(is_harmless(caption), "a caption is harmless");
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace std::string_literals;
  tessera::fuzz::write_seeds_if_asked({"a red cube"s, "\x1b[31mred\x1b]8;;x\x07"s, "a\r\nb\tc"s,
                                       "\xc2\x9b\xe2\x80\xae\xe2\x81\xa6"s, "\xff\xc0\x80 raw:%41"s,
                                       "\\x41\\u{1b}"s});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::fuzz;
  const std::string_view text = as_text(data, size);
  check_terminal(text);
  check_error(text);
  check_json(text);
  check_names(text);
  return 0;
}

// Characters from the edges of what is dangerous, next to libFuzzer's own changes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  static constexpr char32_t kCharacters[] = {
      0x00,   0x07,   0x0a,   0x1b,   0x1f,   0x20,   0x7e,   0x7f,    0x80,
      0x85,   0x9b,   0x9f,   0xa0,   0x061c, 0x200e, 0x200f, 0x2028,  0x2029,
      0x202a, 0x202e, 0x202f, 0x2066, 0x2069, 0xfeff, 0xfffd, 0x10ffff};
  Choice choice(seed);
  if (choice.one_in(3)) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(as_text(data, size)), piece;
  tessera::append_utf8(piece, kCharacters[choice.below(std::size(kCharacters))]);
  if (choice.one_in(8)) piece.pop_back();  // the beginning of a character, or nothing
  text.insert(choice.below(text.size() + 1), piece);
  return release(text, data, max_size);
}
