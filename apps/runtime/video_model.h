// A model of videos with its tokenizer and method, as lanes and submissions ask for it: opened and
// checked first, its weights read when they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/draft_model.h"
#include "apps/runtime/lane.h"
#include "apps/runtime/prompt_encoder.h"
#include "apps/runtime/video_request.h"
#include "apps/runtime/video_windows.h"
#include "engine/decoding/method_parts.h"
#include "engine/model/block_model.h"
#include "tokenizers/visual/video_tokenizer.h"

namespace tessera {

class VideoModel final : public LaneModel {
 public:
  // Error kModel, kUsage: those of VideoTask.
  VideoModel(const GenerateOptions& options, OpenedModel model, std::string shown_name);

  const GenerateOptions& options() const { return options_; }  // with the settled method
  const std::string& name() const { return name_; }
  const ModelSpec& spec() const { return opened_.spec; }
  const StreamModelConfig& config() const { return opened_.spec.model; }
  const VideoSpec& video_spec() const { return *opened_.spec.video; }
  const Backend& backend() const { return *backend_; }
  DType storage() const { return storage_; }
  DType vq_storage() const { return vq_storage_; }
  const VocabularyGrammar& grammar() const { return aids_.grammar; }
  const PromptEncoder& prompts() const { return prompts_; }
  bool writes_blocks() const { return opened_.spec.blocks.has_value(); }
  // Grids of a window that begin the next one, where a video is longer than the model's own.
  std::int64_t kept_grids() const {
    return config().grids - std::max<std::int64_t>(1, config().grids / 2);
  }
  std::string window_report() const { return controller_ ? controller_->why() : ""; }

  // Null where no model drafts.
  const ImageDraft* draft() const { return draft_.get(); }

  LoopNeeds needs_of(const PreparedVideo& video) const;
  // The stream in a slot of the loop, for the drafter of a draft model, if there is one.
  void announce(std::size_t slot, const PreparedVideo& video) const;
  // What is held besides weights for these needs, tables of the method included.
  MemoryPlan plan(const LoopNeeds& needs, bool encodes) const;

  // Both halves of the tokenizer, or the one that decodes. What was emitted stays valid.
  void load_tokenizer(bool encoder);
  // After load_tokenizer().
  VideoWindows::Parts window_parts() const;
  // Codes of whole grids; none of no frames. Needs both halves.
  std::vector<std::int32_t> encode(const std::vector<Image>& frames) const;
  // After load().
  CrossContext context_of(const Tensor& text) const;

  void load() override;
  const PassModel& tokens() const override;
  StreamLimits limits(const LoopNeeds& needs) const override;
  void make_drafter(const StreamLimits& limits, const LoopNeeds& needs) override;
  void drop_drafter() override;
  LoopParts parts() const override;
  WindowController* controller() override { return controller_ ? &*controller_ : nullptr; }
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const override;
  ErrorInfo no_room(const LoopNeeds& needs) const override;

 private:
  void open_draft();
  DraftLimits draft_limits(const StreamLimits& limits, const LoopNeeds& needs) const;
  void load_language();

  GenerateOptions options_;
  std::string name_;
  OpenedModel opened_;
  std::unique_ptr<Backend> backend_;
  DType storage_, vq_storage_;
  PromptEncoder prompts_;
  std::optional<StreamModel> model_;
  std::optional<BlockModel> blocks_;  // in its place
  std::shared_ptr<const VideoTokenizer> tokenizer_;
  bool both_halves_ = false;
  DecodeAids aids_;
  std::unique_ptr<ImageDraft> draft_;
  ModelDrafter* drafter_ = nullptr;  // of parts, where a model drafts
  std::unique_ptr<OwnedParts<float, KeyedRandom>> parts_;
  std::optional<WindowController> controller_;
};

}  // namespace tessera
