// Motions read from pixels: right on true clips, turned round on clips that run backwards, wrong
// under the captions of other clips; places and motions of the caption are not looked at.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/judge/clip_films.h"
#include "vision/judge/clip_marks.h"
#include "vision/judge/motion_reader.h"

namespace tessera {
namespace {

ThreadPool& pool() {
  static ThreadPool threads(2);
  return threads;
}

SeenClip read(const Clip& told, std::span<const Image> frames, int first = 0) {
  return MotionReader(told, kFilmSide, first, pool()).read(frames);
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

class EveryMotion : public testing::TestWithParam<Motion> {};

TEST_P(EveryMotion, IsSeenInLongAndShortClips) {
  for (const int frames : {16, 8}) {
    const Clip clip = one_solid_clip(GetParam(), frames);
    const SeenClip seen = read(clip, true_frames(clip));
    ASSERT_EQ(seen.solids.size(), 1u);
    EXPECT_TRUE(seen.solids[0].found);
    EXPECT_GT(seen.solids[0].explained, 0.8);
    EXPECT_EQ(seen.solids[0].motion, GetParam()) << frames;
    ASSERT_EQ(seen.solids[0].places.size(), static_cast<std::size_t>(frames));
    for (int frame = 0; frame < frames; ++frame) {
      const Solid where = scene_at(clip, frame).solids[0];
      const LatticePlace place = seen.solids[0].places[static_cast<std::size_t>(frame)];
      EXPECT_NEAR(SolidViews::x_of(place), where.x, 0.13) << frame;
      EXPECT_NEAR(SolidViews::z_of(place), where.z, 0.13) << frame;
    }
  }
}

TEST_P(EveryMotion, IsSeenUnderACirclingCamera) {
  Clip clip = one_solid_clip(GetParam(), 8);
  clip.camera = CameraMotion::kOrbit;
  EXPECT_EQ(read(clip, true_frames(clip)).solids[0].motion, GetParam());
}

TEST_P(EveryMotion, TurnsRoundWithTime) {
  const Clip clip = one_solid_clip(GetParam(), 16, SolidKind::kCylinder);
  if (GetParam() == Motion::kSpin) return;  // for cubes alone
  const SeenClip seen = read(clip, reversed(true_frames(clip)));
  EXPECT_EQ(seen.solids[0].motion, opposite(GetParam()));
  const bool goes = opposite(GetParam()) != GetParam();
  EXPECT_EQ(score_motions(seen, clip.motions).right, goes ? 0.0 : 1.0);
}

// The caption's places and motions are the truth, which must not be looked at.
TEST_P(EveryMotion, DoesNotDependOnWhatTheCaptionsClipDoes) {
  const Clip clip = one_solid_clip(GetParam(), 8);
  const std::vector<Image> frames = true_frames(clip);
  Clip told = clip;
  told.motions = {GetParam() == Motion::kRight ? Motion::kStill : Motion::kRight};
  told.scene.solids[0].x = 1.5;
  told.scene.solids[0].z = -1.0;
  told.scene.seed = 99;
  const SeenClip seen = read(told, frames);
  EXPECT_EQ(seen.solids[0].motion, GetParam());
  EXPECT_EQ(seen.solids[0].places, read(clip, frames).solids[0].places);
}

INSTANTIATE_TEST_SUITE_P(All, EveryMotion, testing::ValuesIn(kAll),
                         [](const auto& one) { return std::string(name_of(one.param)); });

TEST(Motions, SlowAndFastSolidsMoveTheSameWay) {
  for (const double speed : {0.06, 0.18}) {
    Clip clip = one_solid_clip(Motion::kStill);
    std::vector<Image> frames;
    for (int frame = 0; frame < 16; ++frame) {
      Clip moved = clip;
      moved.scene.solids[0].x += speed * frame;
      const ScenePicture picture = render_clip_frame(moved, 0, kFilmSide);
      frames.emplace_back(kFilmSide, kFilmSide, picture.rgb);
    }
    EXPECT_EQ(read(clip, frames).solids[0].motion, Motion::kRight) << speed;
  }
}

TEST(Motions, FramesBeforeTheFirstAreNotRead) {
  const Clip clip = one_solid_clip(Motion::kLeft);
  std::vector<Image> frames = true_frames(clip);
  for (int frame = 0; frame < 7; ++frame) frames[static_cast<std::size_t>(frame)] = frames[15];
  const SeenClip seen = read(clip, frames, 7);
  EXPECT_EQ(seen.first, 7);
  EXPECT_EQ(seen.solids[0].motion, Motion::kLeft);
  EXPECT_EQ(seen.solids[0].places.size(), 9u);
}

TEST(Motions, NothingIsFoundOnAnEmptyTable) {
  const Clip clip = one_solid_clip(Motion::kLeft);
  Clip empty = clip;
  empty.scene.solids.clear();
  empty.motions.clear();
  const SeenClip seen = read(clip, true_frames(empty));
  EXPECT_FALSE(seen.solids[0].found);
  EXPECT_EQ(score_motions(seen, clip.motions).found, 0.0);
  EXPECT_EQ(score_motions(seen, clip.motions).right, 0.0);
}

TEST(Motions, AnotherColourIsNotFound) {
  const Clip clip = one_solid_clip(Motion::kLeft);
  Clip blue = clip;
  blue.scene.solids[0].colour = SolidColour::kBlue;
  EXPECT_FALSE(read(clip, true_frames(blue)).solids[0].found);
}

// The small one looks the same wherever it lies within the large one.
TEST(Motions, SolidsOfOneColourAreToldApart) {
  Clip clip = one_solid_clip(Motion::kStill, 16, SolidKind::kSphere);
  clip.scene.solids[0].size = SolidSize::kSmall;
  clip.scene.solids[0].x = -1.5;
  clip.scene.solids.push_back(clip.scene.solids[0]);
  clip.scene.solids[1].kind = SolidKind::kCone;
  clip.scene.solids[1].size = SolidSize::kLarge;
  clip.scene.solids[1].x = -0.1;
  clip.motions = {Motion::kStill, Motion::kRight};
  const SeenClip seen = read(clip, true_frames(clip));
  EXPECT_EQ(seen.solids[0].motion, Motion::kStill);
  EXPECT_EQ(seen.solids[1].motion, Motion::kRight);
}

struct Rates {
  double right = 0, found = 0, solids = 0;
};
Rates rates(std::uint64_t seed, int clips, int told_step) {
  Rates out;
  for (int i = 0; i < clips; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const Clip shown = sample_clip(seed, SceneSplit::kVal, at);
    const Clip told =
        sample_clip(seed, SceneSplit::kVal, at + static_cast<std::uint64_t>(told_step));
    const MotionMarks marks = score_motions(read(told, true_frames(shown)), told.motions);
    const auto solids = static_cast<double>(told.motions.size());
    out.solids += solids;
    out.right += marks.right * solids;
    out.found += marks.found * solids;
  }
  return out;
}

TEST(Motions, OfTheWorldsClipsAreRight) {
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
}  // namespace tessera
