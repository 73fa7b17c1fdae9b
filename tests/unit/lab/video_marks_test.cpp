// Marks of videos on hand-made cases, and flicker of known size.
#include <gtest/gtest.h>

#include <cstdlib>

#include "apps/lab/scorer/video_marks.h"
#include "apps/lab/scorer/flicker.h"
#include "tests/unit/lab/video_films.h"

namespace tessera::video_marks_test {
namespace {

constexpr SolidAttributes kRedBall{SolidKind::kSphere, SolidColour::kRed, SolidSize::kLarge,
                                   SolidMaterial::kShiny};
constexpr SolidAttributes kBlueCube{SolidKind::kCube, SolidColour::kBlue, SolidSize::kSmall,
                                    SolidMaterial::kMatte};
const SceneAttributes kTruth{FloorKind::kGray, {kRedBall, kBlueCube}};
const SceneAttributes kPassed{FloorKind::kGray, {kBlueCube, kRedBall}};
using Seen = std::vector<std::optional<SceneAttributes>>;

TEST(VideoMarks, OrderCountsInTheFirstFrameAlone) {
  const Marks right = score_frames(Seen{kTruth, kPassed}, kTruth, 0);
  EXPECT_EQ(right[Mark::kScene], 1.0);
  EXPECT_EQ(right[Mark::kOrder], 1.0);
  const Marks wrong = score_frames(Seen{kPassed, kPassed}, kTruth, 0);
  EXPECT_EQ(wrong[Mark::kScene], 0.5);
  EXPECT_EQ(wrong[Mark::kOrder], 0.0);
  EXPECT_EQ(score_frames(Seen{kPassed, kPassed}, kTruth, 1)[Mark::kOrder], kNotAsked);
  EXPECT_EQ(score_frames(Seen{kPassed, kPassed}, kTruth, 1)[Mark::kScene], 1.0);
}

TEST(VideoMarks, MeanOverFrames) {
  SceneAttributes green = kTruth;
  green.solids[1].colour = SolidColour::kGreen;
  const Marks marks = score_frames(Seen{kTruth, green, std::nullopt, kTruth}, kTruth, 0);
  EXPECT_DOUBLE_EQ(marks[Mark::kColour], (1.0 + 0.5 + 0.0 + 1.0) / 4);
  EXPECT_DOUBLE_EQ(marks[Mark::kKind], 0.75);
  EXPECT_DOUBLE_EQ(marks[Mark::kScene], 0.5);
  EXPECT_DOUBLE_EQ(
      score_frames(Seen{kTruth, green, std::nullopt, kTruth}, kTruth, 3)[Mark::kColour], 1.0);
}

TEST(VideoMarks, AgreementComparesTheLastFrameWithTheFirst) {
  SceneAttributes dark = kPassed;
  dark.floor = FloorKind::kDark;
  EXPECT_EQ(score_agreement(Seen{kTruth, dark, kPassed}, 0)[Mark::kScene], 1.0);
  const Marks marks = score_agreement(Seen{kTruth, kTruth, dark}, 0);
  EXPECT_EQ(marks[Mark::kScene], 0.0);
  EXPECT_EQ(marks[Mark::kFloor], 0.0);
  EXPECT_EQ(marks[Mark::kColour], 1.0);
  EXPECT_EQ(score_agreement(Seen{std::nullopt, kTruth}, 0)[Mark::kScene], 0.0);
  EXPECT_EQ(score_agreement(Seen{kTruth, std::nullopt}, 0)[Mark::kScene], 0.0);
  EXPECT_EQ(score_agreement(Seen{dark, kTruth, kPassed}, 1)[Mark::kScene], 1.0);
}

TEST(VideoMarks, MotionsBySolid) {
  SeenVideo seen;
  seen.solids = {{.found = true, .motion = Motion::kLeft},
                 {.found = false, .motion = Motion::kAway}};
  const Motion truth[] = {Motion::kLeft, Motion::kAway};
  const MotionMarks marks = score_motions(seen, truth);
  EXPECT_EQ(marks.right, 0.5);
  EXPECT_EQ(marks.found, 0.5);
  EXPECT_EQ(marks.by_motion[static_cast<std::size_t>(Motion::kLeft)], 1.0);
  EXPECT_EQ(marks.by_motion[static_cast<std::size_t>(Motion::kAway)], 0.0) << "right but not found";
  EXPECT_EQ(marks.by_motion[static_cast<std::size_t>(Motion::kStill)], kNotAsked);
}

struct Measured {
  std::vector<Image> frames;
  BareTable table;
};
Measured measured(const Video& video, std::vector<Image> frames) {
  ThreadPool pool(2);
  const SeenVideo seen = MotionReader(video, kFilmSide, 0, pool).read(frames);
  auto table = BareTable::of(video, seen, kFilmSide);
  EXPECT_TRUE(table);
  return {std::move(frames), std::move(*table)};
}

TEST(Flicker, TrueVideosHaveNoneWhateverMoves) {
  for (const Motion motion : {Motion::kStill, Motion::kLeft, Motion::kAway, Motion::kBounce}) {
    const Video video = one_solid_video(motion);
    const Measured one = measured(video, true_frames(video));
    EXPECT_LT(pixel_flicker(one.frames, one.table), 0.02) << name_of(motion);
    int bare = 0;
    for (int i = 0; i < kFilmSide * kFilmSide; ++i) {
      bare += one.table.bare(3, i % kFilmSide, i / kFilmSide) ? 1 : 0;
    }
    EXPECT_GT(bare, kFilmSide * kFilmSide / 2);
    EXPECT_LT(bare, kFilmSide * kFilmSide * 9 / 10);
  }
}

TEST(Flicker, AVideoThatStandsStillHasExactlyNone) {
  const Video video = one_solid_video(Motion::kStill);
  const Measured one = measured(video, true_frames(video));
  EXPECT_EQ(pixel_flicker(one.frames, one.table), 0.0);
}

// Each channel alternates between two values 6 apart.
TEST(Flicker, NoiseRaisesItByItsSize) {
  const Video video = one_solid_video(Motion::kStill);
  std::vector<Image> frames = true_frames(video);
  for (std::size_t t = 1; t < frames.size(); t += 2) {
    for (std::uint8_t& value : frames[t].rgb) {
      value = static_cast<std::uint8_t>(value >= 6 ? value - 6 : value + 6);
    }
  }
  const Measured one = measured(video, frames);
  EXPECT_DOUBLE_EQ(pixel_flicker(one.frames, one.table), 6.0);
}

TEST(Flicker, WhatChangesUnderTheSolidDoesNotCount) {
  const Video video = one_solid_video(Motion::kStill);
  const Measured calm = measured(video, true_frames(video));
  std::vector<Image> frames = calm.frames;
  for (int y = 0; y < kFilmSide; ++y) {
    for (int x = 0; x < kFilmSide; ++x) {
      if (calm.table.bare(5, x, y)) continue;
      for (int c = 0; c < 3; ++c) frames[5].at(x, y)[c] ^= 0x40;
    }
  }
  EXPECT_EQ(pixel_flicker(frames, calm.table), 0.0);
}

TEST(Flicker, CodesThatChangeOnTheBareTable) {
  const Video video = one_solid_video(Motion::kStill);
  const Measured one = measured(video, true_frames(video));
  constexpr int kSide = 16, kGridFrames = 4;
  std::vector<std::int32_t> codes(4 * kSide * kSide, 7);
  const auto flicker = [&] { return code_flicker({codes, kSide, kSide, kGridFrames}, one.table); };
  EXPECT_EQ(flicker(), 0.0);
  // Every second grid differs everywhere.
  for (int i = 0; i < kSide * kSide; ++i) codes[static_cast<std::size_t>(kSide * kSide + i)] = 8;
  EXPECT_DOUBLE_EQ(flicker(), 2.0 / 3);
  // Only where the solid stands.
  int covered = 0;
  for (int i = 0; i < kSide * kSide; ++i) {
    const bool bare = one.table.bare_cell(0, 16, i / kSide, i % kSide, kSide, kSide);
    covered += bare ? 0 : 1;
    codes[static_cast<std::size_t>(kSide * kSide + i)] = bare ? 7 : 8;
  }
  EXPECT_GT(covered, 5);
  EXPECT_EQ(flicker(), 0.0);
  // One bare cell of them all, once.
  for (std::int32_t& code : codes) code = 7;
  codes[0] = 9;
  ASSERT_TRUE(one.table.bare_cell(0, 16, 0, 0, kSide, kSide));
  EXPECT_DOUBLE_EQ(flicker(), 1.0 / (3.0 * (kSide * kSide - covered)));
  const std::vector<std::int32_t> alone(codes.begin(), codes.begin() + kSide * kSide);
  EXPECT_EQ(code_flicker({alone, kSide, kSide, kGridFrames}, one.table), kNotAsked);
}

TEST(Flicker, IsNotAskedWhereTheTableIsNotKnown) {
  ThreadPool pool(2);
  Video video = one_solid_video(Motion::kStill);
  const std::vector<Image> frames = true_frames(video);
  SeenVideo seen = MotionReader(video, kFilmSide, 0, pool).read(frames);
  EXPECT_TRUE(BareTable::of(video, seen, kFilmSide));
  seen.solids[0].found = false;
  EXPECT_FALSE(BareTable::of(video, seen, kFilmSide));
  seen.solids[0].found = true;
  video.camera = CameraMotion::kOrbit;
  EXPECT_FALSE(BareTable::of(video, seen, kFilmSide));
}

}  // namespace
}  // namespace tessera::video_marks_test
