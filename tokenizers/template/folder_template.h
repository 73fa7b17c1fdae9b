// The chat template of a model's folder, from the places where transformers looks for it, and what
// it can be given.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/template/template.h"

namespace tessera {

// How a template reads the content of a message.
enum class ContentForm : std::uint8_t {
  kParts,  // a list of {"type": "text" | "image" | "video", ...}
  kText,   // a string, with a placeholder for each image
};

struct FolderTemplate {
  ChatTemplate source;
  std::string text;  // of the source
  std::string file;  // for messages
  ContentForm content = ContentForm::kParts;
  bool of_tokenizer = false;    // for texts: the language model's own, images may be unknown to it
  bool default_system = false;  // the processor puts its family's system sentence in front
  std::vector<std::pair<std::string, std::string>> special_tokens;  // as the folder names them
};

// The first of: processor_config.json ("chat_template"), chat_template.json, chat_template.jinja,
// tokenizer_config.json ("chat_template": a text, or a list of {name, template} with "default").
// Nullopt if the folder has none. Error kModel: E_TEMPLATE_* and E_JSON* naming file and place;
// E_TEMPLATE_TEXT for a template that does not write a user's text.
std::optional<FolderTemplate> read_folder_template(const std::filesystem::path& folder);

// The same with the template of `file` in place of the folder's.
FolderTemplate read_template_file(const std::filesystem::path& file,
                                  const std::filesystem::path& folder);

// A template of a tokenizer that stands in no folder; `file` is the name in messages.
FolderTemplate read_template_text(
    std::string text, std::string file,
    std::vector<std::pair<std::string, std::string>> special_tokens);

}  // namespace tessera
