// What the files of a captioning model say before any weight is read: the table of families that
// describe pictures.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/json.h"
#include "engine/families/language.h"
#include "video/frame_sampler.h"
#include "vision/encoder/vision_tower.h"
#include "vision/image/clip_preprocess.h"

namespace tessera {

struct CaptionSpec {
  std::string family;  // model_type
  std::string title;
  std::filesystem::path folder;
  TextSpec text;
  VisionTower tower;
  PreprocessPolicy policy;
  std::optional<PreprocessPolicy> together;  // of pictures that share a prompt; none = the same
  ClipPolicy clip;                           // of clips
  FrameSampling clip_frames;                 // which frames of a clip are shown
  std::int32_t image_id = -1;                // the id that stands for a visual token
  std::int32_t video_id = -1;                // ... of a clip; -1: the family shows it as pictures
  std::string image_token;                   // the same as it is written
  std::string newline_name;                  // tensor behind each row of tiles; empty = none
  std::vector<std::int32_t> stops;
  std::shared_ptr<const Json> config;  // config.json

  const PreprocessPolicy& policy_of(std::size_t pictures) const {
    return pictures > 1 && together ? *together : policy;
  }
  bool three_axes() const { return text.model.transformer.rope.three_axes(); }
};

// Reads config.json, preprocessor_config.json and video_preprocessor_config.json alone. Error
// kModel.
CaptionSpec read_caption_spec(const std::filesystem::path& folder);
// The same from what these files hold; `folder` is their place in messages.
CaptionSpec parse_caption_spec(std::shared_ptr<const Json> config,
                               const std::optional<Json>& preprocessor,
                               const std::filesystem::path& folder);
CaptionSpec parse_caption_spec(std::shared_ptr<const Json> config,
                               const std::optional<Json>& preprocessor,
                               const std::optional<Json>& video_preprocessor,
                               const std::filesystem::path& folder);
std::string caption_families();  // "llava, llava_next, ..."
// Whether the folder's config.json names a family that describes pictures.
bool is_caption_model(const std::filesystem::path& folder);

}  // namespace tessera
