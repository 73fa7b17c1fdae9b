#include "engine/spec/preprocess_policy.h"

namespace tessera {

PreprocessPolicy frame_policy(PreprocessPolicy image) {
  image.newline_at_end = false;
  if (image.mode == ResizeMode::kPinpoints) image.mode = ResizeMode::kStretch;
  if (image.mode == ResizeMode::kTiles) image.split = false;
  return image;
}

}  // namespace tessera
