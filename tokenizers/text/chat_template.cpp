// A family is one row of strings; the walk over turns is shared. Strings of the table are ours, so
// special tokens are found in them by name; texts of people are never searched.
#include "tokenizers/text/chat_template.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

enum class Layout : std::uint8_t {
  kImagesFirst,  // all pictures of a turn, each with a line break, then its texts
  kInOrder,      // as given
  kJanus,        // as given, line breaks around pictures, spaces between texts, ends trimmed
};

struct Form {
  std::string_view name;
  Layout layout = Layout::kInOrder;
  std::string_view begin;           // of the whole prompt
  std::string_view implied_system;  // text of the system turn when none is given
  std::string_view system_open, system_close;
  std::string_view user_open, user_close;
  std::string_view assistant_open, assistant_close;
  std::string_view text_close;  // after each text part
  std::string_view generation;
  std::string_view image, image_open, image_close;  // the token of one visual row, its frame
  std::string_view video;     // the token of one visual row of a clip, if there is one
  bool tiles = false;         // SmolVLM's frame with rows and columns of tiles
  bool tight_images = false;  // no space between "User:" and a picture
};

constexpr std::string_view kVicunaUser =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions.";
constexpr std::string_view kVicunaHuman =
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the human's questions.";
constexpr std::string_view kJanusSystem =
    "You are a helpful language and vision assistant. You are able to understand the visual "
    "content that the user provides, and assist the user with a variety of tasks using natural "
    "language.";
constexpr std::string_view kJanusEnd = "<\uff5cend\u2581of\u2581sentence\uff5c>";

constexpr Form kVicuna = {.layout = Layout::kImagesFirst,
                          .user_open = "USER: ",
                          .assistant_open = "ASSISTANT: ",
                          .text_close = " ",
                          .generation = "ASSISTANT:",
                          .image = "<image>"};

constexpr Form vicuna_original(std::string_view name, std::string_view system) {
  Form form = kVicuna;
  form.name = name;
  form.implied_system = system;
  form.system_close = " ";
  form.user_close = " ";
  form.assistant_close = "</s>";
  form.text_close = "";
  return form;
}

constexpr Form with_name(Form form, std::string_view name) {
  form.name = name;
  return form;
}

constexpr Form kChatMl = {.system_open = "<|im_start|>system\n",
                          .system_close = "<|im_end|>\n",
                          .user_open = "<|im_start|>user\n",
                          .user_close = "<|im_end|>\n",
                          .assistant_open = "<|im_start|>assistant\n",
                          .assistant_close = "<|im_end|>\n",
                          .generation = "<|im_start|>assistant\n",
                          .image = "<image>"};

constexpr Form one_vision() {
  Form form = with_name(kChatMl, "llava-onevision");
  form.layout = Layout::kImagesFirst;
  form.video = "<video>";
  return form;
}

constexpr Form yi() {
  Form form = with_name(kChatMl, "llava-1.6-yi");
  form.layout = Layout::kImagesFirst;
  form.implied_system = "Answer the questions.";
  form.system_close = form.user_close = form.assistant_close = "<|im_end|>";
  return form;
}

constexpr Form qwen2_vl() {
  Form form = with_name(kChatMl, "qwen2-vl");
  form.implied_system = "You are a helpful assistant.";
  form.image = "<|image_pad|>";
  form.video = "<|video_pad|>";
  form.image_open = "<|vision_start|>";
  form.image_close = "<|vision_end|>";
  return form;
}

constexpr Form kMistral = {.name = "llava-1.6-mistral",
                           .layout = Layout::kImagesFirst,
                           .system_open = "<<SYS>>\n",
                           .system_close = "\n<</SYS>>\n\n",
                           .user_open = "[INST] ",
                           .user_close = " [/INST]",
                           .assistant_open = " ",
                           .assistant_close = "</s> ",
                           .image = "<image>"};

constexpr Form janus(std::string_view name, std::string_view user, std::string_view assistant,
                     std::string_view generation) {
  return {.name = name,
          .layout = Layout::kJanus,
          .implied_system = kJanusSystem,
          .system_close = "\n\n",
          .user_open = user,
          .user_close = "\n\n",
          .assistant_open = assistant,
          .assistant_close = kJanusEnd,
          .generation = generation,
          .image = "<image_placeholder>",
          .image_open = "<begin_of_image>",
          .image_close = "<end_of_image>"};
}

constexpr Form idefics3(std::string_view name, std::string_view begin) {
  return {.name = name,
          .begin = begin,
          .system_open = "System: ",
          .system_close = "<end_of_utterance>\n",
          .user_open = "User: ",
          .user_close = "<end_of_utterance>\n",
          .assistant_open = "Assistant: ",
          .assistant_close = "<end_of_utterance>\n",
          .generation = "Assistant:",
          .image = "<image>",
          .tiles = true,
          .tight_images = true};
}

// In the order of ChatTemplate.
constexpr std::array kForms = {
    with_name(kVicuna, "llava-1.5"),
    vicuna_original("llava-1.5-original", kVicunaUser),
    with_name(kVicuna, "llava-1.6-vicuna"),
    vicuna_original("llava-1.6-vicuna-original", kVicunaHuman),
    kMistral,
    yi(),
    one_vision(),
    janus("janus", "User: ", "Assistant: ", "Assistant:"),
    janus("janus-pro", "<|User|>: ", "<|Assistant|>: ", "<|Assistant|>:"),
    qwen2_vl(),
    idefics3("smolvlm", "<|im_start|>"),
    idefics3("idefics3", "<|begin_of_text|>"),
};
static_assert(kForms.size() == static_cast<std::size_t>(ChatTemplate::kIdefics3) + 1);

// What may stand in a control segment. Rows and columns of tiles are written by name besides.
constexpr std::array<std::string_view, 19> kSpecial = {"<|im_start|>",
                                                       "<|im_end|>",
                                                       "</s>",
                                                       "<image>",
                                                       "<|vision_start|>",
                                                       "<|image_pad|>",
                                                       "<|video_pad|>",
                                                       "<video>",
                                                       "<|vision_end|>",
                                                       "<image_placeholder>",
                                                       "<begin_of_image>",
                                                       "<end_of_image>",
                                                       "<|User|>",
                                                       "<|Assistant|>",
                                                       "<end_of_utterance>",
                                                       "<fake_token_around_image>",
                                                       "<global-img>",
                                                       "<|begin_of_text|>",
                                                       kJanusEnd};

using Kind = PromptSegment::Kind;

const Form& form_of(ChatTemplate form) { return kForms.at(static_cast<std::size_t>(form)); }

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

// A string of the table: its special tokens become control.
void add_own(Prompt& prompt, std::string_view text) {
  while (!text.empty()) {
    std::size_t at = text.size(), length = 0;
    for (const std::string_view token : kSpecial) {
      const std::size_t found = text.find(token);
      if (found < at) at = found, length = token.size();
    }
    add(prompt, Kind::kPlain, text.substr(0, at));
    add(prompt, Kind::kControl, text.substr(at, length));
    text.remove_prefix(at + length);
  }
}

void add_image(Prompt& prompt, const Form& form, bool clip) {
  expects(!clip || !form.video.empty(), "a family with a token for clips");
  std::string text(form.image_open);
  // Janus frames a picture only when it is expanded.
  if (form.layout == Layout::kJanus) text.clear();
  text += clip ? form.video : form.image;
  if (form.layout != Layout::kJanus) text += form.image_close;
  add(prompt, Kind::kImage, text);
}

// White space as Python's str.strip() sees it.
bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

std::string_view trim(std::string_view text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid || !is_space(c.code)) {
      begin = std::min(begin, at);
      end = at + c.length;
    }
    at += c.length;
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  return begin < end ? text.substr(begin, end - begin) : std::string_view{};
}

void add_janus_parts(Prompt& prompt, const Form& form, const std::vector<ChatPart>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool first = i == 0, last = i + 1 == parts.size();
    if (parts[i].is_image) {
      if (!first) add(prompt, Kind::kPlain, "\n");
      add_image(prompt, form, parts[i].is_clip);
      if (!last) add(prompt, Kind::kPlain, "\n");
      continue;
    }
    if (!first && !parts[i - 1].is_image) add(prompt, Kind::kPlain, " ");
    add(prompt, Kind::kPlain, trim(parts[i].text, first, last));
  }
}

void add_parts(Prompt& prompt, const Form& form, const std::vector<ChatPart>& parts) {
  if (form.layout == Layout::kJanus) return add_janus_parts(prompt, form, parts);
  const bool images_first = form.layout == Layout::kImagesFirst;
  for (const ChatPart& part : parts) {
    if (!part.is_image || !images_first) continue;
    add_image(prompt, form, part.is_clip);
    add(prompt, Kind::kPlain, "\n");
  }
  for (const ChatPart& part : parts) {
    if (part.is_image && images_first) continue;
    if (part.is_image) {
      add_image(prompt, form, part.is_clip);
    } else {
      add(prompt, Kind::kPlain, part.text);
      add(prompt, Kind::kPlain, form.text_close);
    }
  }
}

std::string_view opening(const Form& form, const ChatTurn& turn) {
  std::string_view open = turn.role == ChatRole::kSystem ? form.system_open
                          : turn.role == ChatRole::kUser ? form.user_open
                                                         : form.assistant_open;
  if (form.tight_images && !turn.parts.empty() && turn.parts.front().is_image) {
    open.remove_suffix(1);
  }
  return open;
}

std::string_view closing(const Form& form, ChatRole role) {
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
      if (part.is_image) fail("E_CHAT_IMAGES", "no picture in the system turn", "one");
    }
  }
}

// Janus leaves the end of the last turn open, and an empty answer without its space.
void add_janus_turn(Prompt& prompt, const Form& form, const ChatTurn& turn, bool open_end) {
  std::string_view open = opening(form, turn);
  const bool empty =
      turn.parts.size() == 1 && !turn.parts[0].is_image && turn.parts[0].text.empty();
  if (open_end && empty && turn.role == ChatRole::kAssistant) open.remove_suffix(1);
  add_own(prompt, open);
  add_parts(prompt, form, turn.parts);
  if (!open_end) add_own(prompt, closing(form, turn.role));
}

std::string repeated(std::string_view token, std::int64_t count) {
  std::string out;
  out.reserve(token.size() * static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) out += token;
  return out;
}

// Tiles row by row, each after its place; a line break a row, one more before the whole picture.
void add_tiles(Prompt& prompt, const Form& form, const PictureLayout& layout) {
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

std::string_view chat_template_name(ChatTemplate form) { return form_of(form).name; }
std::string_view image_token(ChatTemplate form) { return form_of(form).image; }
std::string_view video_token(ChatTemplate form) { return form_of(form).video; }

Prompt chat_prompt(ChatTemplate which, const std::vector<ChatTurn>& turns,
                   bool add_generation_prompt) {
  check_turns(turns);
  const Form& form = form_of(which);
  Prompt prompt;
  add_own(prompt, form.begin);
  const bool has_system = !turns.empty() && turns.front().role == ChatRole::kSystem;
  if (!has_system && !form.implied_system.empty()) {
    add_own(prompt, form.system_open);
    add(prompt, Kind::kPlain, form.implied_system);
    add_own(prompt, form.system_close);
  }
  for (const ChatTurn& turn : turns) {
    if (form.layout == Layout::kJanus && turn.role != ChatRole::kSystem) {
      add_janus_turn(prompt, form, turn, &turn == &turns.back() && !add_generation_prompt);
      continue;
    }
    add_own(prompt, opening(form, turn));
    add_parts(prompt, form, turn.parts);
    add_own(prompt, closing(form, turn.role));
  }
  if (add_generation_prompt) add_own(prompt, form.generation);
  return prompt;
}

std::string prompt_text(const Prompt& prompt) {
  std::string out;
  for (const PromptSegment& segment : prompt) out += segment.text;
  return out;
}

std::string render_chat(ChatTemplate form, const std::vector<ChatTurn>& turns,
                        bool add_generation_prompt) {
  return prompt_text(chat_prompt(form, turns, add_generation_prompt));
}

Prompt expand_images(ChatTemplate which, const Prompt& prompt,
                     std::span<const PictureLayout> layouts) {
  const Form& form = form_of(which);
  const auto images = std::count_if(prompt.begin(), prompt.end(),
                                    [](const auto& s) { return s.kind == Kind::kImage; });
  if (static_cast<std::size_t>(images) != layouts.size()) {
    fail("E_CHAT_IMAGES", std::to_string(layouts.size()) + " pictures",
         std::to_string(images) + " places for pictures");
  }
  Prompt out;
  std::size_t next = 0;
  for (const PromptSegment& segment : prompt) {
    if (segment.kind != Kind::kImage) {
      add(out, segment.kind, segment.text);
      continue;
    }
    const PictureLayout& layout = layouts[next++];
    expects(layout.tokens > 0 && layout.tokens <= (1 << 15), "a picture has visual tokens");
    expects((layout.rows > 0) == (layout.columns > 0) && layout.rows >= 0 && layout.rows <= 64 &&
                layout.columns >= 0 && layout.columns <= 64 && (form.tiles || layout.rows == 0),
            "tiles in rows and columns, where the family has them");
    if (form.tiles) {
      add_tiles(out, form, layout);
    } else {
      add(out, Kind::kControl, form.image_open);
      add(out, Kind::kControl, repeated(layout.clip ? form.video : form.image, layout.tokens));
      add(out, Kind::kControl, form.image_close);
    }
  }
  return out;
}

std::vector<std::int32_t> encode_prompt(const TextTokenizer& tokenizer, const Prompt& prompt) {
  // The post-processors of these models put tokens in front only.
  std::vector<std::int32_t> ids = tokenizer.encode("", true);
  const std::vector<std::int32_t> begin = ids;
  for (const PromptSegment& segment : prompt) {
    const bool plain = segment.kind == Kind::kPlain;
    const auto some =
        tokenizer.encode(segment.text, false, plain ? SpecialText::kPlain : SpecialText::kControl);
    // A template that writes the beginning itself: once is enough.
    const bool again = &segment == prompt.data() && !plain && some.size() >= begin.size() &&
                       std::equal(begin.begin(), begin.end(), some.begin());
    if (again) ids.clear();
    ids.insert(ids.end(), some.begin(), some.end());
  }
  return ids;
}

}  // namespace tessera
