// Videos as JSON text, as strict as scenes.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "apps/lab/scene/geometry.h"
#include "apps/lab/scene/scene_value.h"
#include "apps/lab/scene/video.h"
#include "engine/core/index.h"

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

void refuse_meetings(const Video& video, const JsonReader& reader) {
  for (int frame = 0; frame < video.frames; ++frame) {
    const Scene scene = scene_at(video, frame);
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
void order(Video* video) {
  std::vector<std::size_t> places(video->motions.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  const Video was = *video;
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    return world::screen_x(was.scene.solids[a]) < world::screen_x(was.scene.solids[b]);
  });
  for (std::size_t i = 0; i < places.size(); ++i) {
    video->scene.solids[i] = was.scene.solids[places[i]];
    video->motions[i] = was.motions[places[i]];
  }
}

}  // namespace

Json video_value(const Video& video) {
  Json motions = Json::array();
  for (const Motion motion : video.motions) motions.push_back(name_of(motion));
  return {{"version", 1},
          {"scene", scene_value(video.scene)},
          {"motions", std::move(motions)},
          {"camera", name_of(video.camera)},
          {"frames", video.frames}};
}

std::string video_to_json(const Video& video) { return video_value(video).dump(); }

Video video_from_json(std::string_view text, std::string_view file) {
  const std::string name(file);
  const Json json = parse_json(text, name, kSceneLimits);
  const JsonReader reader(json, name, "", ErrorKind::kUsage);
  static constexpr std::array<std::string_view, 5> kFields = {"version", "scene", "motions",
                                                              "camera", "frames"};
  reader.only(kFields);
  reader.integer("version", 1, 1);
  Video video;
  video.scene = scene_of(reader.object("scene"));
  video.motions = read_motions(reader, video.scene);
  video.camera = read_word<CameraMotion>(reader, "camera", camera_motion_names());
  video.frames = narrow<int>(reader.integer("frames", 1, kMaxSceneFrames));
  refuse_meetings(video, reader);
  order(&video);
  return video;
}

}  // namespace tessera
