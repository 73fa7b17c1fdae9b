// A published captioning model, opened and loaded: language model, picture encoder with projector,
// text tokenizer, and how its family prepares pictures and prompts.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/visual_encoder.h"
#include "engine/families/open_model.h"
#include "tokenizers/text/chat_template.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

class CaptionModel {
 public:
  // Reads configuration, tokenizer, names and shapes of the weights; "test:tiny" is made in memory.
  // Error kModel; E_FAMILY for a model that describes no pictures.
  static std::unique_ptr<CaptionModel> open(const std::filesystem::path& folder);

  // Reads the weights; once. Error kModel, kMemory.
  void load(Backend& backend, DType storage);

  const ModelSpec& spec() const { return opened_.spec; }
  const DescribeSpec& describe() const { return *opened_.spec.describe; }
  const ChatForm& chat() const { return *chat_; }
  const TextTokenizer& tokenizer() const { return *tokenizer_; }
  bool loaded() const { return pictures_ != nullptr; }
  const TokenModel& text() const { return text_->space(TokenSpace::kText); }
  const VisualEncoder& pictures() const { return *pictures_; }
  const Checkpoint& weights() const { return *opened_.weights; }
  std::uint64_t weight_file_bytes() const { return weights().total_bytes(); }
  DType stored() const;  // as the weight file has them

  // Ids of a question about pictures or clips of these plans: a placeholder id for every visual
  // token, describe().image_id or, where clips have one of their own, describe().video_id. Error
  // kModel when the tokenizer and the model do not fit; kGeneral (E_PICTURE_TOKENS) for a picture
  // of more tokens than any prompt has.
  std::vector<std::int32_t> prompt_ids(const std::string& question,
                                       std::span<const PreprocessPlan> pictures) const;

 private:
  CaptionModel() = default;
  OpenedModel opened_;
  const ChatForm* chat_ = nullptr;
  std::optional<TextTokenizer> tokenizer_;
  std::unique_ptr<StreamModel> text_;
  std::unique_ptr<VisualEncoder> pictures_;
};

}  // namespace tessera
