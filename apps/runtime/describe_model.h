// A captioning model, its method and its draft model, as a lane asks for them. Opened and checked
// at once, loaded when the first text is written.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/runtime/caption_draft.h"
#include "apps/runtime/caption_memory.h"
#include "apps/runtime/caption_model.h"
#include "apps/runtime/describe_options.h"
#include "apps/runtime/image_prompt.h"
#include "apps/runtime/lane.h"
#include "apps/runtime/runtime.h"
#include "engine/decoding/method_parts.h"
#include "engine/sampling/dist.h"

namespace tessera {

// How the images of one submission are pruned.
struct DescribePruning {
  PruneChoice choice;
  std::unique_ptr<Pruner> pruner;  // null = not at all

  PromptPruning of(std::uint64_t seed, std::uint64_t item) const {
    return {pruner.get(), choice.budget, seed, item};
  }
};

class DescribeModel final : public LaneModel {
 public:
  // Opens and checks files; reads no weights. Error kModel; kUsage for settings that contradict one
  // another or the model.
  DescribeModel(Runtime& runtime, const DescribeOptions& options);

  const DescribeOptions& options() const { return options_; }
  const DecodeMethod& method() const { return options_.method; }
  const std::string& name() const { return name_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const CaptionModel& model() const { return *model_; }
  Backend& backend() const override { return share_->backend(); }
  DType storage() const { return storage_; }
  const DistributionSettings& dist() const { return dist_; }
  // What the tokens of a request with these settings are drawn from. Error kUsage for settings that
  // contradict one another or the model.
  DistributionSettings dist_of(const SettingValues& sampling) const;
  // Of a request. Error kUsage (E_TEXT_LENGTH).
  std::int64_t max_tokens_of(std::int64_t asked) const;
  CaptionDraft* draft() const { return draft_.get(); }  // null = none
  // What is held for these needs and images of this size.
  CaptionMemoryPlan plan(const LoopNeeds& needs, const PreprocessPlan& image) const;
  // Error kMemory (E_MEMORY_PLAN) when not even one short text about a small image fits.
  void check_memory() const;
  // A pruner of this choice. Error kUsage when the model cannot serve it.
  std::shared_ptr<const DescribePruning> pruning(const PruneChoice& choice) const;

  // Whether an image was encoded since the last pass: the next one waits for the next pass, so that
  // texts at work wait for no more.
  bool encoded_in_pass() const { return encoded_in_pass_; }
  void set_encoded_in_pass(bool encoded) { encoded_in_pass_ = encoded; }

  // Submissions that read images ahead, each with a thread and a process: no more than slots.
  std::int64_t readers() const { return readers_; }
  void add_readers(std::int64_t more) { readers_ += more; }

  void load() override;
  const TokenModel& tokens() const override { return model_->text(); }
  StreamLimits limits(const LoopNeeds& needs) const override;
  void make_drafter(const StreamLimits& limits, const LoopNeeds& needs) override;
  void drop_drafter() override;
  LoopParts parts() const override { return parts_->parts(); }
  WindowController* controller() override { return controller_ ? &*controller_ : nullptr; }
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const override;
  ErrorInfo no_room(const LoopNeeds& needs) const override;

 private:
  KeptWeights kept() const;

  DescribeOptions options_;
  std::string name_;
  std::vector<std::string> notes_;
  std::unique_ptr<CaptionModel> model_;
  DType storage_;
  std::unique_ptr<ModelShare> share_;
  DecodeAids aids_;
  DistributionSettings dist_;
  std::unique_ptr<CaptionDraft> draft_;
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts_;
  std::optional<WindowController> controller_;
  bool loaded_ = false, encoded_in_pass_ = false;
  std::int64_t readers_ = 0;
};

}  // namespace tessera
