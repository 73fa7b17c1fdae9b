// What a captioning model computes for one question, in a file that others can compare with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "apps/runtime/caption_model.h"
#include "vision/image/decoded_image.h"

namespace tessera {

// Of a loaded model, without pruning, as safetensors: `input_ids` [T] i32, placeholders and all;
// `features.I` [tokens, D] f32, what image I puts in their places; `logits` [steps, vocab] f32, of
// the last row of the prompt and after each of `tokens` [steps] i32 but the last. A token is the
// one of the largest logit, before any setting of sampling. Error kGeneral as make_image_prompt();
// kStorage.
void dump_caption(const CaptionModel& model, const std::string& question,
                  std::span<const DecodedImage> images, std::int64_t steps,
                  const std::filesystem::path& file);

}  // namespace tessera
