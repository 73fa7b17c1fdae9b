// Clips as frames, true ones and spoiled ones.
#pragma once

#include <algorithm>
#include <vector>

#include "vision/image/image.h"
#include "vision/scene/clip.h"

namespace tessera {

inline constexpr int kFilmSide = 64;

inline std::vector<Image> true_frames(const Clip& clip) {
  std::vector<Image> frames;
  for (int frame = 0; frame < clip.frames; ++frame) {
    const ScenePicture picture = render_clip_frame(clip, frame, kFilmSide);
    frames.emplace_back(picture.width, picture.height, picture.rgb);
  }
  return frames;
}

inline std::vector<Image> reversed(std::vector<Image> frames) {
  std::reverse(frames.begin(), frames.end());
  return frames;
}

// One solid, a little to the left of the middle, away from places of any lattice.
inline Clip one_solid_clip(Motion motion, int frames = 16, SolidKind kind = SolidKind::kCube) {
  Clip clip;
  clip.scene.seed = 5;
  clip.scene.solids = {
      {kind, SolidColour::kRed, SolidSize::kLarge, SolidMaterial::kMatte, -0.37, 0.29}};
  clip.motions = {motion};
  clip.frames = frames;
  return clip;
}

}  // namespace tessera
