// Conversations with images as the text a published model was trained on, in the form of its
// family (engine/families has them). Written from the templates that the models' processors
// publish; tests compare with those, rendered.
//
// A prompt is a list of segments. Special tokens stand in control segments of their own; all else,
// role words and what people wrote, is plain and must be encoded with SpecialText::kPlain, so that
// a text that spells "<|im_start|>" or "<image>" stays a text. Families that mark turns with plain
// words ("USER:", "[INST]") cannot tell such words of a user from their own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/chat_form.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

enum class ChatRole : std::uint8_t { kSystem, kUser, kAssistant };

struct ChatPart {
  bool is_image = false;
  std::string text;      // of a text part
  bool is_video = false;  // an image part that stands for a whole video
  static ChatPart image() { return {true, {}}; }
  // For forms with a video token; a programmer's error elsewhere.
  static ChatPart video() { return {true, {}, true}; }
};

struct ChatTurn {
  ChatRole role = ChatRole::kUser;
  std::vector<ChatPart> parts;
};

struct PromptSegment {
  enum class Kind : std::uint8_t {
    kPlain,    // encode with SpecialText::kPlain
    kControl,  // special tokens only; encode with SpecialText::kControl
    kImage,    // control too: the placeholder of one image, to be expanded
  };
  Kind kind = Kind::kPlain;
  std::string text;
  bool operator==(const PromptSegment&) const = default;
};
using Prompt = std::vector<PromptSegment>;

// The conversation as segments; neighbours of one kind are joined, except images. A system turn
// may only come first (Error kUsage, E_CHAT_ROLE) and holds no image (E_CHAT_IMAGES). With
// add_generation_prompt the text ends where the model's answer begins.
Prompt chat_prompt(const ChatForm& form, const std::vector<ChatTurn>& turns,
                   bool add_generation_prompt);

// The same as one string, each image as its placeholder token once. For showing and comparing:
// encoding it would take special tokens in users' texts for real.
std::string render_chat(const ChatForm& form, const std::vector<ChatTurn>& turns,
                        bool add_generation_prompt);
std::string prompt_text(const Prompt& prompt);

// What the model sees of one image or video: `tokens` visual tokens, for SmolVLM and Idefics3 of
// each of rows x columns tiles and of the whole image besides; rows = columns = 0: the whole
// alone.
struct ImageLayout {
  std::int64_t tokens = 0;
  int rows = 0, columns = 0;
  bool video = false;  // the part was ChatPart::clip()
  std::int64_t grid_rows = 0, grid_columns = 0;  // for forms that write them
};

// Replaces the placeholder of each image, in order, by one token a visual row, with the frame the
// family puts around them. Error kUsage, E_CHAT_IMAGES, if there are more or fewer layouts than
// images; a layout out of range is a programmer's error.
Prompt expand_images(const ChatForm& form, const Prompt& prompt,
                     std::span<const ImageLayout> layouts);

// Ids of the segments as one text, without what the tokenizer's template puts around one.
std::vector<std::int32_t> encode_segments(const TextTokenizer& tokenizer, const Prompt& prompt);
// Ids of the prompt: those of the segments as one text, in what the tokenizer's template puts around
// a text (BOS ...), unless the prompt begins so already.
std::vector<std::int32_t> encode_prompt(const TextTokenizer& tokenizer, const Prompt& prompt);

}  // namespace tessera
