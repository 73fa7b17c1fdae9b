#include "vision/judge/solid_views.h"

#include <cmath>

#include "engine/core/error.h"
#include "vision/scene/geometry.h"

namespace tessera {

SolidViews::SolidViews(const Clip& told, std::size_t solid, int size, ThreadPool& pool)
    : size_(size), moving_camera_(told.camera != CameraMotion::kStill) {
  expects(solid < told.scene.solids.size(), "a solid of the clip");
  alone_ = {.scene = {.seed = 0, .floor = told.scene.floor, .solids = {told.scene.solids[solid]}},
            .motions = {Motion::kStill},
            .camera = told.camera,
            .frames = told.frames};
  const Solid& look = alone_.scene.solids[0];
  height_ = 0.5 * static_cast<double>(world::measures_of(look.kind, look.size).height);
  const int cameras = moving_camera_ ? told.frames : 1;
  views_.resize(static_cast<std::size_t>(cameras) * kPlaces);
  pool.parallel_for(
      static_cast<std::int64_t>(views_.size()), 16, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const int frame = static_cast<int>(i) / kPlaces, at = static_cast<int>(i) % kPlaces;
          const LatticePlace place{at % kColumns, at / kColumns};
          const PicturePoint middle =
              clip_point(alone_, frame, x_of(place), height_, z_of(place), size_);
          const auto side = static_cast<float>(size_);
          if (middle.x < 0 || middle.y < 0 || middle.x >= side || middle.y >= side) continue;
          views_[static_cast<std::size_t>(i)] = render_clip_solid(standing(place), frame, 0, size_);
        }
      });
}

Clip SolidViews::standing(LatticePlace place) const {
  Clip clip = alone_;
  clip.scene.solids[0].x = x_of(place);
  clip.scene.solids[0].z = z_of(place);
  return clip;
}

int SolidViews::lift(int frame, LatticePlace place) const {
  const double up = static_cast<double>(bounce_height(frame));
  const double x = x_of(place), z = z_of(place);
  return static_cast<int>(std::lround(clip_point(alone_, frame, x, height_, z, size_).y -
                                      clip_point(alone_, frame, x, height_ + up, z, size_).y));
}

SolidView SolidViews::spinning(int frame, LatticePlace place) const {
  Clip clip = standing(place);
  clip.motions[0] = Motion::kSpin;
  return render_clip_solid(clip, frame, 0, size_);
}

}  // namespace tessera
