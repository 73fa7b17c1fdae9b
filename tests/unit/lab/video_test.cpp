// Videos: every frame is an image of the world, motions go where their words say, every sampled
// video keeps its guarantees in every frame, JSON is as strict as that of scenes.
#include "apps/lab/scene/video.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "apps/lab/scene/video_pose.h"
#include "apps/lab/scene/video_set.h"
#include "apps/lab/scene/geometry.h"
#include "engine/core/error.h"

namespace tessera::video_test {
namespace {

constexpr std::uint64_t kSeed = 21;

std::uint64_t hash_of(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

// One solid in the middle of the table.
Video one_solid(Motion motion, SolidKind kind = SolidKind::kCube) {
  Video video;
  video.scene.solids = {
      {kind, SolidColour::kRed, SolidSize::kSmall, SolidMaterial::kMatte, 0.0, 0.0}};
  video.motions = {motion};
  return video;
}

// Middle of the pixels that are redder than anything of a gray floor, in pixels.
struct Middle {
  double x = 0.0, y = 0.0, count = 0.0;
};
Middle middle_of_red(const SceneImage& image) {
  Middle middle;
  for (int i = 0; i < image.width * image.height; ++i) {
    const std::uint8_t* rgb = &image.rgb[static_cast<std::size_t>(i) * 3];
    if (rgb[0] < 2 * rgb[1] || rgb[0] < 40) continue;
    middle.x += i % image.width;
    middle.y += i / image.width;
    ++middle.count;
  }
  middle.x /= middle.count;
  middle.y /= middle.count;
  return middle;
}

TEST(Video, TheFirstFrameIsTheImageOfItsScene) {
  for (int i = 0; i < 40; ++i) {
    const Video video = sample_video(kSeed, SceneSplit::kTrain, i);
    EXPECT_EQ(render_video_frame(video, 0, 48).rgb, render_scene(video.scene, 48).rgb);
    EXPECT_EQ(scene_at(video, 0), video.scene);
  }
}

TEST(Video, SolidsGoWhereTheirWordsSay) {
  const auto moved = [](Motion motion) {
    const Video video = one_solid(motion);
    const Middle first = middle_of_red(render_video_frame(video, 0, 96));
    const Middle last = middle_of_red(render_video_frame(video, 15, 96));
    return Middle{last.x - first.x, last.y - first.y, last.count - first.count};
  };
  EXPECT_LT(moved(Motion::kLeft).x, -15.0);
  EXPECT_GT(moved(Motion::kRight).x, 15.0);
  EXPECT_GT(moved(Motion::kToward).y, 8.0);
  EXPECT_GT(moved(Motion::kToward).count, 0.0);  // nearer is larger
  EXPECT_LT(moved(Motion::kAway).y, -8.0);
  EXPECT_LT(moved(Motion::kAway).count, 0.0);
  EXPECT_EQ(moved(Motion::kStill).x, 0.0);
}

TEST(Video, ABounceLeavesTheTableAndComesBack) {
  const Video video = one_solid(Motion::kBounce);
  const auto height = [&](int frame) {
    return middle_of_red(render_video_frame(video, frame, 96)).y;
  };
  EXPECT_LT(height(4), height(0) - 8.0);
  EXPECT_LT(height(2), height(0) - 4.0);
  EXPECT_EQ(render_video_frame(video, 8, 64).rgb, render_video_frame(video, 0, 64).rgb);
}

TEST(Video, ASpinTurnsInPlace) {
  const Video video = one_solid(Motion::kSpin);
  EXPECT_EQ(scene_at(video, 9), video.scene);
  EXPECT_NE(render_video_frame(video, 3, 64).rgb, render_video_frame(video, 0, 64).rgb);
  // Eight steps of 11.25 degrees are a quarter turn: the same cube, but for rounding.
  const SceneImage start = render_video_frame(video, 0, 64),
                     quarter = render_video_frame(video, 8, 64);
  int largest = 0;
  for (std::size_t i = 0; i < start.rgb.size(); ++i) {
    largest = std::max(largest, std::abs(int{start.rgb[i]} - int{quarter.rgb[i]}));
  }
  EXPECT_LE(largest, 40);  // a sample at an edge may fall on the other side: a quarter of a pixel
  const world::PosedSolid turned = world::pose_video(video, 15).solids[0];
  EXPECT_NEAR(turned.cos_yaw * turned.cos_yaw + turned.sin_yaw * turned.sin_yaw, 1.0, 1e-5);
}

TEST(Video, TheOrbitKeepsItsDistance) {
  const world::Camera start = world::orbit_camera(0), plain = world::camera();
  EXPECT_EQ(start.forward.z, plain.forward.z);
  EXPECT_EQ(start.eye.z, world::kEye.z);
  for (const int steps : {1, 7, 15}) {
    const world::Camera camera = world::orbit_camera(steps);
    const world::Vec out = camera.eye - world::kLookAt, was = world::kEye - world::kLookAt;
    EXPECT_NEAR(dot(out, out), dot(was, was), 1e-2);
    EXPECT_NEAR(dot(camera.forward, camera.right), 0.0, 1e-5);
    EXPECT_NEAR(dot(camera.forward, camera.up), 0.0, 1e-5);
    const world::Projected middle = world::project(camera, world::kLookAt);
    EXPECT_NEAR(middle.u, 0.0, 1e-4);
    EXPECT_NEAR(middle.v, 0.0, 1e-4);
    const double angle = std::atan2(out.x, -out.z) * 180.0 / 3.14159265358979;
    EXPECT_NEAR(angle, 1.2 * steps, 1e-2);
  }
}

TEST(VideoSample, KeepsItsGuaranteesInEveryFrame) {
  std::map<Motion, int> seen;
  int orbits = 0, pairs = 0;
  for (int i = 0; i < 400; ++i) {
    const auto split = static_cast<SceneSplit>(i % 3);
    const Video video = sample_video(kSeed, split, i);
    EXPECT_EQ(video, sample_video(kSeed, split, i));
    EXPECT_EQ(has_holdout(video.scene), split == SceneSplit::kHoldout);
    ASSERT_EQ(video.motions.size(), video.scene.solids.size());
    orbits += video.camera == CameraMotion::kOrbit ? 1 : 0;
    pairs += video.motions.size() == 2 ? 1 : 0;
    for (const Motion motion : video.motions) ++seen[motion];
    for (int frame = 0; frame < video.frames; ++frame) {
      const Scene scene = scene_at(video, frame);
      for (std::size_t a = 0; a < scene.solids.size(); ++a) {
        EXPECT_LE(std::abs(scene.solids[a].x), double{world::kMaxX});
        EXPECT_LE(std::abs(scene.solids[a].z), double{world::kMaxZ});
        for (std::size_t b = 0; b < a; ++b) {
          EXPECT_TRUE(world::apart_on_ground(scene.solids[a], scene.solids[b], 0.1));
        }
      }
      if (i % 10 != 0) continue;  // the shares are dear
      for (const double share : video_visible_shares(video, frame, 64)) EXPECT_GE(share, 0.4);
    }
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kMotions));
  for (const auto& [motion, count] : seen) EXPECT_GE(count, 25) << name_of(motion);
  EXPECT_NEAR(orbits, 50, 25);
  EXPECT_NEAR(pairs, 200, 50);
}

TEST(VideoSample, FramesDoNotChangeWithTheProgram) {
  EXPECT_EQ(hash_of(render_video_frame(sample_video(1, SceneSplit::kTrain, 0), 15, 64).rgb),
            0x0fd6111da2ff4892u);
  EXPECT_EQ(hash_of(render_video_frame(sample_video(2, SceneSplit::kVal, 5), 9, 64).rgb),
            0x43eb2de9fe13b8eeu);
  EXPECT_EQ(hash_of(render_video_frame(sample_video(3, SceneSplit::kHoldout, 17), 12, 64).rgb),
            0x5537eb61e60ee4d5u);
}

TEST(VideoJson, EverySampledVideoSurvivesTheRoundTrip) {
  for (int i = 0; i < 300; ++i) {
    const Video video = sample_video(5, static_cast<SceneSplit>(i % 3), i, 1 + i % 16);
    EXPECT_EQ(video_from_json(video_to_json(video)), video);
  }
}

const std::string kGood =
    R"({"version":1,"scene":{"version":1,"seed":"7","floor":"dark","solids":[)"
    R"({"kind":"cube","colour":"blue","size":"small","material":"matte","x":-1.25,"z":0.5},)"
    R"({"kind":"cone","colour":"red","size":"large","material":"shiny","x":1.5,"z":-0.31}]},)"
    R"("motions":["spin","right"],"camera":"orbit","frames":8})";

TEST(VideoJson, MotionsFollowTheirSolidsIntoOrder) {
  const Video video = video_from_json(kGood);
  EXPECT_EQ(video_to_json(video), kGood);
  Video shuffled = video;
  std::swap(shuffled.scene.solids[0], shuffled.scene.solids[1]);
  std::swap(shuffled.motions[0], shuffled.motions[1]);
  EXPECT_EQ(video_from_json(video_to_json(shuffled)), video);
}

struct BadVideo {
  const char* name;
  const char* from;
  const char* to;
  const char* where;
};
class VideoJsonRefuses : public ::testing::TestWithParam<BadVideo> {};

TEST_P(VideoJsonRefuses, NamingThePlace) {
  std::string text = kGood;
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  try {
    video_from_json(text, "bad.json");
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
    EXPECT_EQ(error.info().file, "bad.json");
    EXPECT_NE(error.info().where.find(GetParam().where), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, VideoJsonRefuses,
    ::testing::Values(BadVideo{"UnknownField", "\"camera\"", "\"kamera\"", "kamera"},
                    BadVideo{"UnknownMotion", "\"spin\"", "\"fly\"", "motions[0]"},
                    BadVideo{"TooFewMotions", "\"spin\",", "", "motions"},
                    BadVideo{"ConeThatSpins", "\"right\"", "\"spin\"", "motions[1]"},
                    BadVideo{"NoFrames", "\"frames\":8", "\"frames\":0", "frames"},
                    BadVideo{"TooManyFrames", "\"frames\":8", "\"frames\":65", "frames"},
                    BadVideo{"LeavesTheTable", "\"frames\":8", "\"frames\":16", "motions[1]"},
                    BadVideo{"Meet", "\"spin\",\"right\"", "\"right\",\"left\"", "motions[1]"},
                    BadVideo{"BadScene", "\"dark\"", "\"wet\"", "scene.floor"},
                    BadVideo{"UnknownCamera", "\"orbit\"", "\"fall\"", "camera"}),
    [](const ::testing::TestParamInfo<BadVideo>& tested) { return tested.param.name; });

TEST(VideoCaption, SaysEverySolidWithItsMotion) {
  EXPECT_EQ(canonical_caption(video_from_json(kGood)),
            "a small blue matte cube spinning and a large red shiny cone moving right on a dark "
            "floor, the camera circling");
  std::set<std::string> starts;
  for (int i = 0; i < 200; ++i) {
    const Video video = sample_video(8, SceneSplit::kTrain, i);
    const std::string caption = video_caption(video);
    const std::string canonical = canonical_caption(video);
    const std::string parts = canonical.substr(0, canonical.find(" on a "));
    EXPECT_NE(caption.find(parts), std::string::npos) << caption;
    EXPECT_EQ(caption.ends_with(", the camera circling"), video.camera == CameraMotion::kOrbit);
    starts.insert(caption.substr(0, 4));
  }
  EXPECT_GE(starts.size(), 4u);  // "a sm", "a la", "on a", "one ", "two "
}

TEST(VideoSet, RecordsAreFunctionsOfTheirIndex) {
  ThreadPool pool(3);
  const SceneSetRequest request{
      .seed = 4, .split = SceneSplit::kVal, .start = 60, .count = 70, .size = 16};
  std::uint64_t next = 60;
  for_each_video(request, 3, pool, [&](const VideoRecord& record) {
    EXPECT_EQ(record.index, next);
    if (next % 9 == 0) {
      const VideoRecord alone = make_video_record(request, 3, next);
      EXPECT_EQ(record_to_json(record), record_to_json(alone));
      ASSERT_EQ(record.images.size(), 3u);
      EXPECT_EQ(record.images[2].rgb, alone.images[2].rgb);
    }
    ++next;
  });
  EXPECT_EQ(next, 130u);
}

TEST(Video, ASolidAloneLooksAsInTheFrame) {
  for (const Motion motion : {Motion::kBounce, Motion::kSpin, Motion::kAway}) {
    Video video = one_solid(motion);
    video.camera = CameraMotion::kOrbit;
    const SceneImage frame = render_video_frame(video, 3, 64);
    const SolidView view = render_video_solid(video, 3, 0, 64);
    ASSERT_GT(view.pixels.size(), 40u);
    ASSERT_EQ(view.rgb.size(), view.pixels.size() * 3);
    for (std::size_t i = 0; i < view.pixels.size(); ++i) {
      const auto at = static_cast<std::size_t>(view.pixels[i]) * 3;
      for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(view.rgb[i * 3 + c], frame.rgb[at + c]);
    }
    // Its middle is where video_point() puts it.
    double x = 0, y = 0;
    for (const std::int32_t pixel : view.pixels) {
      x += pixel % 64 + 0.5;
      y += pixel / 64 + 0.5;
    }
    const Solid where = scene_at(video, 3).solids[0];
    const double lifted = motion == Motion::kBounce ? static_cast<double>(bounce_height(3)) : 0.0;
    const double middle =
        0.5 * static_cast<double>(world::measures_of(where.kind, where.size).height);
    const ImagePoint point = video_point(video, 3, where.x, middle + lifted, where.z, 64);
    EXPECT_NEAR(x / static_cast<double>(view.pixels.size()), point.x, 0.8) << name_of(motion);
    EXPECT_NEAR(y / static_cast<double>(view.pixels.size()), point.y, 0.8) << name_of(motion);
  }
}

TEST(Video, ASolidAloneIsNotHiddenByOthers) {
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Video video = sample_video(kSeed, SceneSplit::kTrain, i);
    const std::vector<double> shares = video_visible_shares(video, 5, 64);
    for (std::size_t solid = 0; solid < shares.size(); ++solid) {
      Video alone = video;
      alone.scene.solids = {video.scene.solids[solid]};
      alone.motions = {video.motions[solid]};
      const SolidView with = render_video_solid(video, 5, solid, 64);
      const SolidView without = render_video_solid(alone, 5, 0, 64);
      EXPECT_EQ(with.pixels, without.pixels);
      EXPECT_EQ(with.rgb, without.rgb);
      EXPECT_EQ(with.depth, without.depth);
    }
  }
}

}  // namespace
}  // namespace tessera::video_test
