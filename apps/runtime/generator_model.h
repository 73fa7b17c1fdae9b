// What models that generate images and videos are to a lane: method, draft model and text tokenizer
// around one token space. Opened and checked first; a kind reads its weights when they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/runtime/draft_model.h"
#include "apps/runtime/generate_request.h"
#include "apps/runtime/lane.h"
#include "apps/runtime/prompt_encoder.h"
#include "apps/runtime/runtime.h"
#include "apps/runtime/text_rows.h"
#include "engine/core/function_ref.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/memory_plan.h"

namespace tessera {

class GeneratorModel : public LaneModel {
 public:
  const GenerateOptions& options() const { return options_; }  // with the settled method
  const std::string& name() const { return name_; }
  const ModelSpec& spec() const { return opened_.spec; }
  const StreamModelConfig& config() const { return opened_.spec.model; }
  Backend& backend() const override { return share_->backend(); }
  DType storage() const { return storage_; }
  const VocabularyGrammar& grammar() const { return aids_.grammar; }
  std::string window_report() const { return controller_ ? controller_->why() : ""; }

  // Encodes prompts. Error kUsage: those of GenerateTask::prepare().
  PreparedRequest prepare(const std::string& prompt, const std::optional<std::string>& negative,
                          const DistributionSettings& dist, std::uint64_t seed) const;
  // Ids of a text for the text encoder. Error kUsage: E_TEXT_ENCODER where there is none, those of
  // TextRows::encode().
  std::vector<std::int32_t> encode_text(const std::string& text, const char* where) const;
  // The stream in a slot of the loop, for the drafter of a draft model, if there is one.
  void announce(std::size_t slot, const DraftRequest& request) const;

  const PassModel& tokens() const override { return share_->tokens(); }
  StreamLimits limits(const LoopNeeds& needs) const override;
  void make_drafter(const StreamLimits& limits, const LoopNeeds& needs) override;
  void drop_drafter() override;
  LoopParts parts() const override { return parts_->parts(); }
  WindowController* controller() override { return controller_ ? &*controller_ : nullptr; }

 protected:
  // Error kModel; kUsage for an unknown device.
  GeneratorModel(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
                 std::string shown_name, WrittenSpaces spaces = WrittenSpaces::kImage);
  // Opens the draft model and settles the method; once, after the checks of the kind. Error kUsage,
  // E_DECODE_..., E_DRAFT_...
  void settle();
  DraftLimits draft_limits(const StreamLimits& limits, const LoopNeeds& needs) const;
  // The plan of a loop with that room; `adjust` adds what the kind knows of it, also for the
  // smaller runs that are tried where it does not fit a device.
  using Adjust = FunctionRef<void(MemoryPlan&, const StreamLimits&)>;
  MemoryPlan plan_with(const LoopNeeds& needs, Adjust adjust) const;
  // Reads the weights of the token space, and releases files that are done with. `codebook` is
  // asked for where the method knows neighbours of codes.
  void load_tokens(FunctionRef<Tensor()> codebook);
  void forget_files();

  GenerateOptions options_;
  std::string name_;
  OpenedModel opened_;
  DType storage_, vq_storage_;
  std::unique_ptr<ModelShare> share_;
  PromptEncoder prompts_;
  std::unique_ptr<TextRows> text_;  // null: the model needs none, or none was found
  DecodeAids aids_;
  std::unique_ptr<ImageDraft> draft_;
  ModelDrafter* drafter_ = nullptr;  // of parts, where a model drafts
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts_;
  std::optional<WindowController> controller_;  // keeps what it learned between submissions

 private:
  void open_draft(bool wanted);
  EncodedPrompt encode_caption(const std::string& prompt,
                               const std::optional<std::string>& negative, bool guided) const;
};

}  // namespace tessera
