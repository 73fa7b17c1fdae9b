// A prompt as a model reads it: token ids of its template, or a class number, and the prompt of the
// branch without it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/families/open_model.h"
#include "tokenizers/template/template_prompt.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

struct EncodedPrompt {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> unconditional;  // empty without guidance
};

class PromptEncoder {
 public:
  // Reads the model's text tokenizer, if it has one. Error kModel.
  PromptEncoder(const OpenedModel& model, const std::string& name);

  // Error kUsage: prompt too long (E_PROMPT_LENGTH), empty, not UTF-8, no class of the model
  // (E_CLASS), a prompt, a negative one or guidance where there is none.
  EncodedPrompt encode(const std::string& prompt, const std::optional<std::string>& negative,
                       bool guided) const;
  // A text and the token after it, without the words that ask for an image. Error as encode().
  std::vector<std::int32_t> encode_question(const std::string& text,
                                            const std::string& turn_end) const;
  // The begin of an image and what follows it in every prompt. Of models that keep ends.
  std::vector<std::int32_t> image_opening() const;
  // Error kModel (E_TOKENIZER_TOKEN) where the tokenizer has no such token.
  std::int32_t id_of(const std::string& token) const;
  // Of prompts that are texts; null without a tokenizer.
  const TextTokenizer* tokenizer() const { return text_ ? &*text_ : nullptr; }

 private:
  void load_text_tokenizer(const OpenedModel& model, const std::string& name);
  std::vector<std::int32_t> encode_text(const std::string& text, const char* where) const;
  // The template around a text, which may be empty.
  std::vector<std::int32_t> encode_template(const std::string& text, const char* where) const;
  // The ids of the folder's template around it, or of the family's form.
  std::vector<std::int32_t> template_ids(const std::string& prompt) const;
  // Error E_PROMPT_TEXT where a text spells tokens of images.
  void check_spelled(const std::vector<std::int32_t>& ids, const char* where) const;
  void check_first_code(const ModelSpec& spec) const;
  [[noreturn]] void refuse_token(const std::string& token) const;
  std::vector<std::int32_t> framed(std::string_view before, std::string_view text,
                                   std::string_view after) const;
  std::vector<std::int32_t> without_text(const std::vector<std::int32_t>& prompt) const;
  std::int32_t parse_class(const std::string& text) const;

  StreamModelConfig model_;
  std::int64_t classes_ = 0;
  std::string tokenizer_file_;  // in messages
  std::optional<TextTokenizer> text_;
  PromptForm form_;
  std::optional<FolderTemplate> template_;  // in place of form_
  std::optional<SpecialTexts> special_;     // where there is a template
  std::optional<KeptIds> kept_;
  std::string negative_;  // the other branch's text, unless one is given
  std::int32_t pad_ = 0, begin_image_ = 0;
  std::optional<std::int32_t> first_;  // of every prompt
  std::vector<RowRange> kept_out_;     // what no text may spell
};

}  // namespace tessera
