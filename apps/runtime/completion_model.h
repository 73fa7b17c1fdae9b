// A model that writes text, opened and loaded: a folder or a GGUF file with its tokenizer, its chat
// template, and what ends its texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/chat_question.h"
#include "engine/families/text_model.h"
#include "tokenizers/template/folder_template.h"
#include "tokenizers/template/template_prompt.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

class CompletionModel {
 public:
  // Reads everything but weights. `chat_template`: a file in place of the model's own. Error kModel
  // as open_text_model(), of tokenizers and templates.
  static std::unique_ptr<CompletionModel> open(const std::filesystem::path& path,
                                               const std::filesystem::path& chat_template = {});

  StreamModel load(Backend& backend, DType storage) const;

  const ModelSpec& spec() const { return opened_.spec; }
  const TextSpec& text() const { return text_; }
  const Checkpoint& weights() const { return *opened_.weights; }
  const TextTokenizer& tokenizer() const { return *tokenizer_; }
  const std::optional<FolderTemplate>& chat_template() const { return template_; }
  const std::vector<std::int32_t>& stops() const { return stops_; }
  const SettingValues& sampling() const { return sampling_; }  // of generation_config.json
  DType stored() const;  // as stored_as_filed() says; of what another tool quantised, by its size

  // Ids of a text that is to be continued, in what the tokenizer puts around texts; with `chat` as
  // the first turn of a conversation, by the model's template. Error kUsage: E_TEXT_PROMPT for no
  // ids, E_CHAT_TEMPLATE without a template; kModel (E_TEXT_VOCABULARY) for an id that the model
  // lacks.
  std::vector<std::int32_t> prompt_ids(const ChatQuestion& text, bool chat) const;

 private:
  CompletionModel() = default;
  void read_folder(const std::filesystem::path& folder);
  void read_file(const std::filesystem::path& path, bool own_template);

  TextSpec text_;
  OpenedModel opened_;
  std::optional<TextTokenizer> tokenizer_;
  std::optional<FolderTemplate> template_;
  std::optional<SpecialTexts> special_;
  std::vector<std::int32_t> stops_;
  SettingValues sampling_;
};

}  // namespace tessera
