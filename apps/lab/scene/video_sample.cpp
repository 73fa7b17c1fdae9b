// Draws videos: attributes, then motions, then places by rejection until every frame is fit to see.
#include <algorithm>

#include "apps/lab/scene/video.h"
#include "apps/lab/scene/video_pose.h"
#include "apps/lab/scene/dice.h"
#include "engine/core/error.h"

namespace tessera {
namespace {

constexpr int kVideoPlacesTried = 400;
constexpr double kMovingShare = 0.6;  // in sight, in any frame that is looked at
constexpr int kOrbits = 8;            // one video in so many has a moving camera

// Uniform but for the spin, which takes a third of the cubes: only a quarter of the solids are.
Motion draw_motion(Dice& dice, SolidKind kind) {
  constexpr int kForAll = kMotions - 1;
  const int drawn = dice.below(kind == SolidKind::kCube ? kForAll + kForAll / 2 : kForAll);
  return static_cast<Motion>(std::min(drawn, kForAll));
}

// Told apart where they stand, and where their motion ends; the top of a bounce is in the image.
bool fits(const Video& video, int frame) {
  const Scene scene = scene_at(video, frame);
  const world::Camera view = world::video_camera(video, frame);
  const world::PosedScene posed = world::pose_video(video, frame);
  for (std::size_t i = 0; i < scene.solids.size(); ++i) {
    const Solid& solid = scene.solids[i];
    if (!inside_frame(solid, view)) return false;
    if (std::abs(solid.x) > double{world::kMaxX} || std::abs(solid.z) > double{world::kMaxZ}) {
      return false;
    }
    const world::PosedSolid& body = posed.solids[i];
    const world::Vec top = body.base + world::Vec{0.0f, body.measures.height, 0.0f};
    if (world::project(view, top).v > kFrame) return false;
    for (std::size_t j = i + 1; j < scene.solids.size(); ++j) {
      if (!world::apart_on_ground(solid, scene.solids[j], world::kGroundGap)) return false;
    }
  }
  return true;
}

bool in_sight(const Video& video, int frame, double share) {
  const std::vector<double> shares = video_visible_shares(video, frame, kShareSide);
  return *std::min_element(shares.begin(), shares.end()) >= share;
}

bool well_placed(const Video& video) {
  const std::vector<Solid>& solids = video.scene.solids;
  for (std::size_t i = 1; i < solids.size(); ++i) {
    const float gap = world::screen_x(solids[i]) - world::screen_x(solids[i - 1]);
    if (gap < kMinScreenGap && gap > -kMinScreenGap) return false;
  }
  for (int frame = 0; frame < video.frames; ++frame) {
    if (!fits(video, frame)) return false;
  }
  if (!in_sight(video, 0, kShareWanted)) return false;
  for (int third = 1; third <= 3; ++third) {
    if (!in_sight(video, (video.frames - 1) * third / 3, kMovingShare)) return false;
  }
  return true;
}

bool place(Dice& dice, Video* video) {
  for (int tried = 0; tried < kVideoPlacesTried; ++tried) {
    for (Solid& solid : video->scene.solids) {
      solid.x = dice.place(world::kMaxX);
      solid.z = dice.place(world::kMaxZ);
    }
    if (well_placed(*video)) return true;
  }
  return false;
}

// Solids and their motions are ordered together.
void draw_order(Video* video) {
  std::vector<Solid>& solids = video->scene.solids;
  if (solids.size() == 2 && world::screen_x(solids[1]) < world::screen_x(solids[0])) {
    std::swap(solids[0], solids[1]);
    std::swap(video->motions[0], video->motions[1]);
  }
}

}  // namespace

Video sample_video(std::uint64_t seed, SceneSplit split, std::uint64_t index, int frames) {
  expects(frames >= 1 && frames <= 16, "1 to 16 frames of a sampled video");
  Video video;
  video.frames = frames;
  video.scene.seed = drawn_seed(DrawnKind::kVideo, seed, split, index);
  Dice dice(video.scene.seed);
  video.scene.floor = static_cast<FloorKind>(dice.below(kFloorKinds));
  video.camera = dice.below(kOrbits) == 0 ? CameraMotion::kOrbit : CameraMotion::kStill;
  const int count = 1 + dice.below(kMaxVideoSolids);
  video.scene.solids = draw_solids(dice, split, count);
  // Motions that leave no room (two solids rushing at one another) are drawn again.
  do {
    video.motions.clear();
    for (const Solid& solid : video.scene.solids) {
      video.motions.push_back(draw_motion(dice, solid.kind));
    }
  } while (!place(dice, &video));
  draw_order(&video);
  return video;
}

}  // namespace tessera
