// Draws clips: attributes, then motions, then places by rejection until every frame is fit to see.
#include <algorithm>

#include "engine/core/error.h"
#include "vision/scene/clip.h"
#include "vision/scene/clip_pose.h"
#include "vision/scene/dice.h"

namespace tessera {
namespace {

constexpr int kPlacesTried = 400;
constexpr double kMovingShare = 0.6;  // in sight, in any frame that is looked at
constexpr int kOrbits = 8;            // one clip in so many has a moving camera

// Uniform but for the spin, which takes a third of the cubes: only a quarter of the solids are.
Motion draw_motion(Dice& dice, SolidKind kind) {
  constexpr int kForAll = kMotions - 1;
  const int drawn = dice.below(kind == SolidKind::kCube ? kForAll + kForAll / 2 : kForAll);
  return static_cast<Motion>(std::min(drawn, kForAll));
}

// Told apart where they stand, and where their motion ends; the top of a bounce is in the picture.
bool fits(const Clip& clip, int frame) {
  const Scene scene = scene_at(clip, frame);
  const world::Camera view = world::clip_camera(clip, frame);
  const world::PosedScene posed = world::pose_clip(clip, frame);
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

bool in_sight(const Clip& clip, int frame, double share) {
  const std::vector<double> shares = clip_visible_shares(clip, frame, kShareSide);
  return *std::min_element(shares.begin(), shares.end()) >= share;
}

bool well_placed(const Clip& clip) {
  const std::vector<Solid>& solids = clip.scene.solids;
  for (std::size_t i = 1; i < solids.size(); ++i) {
    const float gap = world::screen_x(solids[i]) - world::screen_x(solids[i - 1]);
    if (gap < kLeastScreenGap && gap > -kLeastScreenGap) return false;
  }
  for (int frame = 0; frame < clip.frames; ++frame) {
    if (!fits(clip, frame)) return false;
  }
  if (!in_sight(clip, 0, kShareWanted)) return false;
  for (int third = 1; third <= 3; ++third) {
    if (!in_sight(clip, (clip.frames - 1) * third / 3, kMovingShare)) return false;
  }
  return true;
}

bool place(Dice& dice, Clip* clip) {
  for (int tried = 0; tried < kPlacesTried; ++tried) {
    for (Solid& solid : clip->scene.solids) {
      solid.x = dice.place(world::kMaxX);
      solid.z = dice.place(world::kMaxZ);
    }
    if (well_placed(*clip)) return true;
  }
  return false;
}

// Solids and their motions are ordered together.
void order(Clip* clip) {
  std::vector<Solid>& solids = clip->scene.solids;
  if (solids.size() == 2 && world::screen_x(solids[1]) < world::screen_x(solids[0])) {
    std::swap(solids[0], solids[1]);
    std::swap(clip->motions[0], clip->motions[1]);
  }
}

}  // namespace

Clip sample_clip(std::uint64_t seed, SceneSplit split, std::uint64_t index, int frames) {
  expects(frames >= 1 && frames <= 16, "1 to 16 frames of a sampled clip");
  Clip clip;
  clip.frames = frames;
  clip.scene.seed = drawn_seed(DrawnKind::kClip, seed, split, index);
  Dice dice(clip.scene.seed);
  clip.scene.floor = static_cast<FloorKind>(dice.below(kFloorKinds));
  clip.camera = dice.below(kOrbits) == 0 ? CameraMotion::kOrbit : CameraMotion::kStill;
  const int count = 1 + dice.below(kMaxClipSolids);
  clip.scene.solids = draw_solids(dice, split, count);
  // Motions that leave no room (two solids rushing at one another) are drawn again.
  do {
    clip.motions.clear();
    for (const Solid& solid : clip.scene.solids) {
      clip.motions.push_back(draw_motion(dice, solid.kind));
    }
  } while (!place(dice, &clip));
  order(&clip);
  return clip;
}

}  // namespace tessera
