// From preprocessed images to rows of the language model through a vision tower: encoder, selections
// in and after it, projector, the rows between tiles.
#pragma once

#include <vector>

#include "apps/runtime/visual_encoder.h"
#include "apps/runtime/visual_layout.h"
#include "vision/encoder/tile_encoder.h"

namespace tessera {

class PatchEncoder final : public VisualEncoder {
 public:
  // `newline` [D] is the row after each row of tiles, empty where there is none. Error kModel.
  PatchEncoder(Backend& backend, const VisionTower& tower, const std::string& config_file,
               const Checkpoint& checkpoint, std::vector<float> newline, DType storage);

  VisualRows encode(const PreprocessedImage& image, bool three_axes, PruneSession* session,
                    std::optional<EncodedTiles> seen = {}) const override;
  std::vector<EncodedTiles> look(std::span<const PreprocessedImage* const> images) const override;

 private:
  std::vector<float> joined_features(const std::vector<EncodedImage>& images,
                                     VisualBlock& block) const;
  std::vector<float> project_whole(EncodedTiles images, const PreprocessPlan& plan,
                                   const VisualLayout& layout) const;
  std::vector<float> project_frames(EncodedTiles images, const PreprocessPlan& plan,
                                    const VisualLayout& layout) const;
  std::vector<float> host_floats(const Tensor& tensor) const;

  Backend& backend_;
  ImageEncoder encoder_;
  std::vector<float> newline_;
};

}  // namespace tessera
