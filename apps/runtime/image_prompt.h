// A question about prepared images as a prompt of a captioning model, whoever asks: the model
// that writes, or one that drafts for it. Encodes, prunes, embeds, and checks what the model can
// hold.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/caption_prompt.h"
#include "apps/runtime/encoded_images.h"
#include "engine/decoding/stream.h"

namespace tessera {

// How the images of one prompt are pruned; without a pruner they stay whole.
struct PromptPruning {
  const Pruner* pruner = nullptr;
  Budget budget;
  std::uint64_t seed = 0, item = 0;  // of what is random
};

struct ImagePrompt {
  std::vector<std::unique_ptr<PruneSession>> sessions;  // of each image; none without a pruner
  std::vector<VisualBlock> whole;                       // of each image, before any pruning
  PromptRows rows;
  std::int64_t visual_tokens = 0;  // before any pruning
  std::int64_t known_images = 0;   // whose rows were kept
  std::vector<std::int32_t> ids;   // of the prompt before any pruning, placeholders included

  // What is left of each image by now: in front of the model, and after it once it ran.
  std::vector<VisualBlock> kept() const { return rows.cuts ? rows.cuts->blocks() : rows.kept; }
  double select_seconds() const;
  RowSource source() const;  // what served as CLS row
  // Of each token of `whole`: what the first selection that read attention saw of it, as a share of
  // the highest; NaN where it saw nothing. Empty without pruning, and for methods that read none.
  std::vector<std::vector<float>> scores() const;
};

std::int64_t count_tokens(std::span<const VisualBlock> blocks);

// What pruners may know of the model, for an image of so many views.
PrunedModel pruned_model_of(const CaptionModel& model, std::int64_t views);
// Error kUsage for what no image can make good: a method that the model cannot serve.
void check_pruning(const CaptionModel& model, const PromptPruning& pruning);

// For a loaded model. `whole_rows`, if given, receives a copy of the images' rows as they go into
// the prompt. `seen`: what VisualEncoder::look() gave for these images, or nothing.
// `kept`: where rows of images are taken from and go to, by the key of each. Error
// kGeneral for images that this model, method or prompt cannot take:
// E_PICTURE_TOKENS, E_PRUNE_PICTURE, and E_PROMPT_LENGTH if the rows do not fit its positions
// next to `max_tokens` of text; kModel as CaptionModel::prompt_ids().
ImagePrompt make_image_prompt(const CaptionModel& model, const ChatQuestion& question,
                                  std::span<const PreprocessedImage> images,
                                  const PromptPruning& pruning, std::int64_t max_tokens,
                                  std::span<EncodedTiles> seen = {},
                                  std::vector<VisualRows>* whole_rows = nullptr,
                                  EncodedImages* kept = nullptr,
                                  std::span<const ImageKey> keys = {});

// The question alone as a branch of a stream: nothing is pruned, and it borrows nothing. Errors as
// make_image_prompt().
StreamPrompt prompt_without_images(const CaptionModel& model, const ChatQuestion& question,
                                   std::int64_t max_tokens);

}  // namespace tessera
