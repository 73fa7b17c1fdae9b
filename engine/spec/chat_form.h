// How a family writes a conversation with images, as strings: one form a published template.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

enum class ChatLayout : std::uint8_t {
  kImagesFirst,  // all images of a turn, each with a line break, then its texts
  kImagesAbove,  // all images of a turn, its videos, then its texts, a line break before each
  kInOrder,      // as given
  kSpaced,       // as given, a space after images that stand before all text
  kJanus,        // as given, line breaks around images, spaces between texts, ends trimmed
};

// All strings and lists have static storage.
struct ChatForm {
  std::string_view name;  // "llava-1.5"
  ChatLayout layout = ChatLayout::kInOrder;
  std::string_view begin;           // of the whole prompt
  // What the processor puts before a template's text, even if that begins so; empty = nothing.
  std::string_view processor_begin;
  std::string_view implied_system;  // text of the system turn when none is given
  std::string_view system_open, system_close;
  std::string_view user_open, user_close;
  std::string_view assistant_open, assistant_close;
  std::string_view text_close;  // after each text part
  std::string_view generation;
  std::string_view image, image_open, image_close;  // the token of one visual row, its frame
  std::string_view video;     // the token of one visual row of a video, if there is one
  // After the opening of an image: its rows and columns of tokens, "32*40", and this; empty = neither.
  std::string_view image_grid_close;
  // After the opening: the tokens "<reservedNNNNN>" of rows and of columns, two by two, counted from
  // this number; 0 = none.
  std::int64_t image_size_token = 0;
  bool frames_itself = false;  // the processor writes the frame, not the template
  bool tiles = false;          // SmolVLM's frame with rows and columns of tiles
  bool tight_images = false;  // no space between "User:" and an image
  bool needs_template = false;  // how such models write turns is not known
  bool frame_times = false;   // a video without a token: its length and the times of its frames
  // Special tokens in the strings above: they stand in control segments. The names of rows and
  // columns of tiles are control besides.
  std::span<const std::string_view> special;
};

}  // namespace tessera
