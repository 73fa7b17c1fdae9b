// Where things are in a frame. Like the renderer, +, -, *, / and sqrt of floats only.
#include "apps/lab/scene/video.h"

#include <array>

#include "apps/lab/scene/render_posed.h"
#include "apps/lab/scene/video_pose.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, kMotions> kMotionNames = {
    "still", "left", "right", "toward", "away", "bounce", "spin"};
constexpr std::array<std::string_view, 2> kCameraNames = {"still", "orbit"};

constexpr int kStep = 12;         // hundredths of a unit a frame
constexpr int kBounceFrames = 8;  // one bounce, a second
constexpr float kBounceHeight = 1.2f;
constexpr float kSpinCos = 0.98078528f, kSpinSin = 0.19509032f;  // 11.25 degrees a frame

}  // namespace

// The parabola of a thrown ball.
float bounce_height(int frame) {
  const float part = to_float(frame % kBounceFrames) / kBounceFrames;
  return 4.0f * kBounceHeight * part * (1.0f - part);
}

std::string_view name_of(Motion motion) { return nth(kMotionNames, motion); }
std::string_view name_of(CameraMotion motion) { return nth(kCameraNames, motion); }
std::span<const std::string_view> motion_names() { return kMotionNames; }
std::span<const std::string_view> camera_motion_names() { return kCameraNames; }

Scene scene_at(const Video& video, int frame) {
  expects(video.motions.size() == video.scene.solids.size(), "a motion for each solid");
  expects(frame >= 0 && frame < video.frames, "a frame of the video");
  Scene scene = video.scene;
  // Whole hundredths, so that the places of any frame are as exact as those of a scene.
  const auto moved = [&](double from, int direction) {
    const double hundredths = from * 100.0;
    const int whole = truncate<int>(hundredths + (hundredths < 0.0 ? -0.5 : 0.5));
    return (whole + direction * kStep * frame) / 100.0;
  };
  for (std::size_t i = 0; i < scene.solids.size(); ++i) {
    Solid& solid = scene.solids[i];
    const Motion motion = video.motions[i];
    if (motion == Motion::kLeft) solid.x = moved(solid.x, -1);
    if (motion == Motion::kRight) solid.x = moved(solid.x, 1);
    if (motion == Motion::kToward) solid.z = moved(solid.z, -1);
    if (motion == Motion::kAway) solid.z = moved(solid.z, 1);
  }
  return scene;
}

namespace world {

PosedScene pose_video(const Video& video, int frame) {
  PosedScene posed = pose(scene_at(video, frame));
  for (int i = 0; i < posed.count; ++i) {
    PosedSolid& solid = posed.solids[i];
    if (video.motions[i] == Motion::kBounce) solid.base.y = bounce_height(frame);
    for (int step = 0; video.motions[i] == Motion::kSpin && step < frame; ++step) {
      const float c = solid.cos_yaw, s = solid.sin_yaw;
      solid.cos_yaw = c * kSpinCos - s * kSpinSin;
      solid.sin_yaw = c * kSpinSin + s * kSpinCos;
    }
  }
  return posed;
}

Camera video_camera(const Video& video, int frame) {
  return orbit_camera(video.camera == CameraMotion::kOrbit ? frame : 0);
}

}  // namespace world

SceneImage render_video_frame(const Video& video, int frame, int size) {
  return render_posed(world::pose_video(video, frame), world::video_camera(video, frame), size);
}

SolidView render_video_solid(const Video& video, int frame, std::size_t solid, int size) {
  expects(solid < video.scene.solids.size(), "a solid of the video");
  world::PosedScene posed = world::pose_video(video, frame);
  posed.solids[0] = posed.solids[solid];
  posed.count = 1;
  return view_alone(posed, world::video_camera(video, frame), size);
}

ImagePoint video_point(const Video& video, int frame, double x, double height, double z, int size) {
  const world::Projected at = world::project(world::video_camera(video, frame),
                                             {to_float(x), to_float(height), to_float(z)});
  const float half = 0.5f * to_float(size);
  return {(1.0f + at.u) * half, (1.0f - at.v) * half};
}

std::vector<double> video_visible_shares(const Video& video, int frame, int size) {
  return shares_posed(world::pose_video(video, frame), world::video_camera(video, frame), size);
}

}  // namespace tessera
