// One pass when the template is read, none over what is put in.
#include "apps/captions/prompt_template.h"

#include "engine/core/error.h"

namespace tessera {

CaptionPrompt::CaptionPrompt(std::string_view text) {
  static constexpr std::string_view kWord =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text[at] == '{' ? text.find_first_not_of(kWord, at + 1) : at;
    const bool is_field = end != std::string_view::npos && end > at + 1 && text[end] == '}';
    if (!is_field) {
      plain += text[at++];
      continue;
    }
    const std::string_view word = text.substr(at + 1, end - at - 1);
    if (word != "name" && word != "directory") {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_PROMPT_FIELD",
                   .where = "prompt, byte " + std::to_string(at),
                   .expected = "{name} or {directory}",
                   .found = "{" + std::string(word) + "}"});
    }
    pieces_.push_back({std::move(plain), word == "name" ? Field::kName : Field::kDirectory});
    plain.clear();
    at = end + 1;
  }
  pieces_.push_back({std::move(plain)});
}

std::string CaptionPrompt::fill(std::string_view name, std::string_view directory) const {
  std::string out;
  for (const Piece& piece : pieces_) {
    out += piece.text;
    if (piece.field == Field::kName) out += name;
    if (piece.field == Field::kDirectory) out += directory;
  }
  return out;
}

}  // namespace tessera
