// A form is a row of strings; the walk over turns is shared. Strings of a form are ours, so special
// tokens are found in them by name; texts of people are never searched.
#include "tokenizers/text/chat_template.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "tokenizers/text/unicode.h"

namespace tessera {

namespace {

using Kind = PromptSegment::Kind;

[[noreturn]] void fail(const char* code, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .where = "conversation",
               .expected = std::move(expected),
               .found = std::move(found)});
}

void add(Prompt& prompt, Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!prompt.empty() && prompt.back().kind == kind && kind != Kind::kImage) {
    prompt.back().text += text;
  } else {
    prompt.push_back({kind, std::string(text)});
  }
}

// A string of the form: its special tokens become control.
void add_own(Prompt& prompt, const ChatForm& form, std::string_view text) {
  while (!text.empty()) {
    std::size_t at = text.size(), length = 0;
    for (const std::string_view token : form.special) {
      const std::size_t found = text.find(token);
      if (found < at) at = found, length = token.size();
    }
    add(prompt, Kind::kPlain, text.substr(0, at));
    add(prompt, Kind::kControl, text.substr(at, length));
    text.remove_prefix(at + length);
  }
}

void add_image(Prompt& prompt, const ChatForm& form, bool video) {
  expects(!video || !form.video.empty(), "a family with a token for videos");
  std::string text(form.image_open);
  // A processor frames an image only when it is expanded.
  if (form.frames_itself) text.clear();
  text += video ? form.video : form.image;
  if (!form.frames_itself) text += form.image_close;
  add(prompt, Kind::kImage, text);
}

void add_janus_parts(Prompt& prompt, const ChatForm& form, const std::vector<ChatPart>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool first = i == 0, last = i + 1 == parts.size();
    if (parts[i].is_image) {
      if (!first) add(prompt, Kind::kPlain, "\n");
      add_image(prompt, form, parts[i].is_video);
      if (!last) add(prompt, Kind::kPlain, "\n");
      continue;
    }
    if (!first && !parts[i - 1].is_image) add(prompt, Kind::kPlain, " ");
    add(prompt, Kind::kPlain, strip_ends(parts[i].text, first, last));
  }
}

void add_parts_above(Prompt& prompt, const ChatForm& form, const std::vector<ChatPart>& parts) {
  for (const bool videos : {false, true}) {
    for (const ChatPart& part : parts) {
      if (part.is_image && part.is_video == videos) add_image(prompt, form, videos);
    }
  }
  for (const ChatPart& part : parts) {
    if (part.is_image) continue;
    add(prompt, Kind::kPlain, "\n");
    add(prompt, Kind::kPlain, part.text);
    add_own(prompt, form, form.text_close);
  }
}

void add_parts(Prompt& prompt, const ChatForm& form, const std::vector<ChatPart>& parts) {
  if (form.layout == ChatLayout::kJanus) return add_janus_parts(prompt, form, parts);
  if (form.layout == ChatLayout::kImagesAbove) return add_parts_above(prompt, form, parts);
  const bool images_first = form.layout == ChatLayout::kImagesFirst;
  for (const ChatPart& part : parts) {
    if (!part.is_image || !images_first) continue;
    add_image(prompt, form, part.is_video);
    add(prompt, Kind::kPlain, "\n");
  }
  bool before_text = form.layout == ChatLayout::kSpaced;
  for (const ChatPart& part : parts) {
    if (part.is_image && images_first) continue;
    before_text = before_text && part.is_image;
    if (part.is_image) {
      add_image(prompt, form, part.is_video);
      if (before_text) add(prompt, Kind::kPlain, " ");
    } else {
      add(prompt, Kind::kPlain, part.text);
      add(prompt, Kind::kPlain, form.text_close);
    }
  }
}

std::string_view opening(const ChatForm& form, const ChatTurn& turn) {
  std::string_view open = turn.role == ChatRole::kSystem ? form.system_open
                          : turn.role == ChatRole::kUser ? form.user_open
                                                         : form.assistant_open;
  if (form.tight_images && !turn.parts.empty() && turn.parts.front().is_image) {
    open.remove_suffix(1);
  }
  return open;
}

std::string_view closing(const ChatForm& form, ChatRole role) {
  return role == ChatRole::kSystem ? form.system_close
         : role == ChatRole::kUser ? form.user_close
                                   : form.assistant_close;
}

void check_turns(const std::vector<ChatTurn>& turns) {
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role != ChatRole::kSystem) continue;
    if (i > 0)
      fail("E_CHAT_ROLE", "a system turn at the beginning", "one as turn " + std::to_string(i + 1));
    for (const ChatPart& part : turns[i].parts) {
      if (part.is_image) fail("E_CHAT_IMAGES", "no image in the system turn", "one");
    }
  }
}

// Janus leaves the end of the last turn open, and an empty answer without its space.
void add_janus_turn(Prompt& prompt, const ChatForm& form, const ChatTurn& turn, bool open_end) {
  std::string_view open = opening(form, turn);
  const bool empty =
      turn.parts.size() == 1 && !turn.parts[0].is_image && turn.parts[0].text.empty();
  if (open_end && empty && turn.role == ChatRole::kAssistant) open.remove_suffix(1);
  add_own(prompt, form, open);
  add_parts(prompt, form, turn.parts);
  if (!open_end) add_own(prompt, form, closing(form, turn.role));
}

std::string repeated(std::string_view token, std::int64_t count) {
  std::string out;
  out.reserve(token.size() * to_size(count));
  for (std::int64_t i = 0; i < count; ++i) out += token;
  return out;
}

std::string size_token(std::int64_t number) {
  const std::string digits = std::to_string(number);
  return "<reserved" + std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits + ">";
}

// Tiles row by row, each after its place; a line break a row, one more before the whole image.
void add_tiles(Prompt& prompt, const ChatForm& form, const ImageLayout& layout) {
  static constexpr std::string_view kFake = "<fake_token_around_image>";
  const std::string visual = repeated(form.image, layout.tokens);
  for (int row = 1; row <= layout.rows; ++row) {
    for (int column = 1; column <= layout.columns; ++column) {
      add(prompt, Kind::kControl, kFake);
      add(prompt, Kind::kControl,
          "<row_" + std::to_string(row) + "_col_" + std::to_string(column) + ">");
      add(prompt, Kind::kControl, visual);
    }
    add(prompt, Kind::kPlain, "\n");
  }
  if (layout.rows > 0) add(prompt, Kind::kPlain, "\n");
  add(prompt, Kind::kControl, kFake);
  add(prompt, Kind::kControl, "<global-img>");
  add(prompt, Kind::kControl, visual);
  add(prompt, Kind::kControl, kFake);
}

}  // namespace

Prompt chat_prompt(const ChatForm& form, const std::vector<ChatTurn>& turns,
                   bool add_generation_prompt) {
  check_turns(turns);
  Prompt prompt;
  add_own(prompt, form, form.begin);
  const bool has_system = !turns.empty() && turns.front().role == ChatRole::kSystem;
  if (!has_system && !form.implied_system.empty()) {
    add_own(prompt, form, form.system_open);
    add(prompt, Kind::kPlain, form.implied_system);
    add_own(prompt, form, form.system_close);
  }
  for (const ChatTurn& turn : turns) {
    if (form.layout == ChatLayout::kJanus && turn.role != ChatRole::kSystem) {
      add_janus_turn(prompt, form, turn, &turn == &turns.back() && !add_generation_prompt);
      continue;
    }
    add_own(prompt, form, opening(form, turn));
    add_parts(prompt, form, turn.parts);
    add_own(prompt, form, closing(form, turn.role));
  }
  if (add_generation_prompt) add_own(prompt, form, form.generation);
  return prompt;
}

std::string prompt_text(const Prompt& prompt) {
  std::string out;
  for (const PromptSegment& segment : prompt) out += segment.text;
  return out;
}

std::string render_chat(const ChatForm& form, const std::vector<ChatTurn>& turns,
                        bool add_generation_prompt) {
  return prompt_text(chat_prompt(form, turns, add_generation_prompt));
}

Prompt expand_images(const ChatForm& form, const Prompt& prompt,
                     std::span<const ImageLayout> layouts) {
  const auto images = std::count_if(prompt.begin(), prompt.end(),
                                    [](const auto& s) { return s.kind == Kind::kImage; });
  if (to_size(images) != layouts.size()) {
    fail("E_CHAT_IMAGES", std::to_string(layouts.size()) + " images",
         std::to_string(images) + " places for images");
  }
  Prompt out;
  std::size_t next = 0;
  for (const PromptSegment& segment : prompt) {
    if (segment.kind != Kind::kImage) {
      add(out, segment.kind, segment.text);
      continue;
    }
    const ImageLayout& layout = layouts[next++];
    expects(layout.tokens > 0 && layout.tokens <= (1 << 15), "an image has visual tokens");
    expects((layout.rows > 0) == (layout.columns > 0) && layout.rows >= 0 && layout.rows <= 64 &&
                layout.columns >= 0 && layout.columns <= 64 && (form.tiles || layout.rows == 0),
            "tiles in rows and columns, where the family has them");
    if (form.tiles) {
      add_tiles(out, form, layout);
    } else {
      add(out, Kind::kControl, form.image_open);
      if (!form.image_grid_close.empty()) {
        add(out, Kind::kPlain,
            std::to_string(layout.grid_rows) + "*" + std::to_string(layout.grid_columns));
        add(out, Kind::kControl, form.image_grid_close);
      }
      if (form.image_size_token > 0) {
        add(out, Kind::kControl, size_token(form.image_size_token + layout.grid_rows / 2));
        add(out, Kind::kControl, size_token(form.image_size_token + layout.grid_columns / 2));
      }
      add(out, Kind::kControl, repeated(layout.video ? form.video : form.image, layout.tokens));
      add(out, Kind::kControl, form.image_close);
    }
  }
  return out;
}

std::vector<std::int32_t> encode_segments(const TextTokenizer& tokenizer, const Prompt& prompt) {
  std::vector<TextStretch> stretches;
  stretches.reserve(prompt.size());
  for (const PromptSegment& segment : prompt) {
    const bool plain = segment.kind == Kind::kPlain;
    stretches.push_back({segment.text, plain ? SpecialText::kPlain : SpecialText::kControl});
  }
  return tokenizer.encode(stretches, false);
}

std::vector<std::int32_t> encode_prompt(const TextTokenizer& tokenizer, const Prompt& prompt) {
  const std::vector<std::int32_t> begin = tokenizer.ids_before(), end = tokenizer.ids_after();
  std::vector<std::int32_t> ids = encode_segments(tokenizer, prompt);
  // A template that writes the beginning itself: then nothing is put around it, as in the
  // reference.
  const bool again = !begin.empty() && !prompt.empty() && prompt.front().kind != Kind::kPlain &&
                     ids.size() >= begin.size() &&
                     std::equal(begin.begin(), begin.end(), ids.begin());
  if (again) return ids;
  ids.insert(ids.begin(), begin.begin(), begin.end());
  ids.insert(ids.end(), end.begin(), end.end());
  return ids;
}

}  // namespace tessera
