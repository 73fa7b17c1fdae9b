// Motions read from pixels: right on true videos, turned round on videos that run backwards, wrong
// under the captions of other videos; places and motions of the caption are not looked at.
#include <gtest/gtest.h>

#include <cmath>

#include "apps/lab/scorer/video_marks.h"
#include "apps/lab/scorer/motion_reader.h"
#include "tests/unit/lab/video_films.h"

namespace tessera::motion_test {
namespace {

ThreadPool& pool() {
  static ThreadPool threads(2);
  return threads;
}

SeenVideo read(const Video& heard, std::span<const Image> frames, int first = 0) {
  return MotionReader(heard, kFilmSide, first, pool()).read(frames);
}

constexpr Motion kAll[] = {Motion::kStill, Motion::kLeft,   Motion::kRight, Motion::kToward,
                           Motion::kAway,  Motion::kBounce, Motion::kSpin};

Motion opposite(Motion motion) {
  switch (motion) {
    case Motion::kLeft:
      return Motion::kRight;
    case Motion::kRight:
      return Motion::kLeft;
    case Motion::kToward:
      return Motion::kAway;
    case Motion::kAway:
      return Motion::kToward;
    default:
      return motion;
  }
}

class EveryMotion : public ::testing::TestWithParam<Motion> {};

TEST_P(EveryMotion, IsSeenInLongAndShortVideos) {
  for (const int frames : {16, 8}) {
    const Video video = one_solid_video(GetParam(), frames);
    const SeenVideo seen = read(video, true_frames(video));
    ASSERT_EQ(seen.solids.size(), 1u);
    EXPECT_TRUE(seen.solids[0].found);
    EXPECT_GT(seen.solids[0].explained, 0.8);
    EXPECT_EQ(seen.solids[0].motion, GetParam()) << frames;
    ASSERT_EQ(seen.solids[0].places.size(), static_cast<std::size_t>(frames));
    for (int frame = 0; frame < frames; ++frame) {
      const Solid where = scene_at(video, frame).solids[0];
      const LatticePlace place = seen.solids[0].places[static_cast<std::size_t>(frame)];
      EXPECT_NEAR(SolidViews::x_of(place), where.x, 0.13) << frame;
      EXPECT_NEAR(SolidViews::z_of(place), where.z, 0.13) << frame;
    }
  }
}

TEST_P(EveryMotion, IsSeenUnderACirclingCamera) {
  Video video = one_solid_video(GetParam(), 8);
  video.camera = CameraMotion::kOrbit;
  EXPECT_EQ(read(video, true_frames(video)).solids[0].motion, GetParam());
}

TEST_P(EveryMotion, TurnsRoundWithTime) {
  const Video video = one_solid_video(GetParam(), 16, SolidKind::kCylinder);
  if (GetParam() == Motion::kSpin) return;  // for cubes alone
  const SeenVideo seen = read(video, reversed(true_frames(video)));
  EXPECT_EQ(seen.solids[0].motion, opposite(GetParam()));
  const bool goes = opposite(GetParam()) != GetParam();
  EXPECT_EQ(score_motions(seen, video.motions).right, goes ? 0.0 : 1.0);
}

// The caption's places and motions are the truth, which must not be looked at.
TEST_P(EveryMotion, DoesNotDependOnWhatTheCaptionsVideoDoes) {
  const Video video = one_solid_video(GetParam(), 8);
  const std::vector<Image> frames = true_frames(video);
  Video heard = video;
  heard.motions = {GetParam() == Motion::kRight ? Motion::kStill : Motion::kRight};
  heard.scene.solids[0].x = 1.5;
  heard.scene.solids[0].z = -1.0;
  heard.scene.seed = 99;
  const SeenVideo seen = read(heard, frames);
  EXPECT_EQ(seen.solids[0].motion, GetParam());
  EXPECT_EQ(seen.solids[0].places, read(video, frames).solids[0].places);
}

INSTANTIATE_TEST_SUITE_P(All, EveryMotion, ::testing::ValuesIn(kAll),
                         [](const auto& one) { return std::string(name_of(one.param)); });

TEST(Motions, SlowAndFastSolidsMoveTheSameWay) {
  for (const double speed : {0.06, 0.18}) {
    Video video = one_solid_video(Motion::kStill);
    std::vector<Image> frames;
    for (int frame = 0; frame < 16; ++frame) {
      Video moved = video;
      moved.scene.solids[0].x += speed * frame;
      const SceneImage image = render_video_frame(moved, 0, kFilmSide);
      frames.emplace_back(kFilmSide, kFilmSide, image.rgb);
    }
    EXPECT_EQ(read(video, frames).solids[0].motion, Motion::kRight) << speed;
  }
}

TEST(Motions, FramesBeforeTheFirstAreNotRead) {
  const Video video = one_solid_video(Motion::kLeft);
  std::vector<Image> frames = true_frames(video);
  for (int frame = 0; frame < 7; ++frame) frames[static_cast<std::size_t>(frame)] = frames[15];
  const SeenVideo seen = read(video, frames, 7);
  EXPECT_EQ(seen.first, 7);
  EXPECT_EQ(seen.solids[0].motion, Motion::kLeft);
  EXPECT_EQ(seen.solids[0].places.size(), 9u);
}

TEST(Motions, NothingIsFoundOnAnEmptyTable) {
  const Video video = one_solid_video(Motion::kLeft);
  Video empty = video;
  empty.scene.solids.clear();
  empty.motions.clear();
  const SeenVideo seen = read(video, true_frames(empty));
  EXPECT_FALSE(seen.solids[0].found);
  EXPECT_EQ(score_motions(seen, video.motions).found, 0.0);
  EXPECT_EQ(score_motions(seen, video.motions).right, 0.0);
}

TEST(Motions, AnotherColourIsNotFound) {
  const Video video = one_solid_video(Motion::kLeft);
  Video blue = video;
  blue.scene.solids[0].colour = SolidColour::kBlue;
  EXPECT_FALSE(read(video, true_frames(blue)).solids[0].found);
}

// The small one looks the same wherever it lies within the large one.
TEST(Motions, SolidsOfOneColourAreHeardApart) {
  Video video = one_solid_video(Motion::kStill, 16, SolidKind::kSphere);
  video.scene.solids[0].size = SolidSize::kSmall;
  video.scene.solids[0].x = -1.5;
  video.scene.solids.push_back(video.scene.solids[0]);
  video.scene.solids[1].kind = SolidKind::kCone;
  video.scene.solids[1].size = SolidSize::kLarge;
  video.scene.solids[1].x = -0.1;
  video.motions = {Motion::kStill, Motion::kRight};
  const SeenVideo seen = read(video, true_frames(video));
  EXPECT_EQ(seen.solids[0].motion, Motion::kStill);
  EXPECT_EQ(seen.solids[1].motion, Motion::kRight);
}

struct Rates {
  double right = 0, found = 0, solids = 0;
};
Rates rates(std::uint64_t seed, int videos, int heard_step) {
  Rates out;
  for (int i = 0; i < videos; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const Video shown = sample_video(seed, SceneSplit::kVal, at);
    const Video heard =
        sample_video(seed, SceneSplit::kVal, at + static_cast<std::uint64_t>(heard_step));
    const MotionMarks marks = score_motions(read(heard, true_frames(shown)), heard.motions);
    const auto solids = static_cast<double>(heard.motions.size());
    out.solids += solids;
    out.right += marks.right * solids;
    out.found += marks.found * solids;
  }
  return out;
}

TEST(Motions, OfTheWorldsVideosAreRight) {
  const Rates own = rates(31, 12, 0);
  EXPECT_EQ(own.found, own.solids);
  EXPECT_GE(own.right, own.solids - 1);
}

TEST(Motions, OfOtherCaptionsAreWrong) {
  const Rates other = rates(31, 12, 1);
  EXPECT_LE(other.right, 0.25 * other.solids);
  EXPECT_LT(other.found, 0.6 * other.solids);
}

}  // namespace
}  // namespace tessera::motion_test
