// Videos as frames, true ones and spoiled ones.
#pragma once

#include <algorithm>
#include <vector>

#include "apps/lab/scene/video.h"
#include "vision/image/image.h"

namespace tessera {

inline constexpr int kFilmSide = 64;

inline std::vector<Image> true_frames(const Video& video) {
  std::vector<Image> frames;
  for (int frame = 0; frame < video.frames; ++frame) {
    const SceneImage image = render_video_frame(video, frame, kFilmSide);
    frames.emplace_back(image.width, image.height, image.rgb);
  }
  return frames;
}

inline std::vector<Image> reversed(std::vector<Image> frames) {
  std::reverse(frames.begin(), frames.end());
  return frames;
}

// One solid, a little to the left of the middle, away from places of any lattice.
inline Video one_solid_video(Motion motion, int frames = 16, SolidKind kind = SolidKind::kCube) {
  Video video;
  video.scene.seed = 5;
  video.scene.solids = {
      {kind, SolidColour::kRed, SolidSize::kLarge, SolidMaterial::kMatte, -0.37, 0.29}};
  video.motions = {motion};
  video.frames = frames;
  return video;
}

}  // namespace tessera
