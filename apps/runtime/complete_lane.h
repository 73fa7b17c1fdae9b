// A text model, its method and its draft model, as a lane asks for them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/runtime/complete_task.h"
#include "apps/runtime/draft_model.h"
#include "apps/runtime/lane.h"
#include "engine/decoding/method_parts.h"
#include "engine/sampling/dist.h"

namespace tessera {

// A second model that drafts the texts of the first, asked with the same ids.
class TextDraft final : public DraftModel {
 public:
  // Error kUsage: E_DRAFT_VOCABULARY unless both have one vocabulary, E_TEXT_LENGTH for texts
  // longer than its positions.
  TextDraft(const std::string& name, const CompletionModel& target, const std::string& target_name,
            std::int64_t max_tokens);

  void load(Backend& backend, std::optional<DType> storage);
  // Whether a prompt of so many rows has room in it.
  bool fits(std::int64_t rows, std::int64_t tokens) const;
  std::unique_ptr<ModelDrafter> make_drafter(const StreamLimits& limits, const LoopNeeds& needs);
  std::size_t bytes(const Backend& backend, const StreamLimits& limits,
                    const LoopNeeds& needs) const;
  std::size_t weight_bytes(const Backend& backend, std::optional<DType> storage) const;
  // Notifies the drafter made last of the text in a slot.
  void set_stream(std::size_t slot, DraftStreamItem item);

 private:
  const TokenModel& model() override { return loaded_->space(TokenSpace::kText); }
  const ModelConfig& transformer() const override { return model_->spec().model.transformer; }
  std::int64_t logit_ids() const override { return model_->spec().model.vocab; }
  std::size_t scratch_bytes(std::int64_t rows, const Backend& backend) const override {
    return Transformer::scratch_bytes(transformer(), rows, backend);
  }

  std::unique_ptr<CompletionModel> model_;
  std::optional<StreamModel> loaded_;
  ModelDrafter* drafter_ = nullptr;  // made last, owned by who asked for it
};

class CompleteLane final : public LaneModel {
 public:
  CompleteLane(Runtime& runtime, const CompleteOptions& options);

  const CompleteOptions& options() const { return options_; }
  const CompletionModel& model() const { return *model_; }
  const std::string& name() const { return name_; }
  const std::vector<std::string>& notes() const { return notes_; }
  DType storage() const { return storage_; }
  TextDraft* draft() const { return draft_.get(); }  // null = none

  // What the request's tokens are drawn from. Error kUsage for settings that contradict one another
  // or the model.
  DistributionSettings dist_of(const CompleteRequest& request) const;
  // The request as the first of its submission. Error kUsage also of its prompts.
  Stream stream_of(const CompleteRequest& request) const;
  // Whether the draft model has room for it.
  bool drafts(const Stream& stream) const;
  LoopNeeds needs_of(const Stream& stream) const;
  // What is held for these needs.
  CaptionMemoryPlan plan(const LoopNeeds& needs) const;
  // Error kMemory (E_MEMORY_PLAN) when not even one short text fits, guided or not.
  void check_memory(bool guided) const;

  // Reads the weights, once, where there is memory for a text, guided or not.
  void load(bool guided);
  void load() override { load(false); }
  Backend& backend() const override { return share_->backend(); }
  const TokenModel& tokens() const override { return share_->tokens(); }
  StreamLimits limits(const LoopNeeds& needs) const override;
  void make_drafter(const StreamLimits& limits, const LoopNeeds& needs) override;
  void drop_drafter() override;
  LoopParts parts() const override { return parts_->parts(); }
  WindowController* controller() override { return controller_ ? &*controller_ : nullptr; }
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const override;
  ErrorInfo no_room(const LoopNeeds& needs) const override;

 private:
  std::vector<std::int32_t> ids_of(const ChatQuestion& text, bool chat,
                                   std::int64_t max_tokens) const;
  std::int64_t max_tokens_of(const CompleteRequest& request) const;

  CompleteOptions options_;
  std::string name_;
  std::vector<std::string> notes_;
  std::unique_ptr<CompletionModel> model_;
  DType storage_;
  std::unique_ptr<ModelShare> share_;
  DecodeAids aids_;
  DistributionSettings preset_;  // greedy, and what the model's own files say
  std::unique_ptr<TextDraft> draft_;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts_;
  std::optional<WindowController> controller_;
};

}  // namespace tessera
