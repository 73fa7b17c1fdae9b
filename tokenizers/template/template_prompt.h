// A rendered template as a prompt: special tokens that the template writes become control, images'
// placeholders are found, and all else, texts of data above all, stays plain.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/template/folder_template.h"
#include "tokenizers/text/chat_template.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

// The special tokens of a tokenizer, to be found in a text: the leftmost, then the longest.
class SpecialTexts {
 public:
  explicit SpecialTexts(const TextTokenizer& tokenizer);
  // The token that `text` has at byte `at`; empty if none.
  std::string_view at(std::string_view text, std::size_t at) const;

 private:
  std::array<std::vector<std::string>, 256> by_first_byte_;  // longest first
};

// Segments of the rendered text; each placeholder (`image`, and `video` if not empty) that the
// template wrote is a segment of kind kImage.
Prompt template_prompt(const Rendered& rendered, const SpecialTexts& special,
                       std::string_view image, std::string_view video);

// What a family's processor does with an image: its tokens, and where a template wants texts, how
// an image is written there.
struct TemplateImages {
  std::string image, video;   // placeholders
  std::string open, close;    // in texts: around each
  bool images_first = false;  // in texts: each with a line break, in front of the words
};

// The turns as the template writes them. Error as ChatTemplate::render(); kModel,
// E_TEMPLATE_IMAGES, for a template that does not place every image and video of the turns.
Prompt chat_prompt(const FolderTemplate& of, const std::vector<ChatTurn>& turns,
                   bool add_generation_prompt, const SpecialTexts& special,
                   const TemplateImages& images);

}  // namespace tessera
