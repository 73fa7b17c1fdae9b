// Videos of the tabletop world: a scene whose solids move, eight frames a second. A video is plain
// data like a scene, and every frame of it is an image of the world: a function of the video and
// the frame's number alone. docs/world.md describes the motions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lab/scene/render.h"
#include "apps/lab/scene/scene.h"

namespace tessera {

enum class Motion : std::uint8_t { kStill, kLeft, kRight, kToward, kAway, kBounce, kSpin };
enum class CameraMotion : std::uint8_t { kStill, kOrbit };
inline constexpr int kMotions = 7;  // kSpin is for cubes, on which it can be seen

inline constexpr int kVideoRate = 8;  // frames a second
inline constexpr int kMaxSceneFrames = 64;
inline constexpr int kMaxVideoSolids = 2;  // of a sampled video

struct Video {
  Scene scene;                  // of the first frame
  std::vector<Motion> motions;  // one a solid
  CameraMotion camera = CameraMotion::kStill;
  int frames = 16;  // 1 to kMaxSceneFrames
  bool operator==(const Video&) const = default;
};

// "still", "left", "right", "toward", "away", "bounce", "spin"; "still", "orbit".
std::string_view name_of(Motion motion);
std::string_view name_of(CameraMotion motion);
std::span<const std::string_view> motion_names();
std::span<const std::string_view> camera_motion_names();

// Where the solids stand in a frame, in the order of the video's first frame: along the table
// 0.12 a frame. Heights and turns are not part of a scene.
Scene scene_at(const Video& video, int frame);

// expects() a frame of the video and the sizes of render_scene().
SceneImage render_video_frame(const Video& video, int frame, int size);

// What one solid of a video shows where nothing else stands on its floor: the pixels of an image of
// size x size whose centres it covers.
struct SolidView {
  std::vector<std::int32_t> pixels;  // y * size + x, growing
  std::vector<std::uint8_t> rgb;     // [pixels, 3], as render_video_frame() would generate them
  float depth = 0.0f;                // of the middle of its bottom, along the line of sight
};
SolidView render_video_solid(const Video& video, int frame, std::size_t solid, int size);

// How far a bouncing solid is over the table in a frame, in units.
float bounce_height(int frame);

// Where a place at a height over the table appears in a frame, in pixels from the top left corner.
struct ImagePoint {
  float x = 0.0f, y = 0.0f;
};
ImagePoint video_point(const Video& video, int frame, double x, double height, double z, int size);

// For each solid, as visible_shares().
std::vector<double> video_visible_shares(const Video& video, int frame, int size);

// The video number `index` of a split: one or two solids that keep clear of one another, of the
// image's edges and of the table's, and stay in sight, in every frame.
Video sample_video(std::uint64_t seed, SceneSplit split, std::uint64_t index, int frames = 16);

// One line of JSON: {"version":1,"scene":{as scene_to_json},"motions":[..],"camera":..,
// "frames":..}. Reads back to an equal video.
std::string video_to_json(const Video& video);
// As strict as scene_from_json; also a solid that leaves the table, two that meet, a round solid
// that spins and another number of motions than of solids are errors.
Video video_from_json(std::string_view text, std::string_view file = "");

// The plain sentence: "a large red shiny sphere moving left and a small blue matte cube spinning on
// a checkered floor", with ", the camera circling" after it if it does.
std::string canonical_caption(const Video& video);
// The plain sentence for six videos in ten, else a paraphrase; the choice is the scene seed's.
std::string video_caption(const Video& video);

}  // namespace tessera
