// From preprocessed images to rows of the language model: encoder, selections in and after it,
// projector, the rows between tiles.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "apps/runtime/prune_session.h"
#include "apps/runtime/visual_layout.h"
#include "vision/encoder/tile_encoder.h"

namespace tessera {

struct VisualRows {
  VisualBlock block;        // of the rows, in reading order
  VisualBlock whole;        // the same before any pruning
  std::vector<float> rows;  // [tokens, D]
  std::int64_t width = 0;   // D
  std::int64_t total = 0;   // tokens before any pruning
  // Of all of those: number in the image, or (view, row, column) where the model has three axes.
  std::vector<std::array<std::int32_t, 3>> positions;
  // The same as places on the axes, see VisualLayout::offsets.
  std::vector<std::array<std::int32_t, 3>> offsets;
};

// What pruners may know of the encoder's side, for an image of so many views.
PrunedModel pruned_model_of(const VisionTower& tower, std::int64_t views);

// Error kUsage (E_PRUNE_FAMILY) for a method that works in or after an encoder whose patches are
// tokens in no image. Images whose map is resized are refused by encode().
void check_patch_method(const VisionTower& tower, const PruneSession& session);

class VisualEncoder {
 public:
  // `newline` [D] is the row after each row of tiles, empty where there is none. Error kModel.
  VisualEncoder(Backend& backend, const VisionTower& tower, const std::string& config_file,
                const Checkpoint& checkpoint, std::vector<float> newline, DType storage);

  // An image's tokens; `session` null prunes nothing. `seen` is the image's part of look(), if
  // that was called. Error kUsage (E_PRUNE_FAMILY) when the method works in or after an encoder
  // whose patches are no tokens.
  VisualRows encode(const PreprocessedImage& image, bool three_axes, PruneSession* session,
                    std::optional<EncodedTiles> seen = {}) const;

  // The encoder's part for several images, whose views run together; each image's result is
  // what it would be alone. Not for images that `watched()` says yes to.
  std::vector<EncodedTiles> look(std::span<const PreprocessedImage* const> images) const;
  // Whether a method works in or right after the encoder, which then runs under its eyes.
  static bool watched(const PruneSession& session);

  PrunedModel pruned_model(std::int64_t views) const {
    return pruned_model_of(encoder_.tower(), views);
  }

  const ImageEncoder& encoder() const { return encoder_; }

 private:
  std::vector<float> joined_features(const std::vector<EncodedImage>& images,
                                     VisualBlock& block) const;
  std::vector<float> project_whole(EncodedTiles images, const PreprocessPlan& plan,
                                   const VisualLayout& layout) const;
  std::vector<float> project_frames(EncodedTiles images, const PreprocessPlan& plan,
                                    const VisualLayout& layout) const;
  void place_newlines(VisualRows& out) const;
  std::vector<float> host_floats(const Tensor& tensor) const;

  Backend& backend_;
  ImageEncoder encoder_;
  std::vector<float> newline_;
};

}  // namespace tessera
