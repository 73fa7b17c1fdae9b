// Clips as JSON text, as strict as scenes.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "vision/scene/clip.h"
#include "vision/scene/geometry.h"
#include "vision/scene/scene_value.h"

namespace tessera {
namespace {

std::vector<Motion> read_motions(const JsonReader& reader, const Scene& scene) {
  const std::vector<std::string> words = reader.strings("motions", kMaxSolids);
  if (words.size() != scene.solids.size()) {
    reader.fail("motions", "one for each of the " + std::to_string(scene.solids.size()) + " solids",
                std::to_string(words.size()));
  }
  std::vector<Motion> motions;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto found = std::find(motion_names().begin(), motion_names().end(), words[i]);
    const std::string place = "motions[" + std::to_string(i) + "]";
    if (found == motion_names().end()) {
      std::string expected = "one of";
      for (const std::string_view word : motion_names()) expected += " " + std::string(word);
      reader.fail(place, expected, "\"" + words[i] + "\"");
    }
    motions.push_back(static_cast<Motion>(found - motion_names().begin()));
    if (motions.back() == Motion::kSpin && scene.solids[i].kind != SolidKind::kCube) {
      reader.fail(place, "a cube that spins", "a " + std::string(name_of(scene.solids[i].kind)));
    }
  }
  return motions;
}

void refuse_meetings(const Clip& clip, const JsonReader& reader) {
  for (int frame = 0; frame < clip.frames; ++frame) {
    const Scene scene = scene_at(clip, frame);
    const std::string when = " in frame " + std::to_string(frame);
    for (std::size_t i = 0; i < scene.solids.size(); ++i) {
      const Solid& solid = scene.solids[i];
      const std::string place = "motions[" + std::to_string(i) + "]";
      if (std::abs(solid.x) > double{world::kMaxX} || std::abs(solid.z) > double{world::kMaxZ}) {
        reader.fail(place, "a solid that stays on the table", "one that leaves it" + when);
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (world::apart_on_ground(solid, scene.solids[j], 0.0)) continue;
        reader.fail(place, "solids that never touch",
                    "one that meets solid " + std::to_string(j) + when);
      }
    }
  }
}

// Left to right in the first frame, motions with their solids.
void order(Clip* clip) {
  std::vector<std::size_t> places(clip->motions.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  const Clip was = *clip;
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    return world::screen_x(was.scene.solids[a]) < world::screen_x(was.scene.solids[b]);
  });
  for (std::size_t i = 0; i < places.size(); ++i) {
    clip->scene.solids[i] = was.scene.solids[places[i]];
    clip->motions[i] = was.motions[places[i]];
  }
}

}  // namespace

Json clip_value(const Clip& clip) {
  Json motions = Json::array();
  for (const Motion motion : clip.motions) motions.push_back(name_of(motion));
  return {{"version", 1},
          {"scene", scene_value(clip.scene)},
          {"motions", std::move(motions)},
          {"camera", name_of(clip.camera)},
          {"frames", clip.frames}};
}

std::string clip_to_json(const Clip& clip) { return clip_value(clip).dump(); }

Clip clip_from_json(std::string_view text, std::string_view file) {
  const std::string name(file);
  const Json json = parse_json(text, name, kSceneLimits);
  const JsonReader reader(json, name, "", ErrorKind::kUsage);
  static constexpr std::array<std::string_view, 5> kFields = {"version", "scene", "motions",
                                                              "camera", "frames"};
  reader.only(kFields);
  reader.integer("version", 1, 1);
  Clip clip;
  clip.scene = scene_of(reader.object("scene"));
  clip.motions = read_motions(reader, clip.scene);
  clip.camera = read_word<CameraMotion>(reader, "camera", camera_motion_names());
  clip.frames = static_cast<int>(reader.integer("frames", 1, kMaxClipFrames));
  refuse_meetings(clip, reader);
  order(&clip);
  return clip;
}

}  // namespace tessera
