// A model that generates images, as a lane asks for it: its tokens, and what makes pixels of them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/runtime/code_patches.h"
#include "apps/runtime/generate_submission.h"
#include "apps/runtime/generator_model.h"
#include "apps/runtime/pixel_decoder.h"

namespace tessera {

class ImageModel : public GeneratorModel {
 public:
  // Error as GenerateTask's.
  ImageModel(Runtime& runtime, const GenerateOptions& options, OpenedModel model, std::string shown,
             WrittenSpaces spaces = WrittenSpaces::kImage);

  CodePatches& patches() const { return *patches_; }
  const PixelDecoder& pixels() const { return *pixels_; }
  bool loaded() const { return pixels_ != nullptr && share_->has_weights(); }

  void load() override;
  std::size_t loop_bytes(const StreamLimits& limits, const LoopNeeds& needs) const override;
  ErrorInfo no_room(const LoopNeeds& needs) const override;
  MemoryPlan plan(const LoopNeeds& needs, std::size_t others) const;
  // The ids of a text become the rows that its encoder makes of it, all at a place that is not
  // turned, as the image's are counted from the longest text's end.
  void make_rows(Stream& stream);
  GenerateSubmission::Tools tools();

 protected:
  // Ids that the logits of a loop's passes are of.
  virtual std::int64_t logit_ids() const { return config().codes; }

 private:
  // Of a loop whose model gives logits for so many ids.
  std::size_t loop_bytes_of(std::int64_t logit_ids, const StreamLimits& limits,
                            const LoopNeeds& needs) const;
  void load_pixels();

  std::unique_ptr<PixelDecoder> pixels_;
  std::unique_ptr<CodePatches> patches_;
  std::optional<CaptionRows> caption_;  // where prompts are rows of a text encoder
};

}  // namespace tessera
