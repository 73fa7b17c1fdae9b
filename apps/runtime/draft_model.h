// A second model that drafts for the first: opened and checked against it, loaded when drafts are
// first wanted. What all kinds share; how one is asked is for each kind to say: ImageDraft here,
// CaptionDraft for texts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/prompt_encoder.h"
#include "apps/runtime/submission.h"
#include "engine/decoding/drafters/model_drafter.h"
#include "engine/decoding/stream_limits.h"
#include "engine/families/open_model.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

// Error kModel, E_MODEL_DRAFT, for a folder that drafts for other models only.
void check_generates(const ModelSpec& spec, const std::string& name);

// Error kUsage at --model-draft, for a draft model that does not fit its target.
[[noreturn]] void refuse_draft(const char* code, const std::string& draft, std::string expected,
                               std::string found, std::string hint);

// The texts of a model that drafts, or is drafted for.
struct Vocabulary {
  std::int64_t ids = 0;  // with logits
  const TextTokenizer& tokenizer;
  const std::string& model;
};
// Ids mean the same to both, or a draft would be another word than it was meant to be. Error
// kUsage, E_DRAFT_VOCABULARY, naming both models and the first difference.
void check_one_vocabulary(const Vocabulary& target, const Vocabulary& draft);

// A text of this length needs more positions than it has tokens. Error kUsage, E_TEXT_LENGTH.
void check_draft_positions(const std::string& draft, std::int64_t positions,
                           std::int64_t max_tokens);
// Of a drafter of texts for such a loop, with room for prompts of so many rows.
DraftLimits text_draft_limits(const StreamLimits& limits, std::int64_t prompt_rows, bool guided);

class DraftModel {
 public:
  virtual ~DraftModel() = default;
  const std::string& name() const { return name_; }
  // kv is this model's own, whatever the limits say. Reads the weights where nobody did. Error
  // kMemory.
  std::unique_ptr<ModelDrafter> make_drafter(DraftLimits limits);
  // Cache and buffers of such a drafter.
  std::size_t drafter_bytes(const Backend& backend, DraftLimits limits) const;
  // How its keys and values are cached; nothing: as tables next to its weights.
  void set_cache(std::optional<DType> type) { cache_ = type; }

 protected:
  explicit DraftModel(std::string name) : name_(std::move(name)) {}
  // The language half, loaded.
  virtual const TokenModel& model() = 0;
  // What is known of it before: shape, ids with logits, scratch of passes.
  virtual const ModelConfig& transformer() const = 0;
  virtual std::int64_t logit_ids() const = 0;
  virtual std::size_t scratch_bytes(std::int64_t rows, const Backend& backend) const = 0;

  std::string name_;
  DType storage_ = DType::kF32;  // of the weights

 private:
  DType cache() const;

  std::optional<DType> cache_;
};

// One image as a draft model is asked for it.
struct DraftRequest {
  std::vector<std::int32_t> prompt, unconditional;  // the second one under guidance
  DistributionSettings dist;
};

class ImageDraft final : public DraftModel {
 public:
  // `name` as resolve_model() takes it. Error kUsage, E_DRAFT_CODES, E_DRAFT_GRID or
  // E_DRAFT_STREAM, naming both models' figures when it does not speak the target's codes; kModel
  // for a bad model.
  static std::unique_ptr<ImageDraft> open(const std::string& name, const StreamModelConfig& target,
                                          const std::string& target_name, Backend& backend);

  // A draft model that imitates a guided distribution runs without guidance of its own.
  DraftRequest request(const std::string& prompt, const std::optional<std::string>& negative,
                       const DistributionSettings& dist) const;
  // The same of a prompt that is ids already.
  DraftRequest request(std::vector<std::int32_t> prompt, std::vector<std::int32_t> unconditional,
                       const DistributionSettings& dist) const;
  DraftStreamItem stream(const DraftRequest& request) const;
  const TextTokenizer* tokenizer() const { return prompts_.tokenizer(); }  // null: no texts
  std::int64_t positions() const { return opened_.spec.model.transformer.rope.positions; }
  // Limits of a drafter with this room, for `items` streams at once, with windows of so many rows.
  DraftLimits limits_for(const LoopNeeds& needs, std::int64_t items, std::int64_t window,
                         bool trees) const;
  std::size_t bytes(const DraftLimits& limits) const;  // weights, cache and buffers

 private:
  ImageDraft(std::string name, OpenedModel opened, Backend& backend);
  DistributionSettings own_dist(DistributionSettings dist) const;
  const TokenModel& model() override;
  const ModelConfig& transformer() const override { return opened_.spec.model.transformer; }
  std::int64_t logit_ids() const override { return opened_.spec.model.codes; }
  std::size_t scratch_bytes(std::int64_t rows, const Backend& backend) const override {
    return StreamModel::scratch_bytes(opened_.spec.model, rows, backend);
  }

  OpenedModel opened_;
  Backend& backend_;
  PromptEncoder prompts_;
  std::optional<StreamModel> model_;
};

}  // namespace tessera
