// Where scenes of a video begin: drawn frames and renders of the tabletop world.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "apps/lab/scene/video.h"
#include "video/cuts/cut_finder.h"

namespace tessera::cuts_test {
namespace {

using Frame = std::vector<std::uint8_t>;
constexpr std::int64_t kWide = 64, kHigh = 48;

// A ground of one colour with a block of another, and a little noise that differs in every frame.
Frame still(std::array<int, 3> ground, std::array<int, 3> block, std::uint32_t number) {
  Frame out;
  std::uint32_t state = number * 2654435761u + 1;
  for (std::int64_t y = 0; y < kHigh; ++y) {
    for (std::int64_t x = 0; x < kWide; ++x) {
      const bool inside = x > 16 && x < 40 && y > 12 && y < 36;
      for (std::size_t c = 0; c < 3; ++c) {
        state = state * 1664525u + 1013904223u;
        const int noise = static_cast<int>(state >> 29) - 4;
        out.push_back(static_cast<std::uint8_t>((inside ? block[c] : ground[c]) + noise));
      }
    }
  }
  return out;
}

std::vector<std::size_t> cuts_of(std::size_t count, const std::function<Frame(std::size_t)>& frame,
                                 CutSettings settings = {}, std::int64_t width = kWide,
                                 std::int64_t height = kHigh) {
  CutFinder finder(settings);
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < count; ++i) {
    if (finder.add(frame(i), width, height)) out.push_back(i);
  }
  return out;
}

Frame three_scenes(std::size_t i) {
  const auto number = static_cast<std::uint32_t>(i);
  if (i < 17) return still({200, 60, 40}, {20, 20, 200}, number);
  if (i < 41) return still({40, 120, 60}, {240, 240, 100}, number);
  return still({30, 30, 90}, {180, 40, 160}, number);
}

TEST(Cuts, StillScenesAreCutExactly) {
  EXPECT_EQ(cuts_of(60, three_scenes), (std::vector<std::size_t>{17, 41}));
}

TEST(Cuts, AHigherBarFindsNone) {
  EXPECT_TRUE(cuts_of(60, three_scenes, {.distance = 1.01}).empty());
}

TEST(Cuts, AFlashIsNoScene) {
  const auto flash = [](std::size_t i) {
    return i == 20 ? still({250, 250, 250}, {250, 250, 250}, 20)
                   : still({200, 60, 40}, {20, 20, 200}, static_cast<std::uint32_t>(i));
  };
  // The flash begins a scene; the two frames after it are too few for another.
  EXPECT_EQ(cuts_of(40, flash), (std::vector<std::size_t>{20}));
}

TEST(Cuts, AFadeIsNoCut) {
  const auto fade = [](std::size_t i) {
    const int level = static_cast<int>(i) * 2;
    return still({40 + level, 60, 60}, {60, 60 + level, 60}, static_cast<std::uint32_t>(i));
  };
  EXPECT_TRUE(cuts_of(60, fade).empty());
}

TEST(Cuts, ASlowOrbitIsOneScene) {
  for (const std::uint64_t index : {0u, 3u, 8u}) {
    Video video = sample_video(5, SceneSplit::kVal, index);
    video.motions.assign(video.motions.size(), Motion::kStill);
    video.frames = 48;
    video.camera = CameraMotion::kOrbit;
    const auto frame = [&](std::size_t i) {
      return render_video_frame(video, static_cast<int>(i), 96).rgb;
    };
    EXPECT_TRUE(cuts_of(48, frame, {}, 96, 96).empty()) << index;
  }
}

TEST(Cuts, SizesDoNotMatter) {
  Frame big;
  const auto enlarged = [&](std::size_t i) {
    const Frame small = three_scenes(i);
    big.clear();
    for (std::int64_t y = 0; y < 4 * kHigh; ++y) {
      for (std::int64_t x = 0; x < 4 * kWide; ++x) {
        const auto at = static_cast<std::size_t>((y / 4 * kWide + x / 4) * 3);
        big.insert(big.end(), {small[at], small[at + 1], small[at + 2]});
      }
    }
    return big;
  };
  EXPECT_EQ(cuts_of(60, enlarged, {}, 4 * kWide, 4 * kHigh), (std::vector<std::size_t>{17, 41}));
}

}  // namespace
}  // namespace tessera::cuts_test
