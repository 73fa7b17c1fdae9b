// Sentences about clips: each solid with its motion, the floor, the camera if it moves.
#include <array>

#include "engine/core/error.h"
#include "vision/scene/caption.h"
#include "vision/scene/clip.h"
#include "vision/scene/wording.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, kMotions> kPhrases = {
    "standing still", "moving left", "moving right", "coming closer",
    "going away",     "bouncing",    "spinning"};

std::vector<std::string> described(const Clip& clip) {
  expects(clip.motions.size() == clip.scene.solids.size(), "a motion for each solid");
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < clip.motions.size(); ++i) {
    parts.push_back(describe(clip.scene.solids[i]) + " " +
                    std::string(kPhrases[static_cast<int>(clip.motions[i])]));
  }
  return parts;
}

std::string with_camera(const Clip& clip, std::string text) {
  if (clip.camera == CameraMotion::kOrbit) text += ", the camera circling";
  return text;
}

}  // namespace

std::string canonical_caption(const Clip& clip) {
  return with_camera(clip, join_list(described(clip)) + " " + floor_phrase(clip.scene.floor));
}

std::string clip_caption(const Clip& clip) {
  const int wording = Choices(clip.scene.seed).below(10, 0);
  if (wording < 6) return canonical_caption(clip);
  const bool counts = wording < 8;
  return with_camera(clip, counts ? counted(clip.scene.floor, described(clip))
                                  : there_are(clip.scene.floor, described(clip)));
}

}  // namespace tessera
