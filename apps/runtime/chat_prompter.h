// How a model's questions become prompts: by the chat template of its folder, else in the form of
// its family.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tokenizers/template/folder_template.h"
#include "tokenizers/template/template_prompt.h"

namespace tessera {

class ChatPrompter {
 public:
  // The form and the tokenizer are borrowed. `own`: the model's template, or the one in its place;
  // none: the family's form. Error kModel, E_TEMPLATE_IMAGES, for a template that leaves out the
  // image. The template of a language model's tokenizer that knows no images leaves the family's
  // form. E_TEMPLATE_MISSING, naming `place`, where that form needs one.
  ChatPrompter(const ChatForm& form, const TextTokenizer& tokenizer,
               std::optional<FolderTemplate> own, const std::string& place);

  // The template of a model's folder (empty: it has none), or that of `file`, unless it is empty.
  // Error kModel as read_folder_template().
  static std::optional<FolderTemplate> template_of(const std::filesystem::path& folder,
                                                   const std::filesystem::path& file);

  // The prompt of these turns, each image as its placeholder.
  Prompt prompt(const std::vector<ChatTurn>& turns, bool add_generation_prompt) const;
  // The same with a token a visual row. Images and videos take their layouts in the order of the
  // turns' parts. Error as chat_prompt() and expand_images().
  Prompt expanded(const std::vector<ChatTurn>& turns, std::vector<ImageLayout> layouts) const;

  const ChatForm& form() const { return *form_; }
  // The file of the template; empty: the form is the family's.
  std::string template_file() const { return template_ ? template_->file : std::string(); }

 private:
  const ChatForm* form_;
  std::optional<FolderTemplate> template_;
  SpecialTexts special_;
};

}  // namespace tessera
