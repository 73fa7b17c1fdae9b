// Prompts with places for the name of an image and of its folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// {name}: base name without its ending; {directory}: name of the folder that holds it. Values are
// put in as they are, never read again. Any other {word} is Error kUsage (E_PROMPT_FIELD) naming
// it; braces around anything but a word stand for themselves.
class CaptionPrompt {
 public:
  explicit CaptionPrompt(std::string_view text);
  std::string fill(std::string_view name, std::string_view directory) const;
  bool has_fields() const { return pieces_.size() > 1; }

 private:
  enum class Field : unsigned char { kNone, kName, kDirectory };
  struct Piece {
    std::string text;
    Field field = Field::kNone;
  };
  std::vector<Piece> pieces_;
};

}  // namespace tessera
