// A model of videos with its tokenizer and method, as lanes and submissions ask for it: opened and
// checked first, its weights read when they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/runtime/generator_model.h"
#include "apps/runtime/video_request.h"
#include "apps/runtime/video_windows.h"
#include "engine/model/block_model.h"
#include "tokenizers/visual/video_tokenizer.h"

namespace tessera {

class VideoModel final : public GeneratorModel {
 public:
  // Error kModel, kUsage: those of VideoTask.
  VideoModel(Runtime& runtime, const GenerateOptions& options, OpenedModel model,
             std::string shown_name);

  const VideoSpec& video_spec() const { return *opened_.spec.video; }
  bool writes_blocks() const { return opened_.spec.blocks.has_value(); }
  // Grids of a window that begin the next one, where a video is longer than the model's own.
  std::int64_t kept_grids() const {
    return config().grids - std::max<std::int64_t>(1, config().grids / 2);
  }
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
  // What the text encoder makes of a text, as PreparedVideo has it.
  std::shared_ptr<const Tensor> text_of(std::span<const std::int32_t> ids) {
    return text_->padded_rows_of(ids);
  }
  // Empty without an encoder.
  std::string text_encoder() const { return text_ == nullptr ? "" : text_->name(); }

  void load() override;
  const PassModel& tokens() const override;
  StreamLimits limits(const LoopNeeds& needs) const override;
  LoopParts parts() const override;
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const override;
  ErrorInfo no_room(const LoopNeeds& needs) const override;

 private:
  std::optional<BlockModel> blocks_;  // in the place of a token space
  std::shared_ptr<const VideoTokenizer> tokenizer_;
  bool both_halves_ = false;
};

}  // namespace tessera
