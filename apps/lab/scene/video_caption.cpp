// Sentences about videos: each solid with its motion, the floor, the camera if it moves.
#include <array>

#include "apps/lab/scene/caption.h"
#include "apps/lab/scene/video.h"
#include "apps/lab/scene/wording.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, kMotions> kPhrases = {
    "standing still", "moving left", "moving right", "coming closer",
    "going away",     "bouncing",    "spinning"};

std::vector<std::string> described(const Video& video) {
  expects(video.motions.size() == video.scene.solids.size(), "a motion for each solid");
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < video.motions.size(); ++i) {
    parts.push_back(describe(video.scene.solids[i]) + " " +
                    std::string(nth(kPhrases, video.motions[i])));
  }
  return parts;
}

std::string with_camera(const Video& video, std::string text) {
  if (video.camera == CameraMotion::kOrbit) text += ", the camera circling";
  return text;
}

}  // namespace

std::string canonical_caption(const Video& video) {
  return with_camera(video, join_list(described(video)) + " " + floor_phrase(video.scene.floor));
}

std::string video_caption(const Video& video) {
  const int wording = Choices(video.scene.seed).below(10, 0);
  if (wording < 6) return canonical_caption(video);
  const bool counts = wording < 8;
  return with_camera(video, counts ? counted(video.scene.floor, described(video))
                                  : there_are(video.scene.floor, described(video)));
}

}  // namespace tessera
