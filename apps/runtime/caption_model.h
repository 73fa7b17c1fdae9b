// A published captioning model, opened and loaded: language model, image encoder with projector,
// text tokenizer, and how its family prepares images and prompts.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/chat_prompter.h"
#include "apps/runtime/chat_question.h"
#include "apps/runtime/visual_encoder.h"
#include "engine/families/open_model.h"
#include "tokenizers/text/chat_template.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

class CaptionModel {
 public:
  // Reads configuration, tokenizer, names and shapes of the weights of a folder, or of a language
  // model's .gguf file with its image encoder's, `projector`; empty = the one next to it whose name
  // holds "mmproj". `chat_template`: a file in place of the model's own chat template; empty =
  // that. Error kModel; E_FAMILY for a model that describes no images, E_GGUF_PAIR for a file
  // without an encoder or with one that does not fit it; kUsage for an encoder next to a folder.
  static std::unique_ptr<CaptionModel> open(const std::filesystem::path& path,
                                            const std::filesystem::path& chat_template = {},
                                            const std::filesystem::path& projector = {});

  // The language model alone. Error kModel, kMemory.
  StreamModel load_text(Backend& backend, DType storage) const;
  // The image encoder, and the language model unless it is loaded already: `text` lives as long
  // as this. Once. Error kModel, kMemory.
  void load(Backend& backend, DType storage, const TokenModel* text = nullptr);

  const ModelSpec& spec() const { return opened_.spec; }
  const DescribeSpec& describe() const { return *opened_.spec.describe; }
  const ChatPrompter& chat() const { return *chat_; }
  const TextTokenizer& tokenizer() const { return *tokenizer_; }
  bool loaded() const { return images_ != nullptr; }
  const TokenModel& text() const { return *text_; }
  const VisualEncoder& images() const { return *images_; }
  const Checkpoint& weights() const { return *opened_.weights; }
  // Cuts of generation_config.json, for texts that are drawn. Error kModel: one that is not done.
  SettingValues cuts() const;
  // bf16 where that keeps every matrix as the weight file has it, else f32: f16 is not rounded. Of
  // a pair of .gguf files stored_as_filed().
  DType stored() const;

  // Ids of a question about images or videos of these plans: a placeholder id for every visual
  // token, describe().image_id or, where videos have one of their own, describe().video_id. Error
  // kModel when the tokenizer and the model do not fit; kGeneral (E_PICTURE_TOKENS) for an image
  // of more tokens than any prompt has; kUsage for turns that its form does not know.
  std::vector<std::int32_t> prompt_ids(const ChatQuestion& question,
                                       std::span<const PreprocessPlan> images) const;

 private:
  CaptionModel() = default;
  void read_folder(const std::filesystem::path& folder);
  // The chat template of the language model's file, if it has one.
  std::optional<FolderTemplate> read_pair(const std::filesystem::path& model,
                                          const std::filesystem::path& projector);
  // Where generation settings stand: a file, or a key of one.
  struct GenerationPlace {
    std::string file, key;
  };
  void read_sampling(GenerationPlace place);
  JsonReader generation_reader() const;
  void settle_image_token();

  OpenedModel opened_;
  std::shared_ptr<const Json> generation_;  // generation_config.json; null JSON without one
  GenerationPlace generation_place_;
  std::optional<TextTokenizer> tokenizer_;
  std::optional<ChatPrompter> chat_;
  std::unique_ptr<StreamModel> own_text_;
  const TokenModel* text_ = nullptr;
  std::unique_ptr<VisualEncoder> images_;
};

}  // namespace tessera
