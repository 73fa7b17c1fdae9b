#include "tokenizers/template/template_prompt.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"

namespace tessera {

namespace {

using Kind = PromptSegment::Kind;

void add_segment(Prompt& prompt, Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!prompt.empty() && prompt.back().kind == kind && kind != Kind::kImage) {
    prompt.back().text += text;
  } else {
    prompt.push_back({kind, std::string(text)});
  }
}

std::string_view role_name(ChatRole role) {
  return role == ChatRole::kSystem ? "system" : role == ChatRole::kUser ? "user" : "assistant";
}

// Marks that stand for images in a text: characters of a private plane that no turn holds.
class ImageMarks {
 public:
  explicit ImageMarks(const std::vector<ChatTurn>& turns) {
    for (char32_t code = 0x10ff00; used(turns); ++code) {
      mark_.clear();
      append(code);
    }
  }
  const std::string& mark() const { return mark_; }

 private:
  void append(char32_t code) {
    for (const unsigned shift : {18u, 12u, 6u, 0u}) {
      const unsigned bits = (code >> shift) & (shift == 18u ? 0x07u : 0x3fu);
      mark_ += char_of(bits | (shift == 18u ? 0xf0u : 0x80u));
    }
  }
  bool used(const std::vector<ChatTurn>& turns) const {
    if (mark_.empty()) return true;
    return std::any_of(turns.begin(), turns.end(), [&](const ChatTurn& turn) {
      return std::any_of(turn.parts.begin(), turn.parts.end(), [&](const ChatPart& part) {
        return part.text.find(mark_) != std::string::npos;
      });
    });
  }
  std::string mark_;
};

Json parts_of(const ChatTurn& turn) {
  Json out = Json::array();
  for (const ChatPart& part : turn.parts) {
    if (part.is_image) {
      out.push_back({{"type", part.is_video ? "video" : "image"}});
    } else {
      out.push_back({{"type", "text"}, {"text", part.text}});
    }
  }
  return out;
}

std::string text_of(const ChatTurn& turn, const std::string& mark, bool images_first) {
  std::string images, out;
  for (const ChatPart& part : turn.parts) {
    if (!part.is_image)
      out += part.text;
    else if (images_first)
      images += mark + "\n";
    else
      out += mark;
  }
  return images + out;
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

// The data's marks become the placeholders of the images, in order.
Prompt with_images(const Prompt& prompt, const std::string& mark, const TemplateImages& how,
                   const std::vector<std::string_view>& images) {
  Prompt out;
  std::size_t next = 0;
  for (const PromptSegment& segment : prompt) {
    std::string_view text = segment.text;
    for (std::size_t at; segment.kind == Kind::kPlain &&
                         (at = text.find(mark)) != std::string_view::npos &&
                         next < images.size();) {
      add_segment(out, Kind::kPlain, text.substr(0, at));
      add_segment(out, Kind::kControl, how.open);
      add_segment(out, Kind::kImage, images[next++]);
      add_segment(out, Kind::kControl, how.close);
      text.remove_prefix(at + mark.size());
    }
    add_segment(out, segment.kind, text);
  }
  return out;
}

}  // namespace

SpecialTexts::SpecialTexts(const TextTokenizer& tokenizer) {
  for (std::int64_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto id = narrow<std::int32_t>(i);
    if (!tokenizer.is_special(id) || tokenizer.token(id).empty()) continue;
    const std::string_view token = tokenizer.token(id);
    by_first_byte_[byte_of(token[0])].emplace_back(token);
  }
  for (std::vector<std::string>& tokens : by_first_byte_) {
    std::stable_sort(tokens.begin(), tokens.end(), [](const std::string& a, const std::string& b) {
      return a.size() > b.size();
    });
  }
}

std::string_view SpecialTexts::at(std::string_view text, std::size_t at) const {
  const std::string_view rest = text.substr(at);
  for (const std::string& token : by_first_byte_[byte_of(rest[0])]) {
    if (rest.starts_with(token)) return token;
  }
  return {};
}

Prompt template_prompt(const Rendered& rendered, const SpecialTexts& special,
                       std::string_view image, std::string_view video) {
  Prompt out;
  for (const RenderedPart& part : rendered) {
    if (part.from_data) {
      add_segment(out, Kind::kPlain, part.text);
      continue;
    }
    std::size_t begin = 0;
    for (std::size_t at = 0; at < part.text.size();) {
      std::string_view token = special.at(part.text, at);
      for (const std::string_view own : {image, video}) {  // special in the file or not
        if (own.size() > token.size() && std::string_view(part.text).substr(at).starts_with(own)) {
          token = own;
        }
      }
      if (token.empty()) {
        ++at;
        continue;
      }
      add_segment(out, Kind::kPlain, std::string_view(part.text).substr(begin, at - begin));
      const bool placeholder = token == image || (!video.empty() && token == video);
      add_segment(out, placeholder ? Kind::kImage : Kind::kControl, token);
      at += token.size();
      begin = at;
    }
    add_segment(out, Kind::kPlain, std::string_view(part.text).substr(begin));
  }
  return out;
}

Prompt chat_prompt(const FolderTemplate& of, const std::vector<ChatTurn>& turns,
                   bool add_generation_prompt, const SpecialTexts& special,
                   const TemplateImages& images) {
  const ImageMarks marks(turns);
  std::vector<std::string_view> wanted;
  Json messages = Json::array();
  for (const ChatTurn& turn : turns) {
    messages.push_back({{"role", role_name(turn.role)},
                        {"content", of.content == ContentForm::kParts
                                        ? parts_of(turn)
                                        : Json(text_of(turn, marks.mark(), images.images_first))}});
    for (const ChatPart& part : turn.parts) {
      if (part.is_image) wanted.push_back(part.is_video ? images.video : images.image);
    }
  }
  TemplateInput input;
  input.messages = &messages;
  input.add_generation_prompt = add_generation_prompt;
  input.special_tokens = of.special_tokens;
  input.now = local_now();
  Prompt out = template_prompt(of.source.render(input), special, images.image, images.video);
  if (of.content == ContentForm::kText) out = with_images(out, marks.mark(), images, wanted);
  for (const std::string_view token :
       {std::string_view(images.image), std::string_view(images.video)}) {
    if (token.empty()) continue;
    const auto count = std::count(wanted.begin(), wanted.end(), token);
    const auto found = std::count_if(out.begin(), out.end(), [&](const PromptSegment& segment) {
      return segment.kind == Kind::kImage && segment.text == token;
    });
    if (count == found) continue;
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TEMPLATE_IMAGES",
                 .file = of.file,
                 .where = "messages",
                 .expected = "a place for each image: " + std::to_string(count) + " of " +
                             std::string(token),
                 .found = std::to_string(found),
                 .hint = "--chat-template FILE takes another"});
  }
  return out;
}

}  // namespace tessera
