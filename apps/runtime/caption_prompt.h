// A prompt with images in it as rows of the language model: embedded text, visual rows in place
// of the placeholders, the place of each row in the rotary table, pruned or not.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/runtime/llm_pruning.h"
#include "apps/runtime/visual_encoder.h"
#include "engine/decoding/stream.h"
#include "engine/model/token_model.h"

namespace tessera {

struct PromptImage {
  VisualRows visual;
  PruneSession* session = nullptr;
  std::vector<float> verifier;  // of each token: scores of a verifying model; empty = none
};

struct PromptRows {
  Tensor rows;                                      // [T, D] on the model's device
  std::vector<std::array<std::int64_t, 3>> places;  // [T]
  std::int64_t next_place = 0;
  std::vector<RowKey> keys;        // [T]; see StreamPrompt
  std::vector<std::int32_t> text;  // ids of the prompt without placeholders
  std::vector<VisualBlock> kept;   // of each image, as it enters the language model
  std::vector<std::vector<std::int64_t>> image_rows;  // of each image's tokens that are left
  std::vector<std::int64_t> text_rows;                  // after the last image
  std::unique_ptr<LlmPruning> cuts;  // null when no image is pruned inside the model
};

// `ids` hold `image_id`, or `video_id` where videos have an id of their own, once for every visual
// token before pruning, images and videos in order. Asks methods after the projector and drops
// what they say. Text after a video goes on after its highest place. The sessions must outlive
// `cuts`.
PromptRows build_prompt(const TokenModel& model, std::span<const std::int32_t> ids,
                        std::int32_t image_id, std::vector<PromptImage> images,
                        std::int32_t video_id = -1);

}  // namespace tessera
