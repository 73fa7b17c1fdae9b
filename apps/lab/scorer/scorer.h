// The scorer of `eval scenes`: a small convolutional network that reads a scene's attributes from
// pixels alone. Graph (docs/training.md): conv 3x3; per level ResBlocks, attention after each one
// of the deepest level, stride-2 convolution except after the last; GroupNorm, swish, mean over
// rows; one linear head per attribute.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/lab/scorer/attributes.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/conv_blocks.h"
#include "vision/image/image.h"

namespace tessera {

struct ScorerHead {
  std::string name;  // "count", "floor", "kind_1" ... "material_4"
  std::int64_t classes = 0;
};

struct ScorerConfig {
  std::int64_t image_size = 64;  // pixels a side
  std::int64_t base_channels = 32;
  std::vector<std::int64_t> multipliers;
  std::int64_t res_blocks = 1;
  GroupNormOptions norm;
  std::vector<ScorerHead> heads;  // in file order

  std::int64_t columns() const { return image_size >> (multipliers.size() - 1); }
  std::int64_t feature_count() const { return base_channels * multipliers.back() * columns(); }
};

// config.json of a scorer folder; `file` is its name in messages. Error kModel naming file, JSON
// path, what was expected and what was found; the labels must be the world's own words, in its
// order.
ScorerConfig parse_scorer_config(std::string_view json, const std::string& file);

// Whether a folder's config.json says that it is a scorer; false for folders that cannot be read.
bool is_scorer_folder(const std::filesystem::path& folder);

// conv_in to norm_out.
std::vector<ConvStep> scorer_steps(const ScorerConfig& config);

class Scorer {
 public:
  // A folder with config.json and model.safetensors. The backend must outlive the scorer. Error
  // kModel.
  static Scorer open(Backend& backend, const std::filesystem::path& folder);
  Scorer(Backend& backend, const ScorerConfig& config, const Checkpoint& checkpoint);

  const ScorerConfig& config() const { return config_; }

  // After the pooling: [feature_count] channel by channel, columns within a channel.
  std::vector<float> features(const Image& image) const;
  // All heads one after the other, in config order.
  std::vector<float> logits(const Image& image) const;
  // The most likely attributes. The image is square, image_size a side or a whole multiple of it
  // (then averaged down); expects() that.
  SceneAttributes read(const Image& image) const;

 private:
  struct Head {
    Tensor weight;  // [classes, feature_count] host f32
    Tensor bias;    // [classes] host f32
  };

  Backend& backend_;
  ScorerConfig config_;
  ConvStack body_;
  std::vector<Head> heads_;
};

}  // namespace tessera
