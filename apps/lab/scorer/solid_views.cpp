#include "apps/lab/scorer/solid_views.h"

#include <cmath>

#include "apps/lab/scene/geometry.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

SolidViews::SolidViews(const Video& heard, std::size_t solid, int size, ThreadPool& pool)
    : size_(size), moving_camera_(heard.camera != CameraMotion::kStill) {
  expects(solid < heard.scene.solids.size(), "a solid of the video");
  alone_ = {.scene = {.seed = 0, .floor = heard.scene.floor, .solids = {heard.scene.solids[solid]}},
            .motions = {Motion::kStill},
            .camera = heard.camera,
            .frames = heard.frames};
  const Solid& look = alone_.scene.solids[0];
  height_ = 0.5 * world::measures_of(look.kind, look.size).height;
  const int cameras = moving_camera_ ? heard.frames : 1;
  views_.resize(to_size(cameras) * kPlaces);
  pool.parallel_for(std::ssize(views_), 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const int frame = narrow<int>(i) / kPlaces, at = narrow<int>(i) % kPlaces;
      const LatticePlace place{at % kColumns, at / kColumns};
      const ImagePoint middle =
          video_point(alone_, frame, x_of(place), height_, z_of(place), size_);
      const auto side = to_float(size_);
      if (middle.x < 0 || middle.y < 0 || middle.x >= side || middle.y >= side) continue;
      nth(views_, i) = render_video_solid(standing(place), frame, 0, size_);
    }
  });
}

Video SolidViews::standing(LatticePlace place) const {
  Video video = alone_;
  video.scene.solids[0].x = x_of(place);
  video.scene.solids[0].z = z_of(place);
  return video;
}

int SolidViews::lift(int frame, LatticePlace place) const {
  const double up = bounce_height(frame);
  const double x = x_of(place), z = z_of(place);
  return narrow<int>(std::lround(video_point(alone_, frame, x, height_, z, size_).y -
                                 video_point(alone_, frame, x, height_ + up, z, size_).y));
}

SolidView SolidViews::spinning(int frame, LatticePlace place) const {
  Video video = standing(place);
  video.motions[0] = Motion::kSpin;
  return render_video_solid(video, frame, 0, size_);
}

}  // namespace tessera
