// Frames that models see: equal to the published processors', and by time where the rate varies.
#include "video/frame_sampler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/core/io.h"
#include "engine/core/json.h"

namespace tessera {
namespace {

std::vector<std::int64_t> constant_times(std::size_t count) {
  std::vector<std::int64_t> times(count);
  std::iota(times.begin(), times.end(), 0);
  return times;
}

TEST(FrameSampler, EqualsThePublishedProcessors) {
  const std::string file = TESSERA_SOURCE_DIR "/tests/golden/video/frames.json";
  const Json cases =
      parse_json(read_file(file, 8 << 20, ErrorKind::kGeneral), file, {.max_bytes = 8 << 20});
  ASSERT_GE(cases.size(), 150u);
  for (const Json& one : cases) {
    const bool qwen = one["rule"] == "qwen";
    const FrameSampling sampling{.rule = qwen ? FrameRule::kQwen : FrameRule::kUniform,
                                 .frames = one["frames"]};
    const std::int64_t rate = one.value("rate", 25);
    const VideoInfo info{.tick = {1, rate}, .rate = {rate, 1}};
    const auto indices = sample_frames(sampling, constant_times(one["total"]), info);
    EXPECT_EQ(Json(indices), one["indices"]) << one.dump().substr(0, 120);
  }
}

TEST(FrameSampler, ARateTakesWhatIsOnTheScreen) {
  const VideoInfo info{.tick = {1, 10}};  // tenths of a second
  const std::vector<std::int64_t> times = {0, 3, 4, 5, 31, 32, 50};
  const auto sampled =
      sample_frames({.rule = FrameRule::kRate, .frames = 100, .rate = 1.0}, times, info);
  EXPECT_EQ(sampled, (std::vector<std::size_t>{0, 3, 3, 3, 5, 6}));  // at 0, 1, 2, 3, 4, 5 s
  const auto thinned =
      sample_frames({.rule = FrameRule::kRate, .frames = 3, .rate = 1.0}, times, info);
  EXPECT_EQ(thinned, (std::vector<std::size_t>{0, 3, 6}));
}

TEST(FrameSampler, ShortClipsGiveWhatTheyHave) {
  const VideoInfo info{.tick = {1, 25}, .rate = {25, 1}};
  EXPECT_EQ(sample_frames({.rule = FrameRule::kQwen, .frames = 768}, constant_times(1), info),
            (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(sample_frames({.rule = FrameRule::kUniform, .frames = 4}, constant_times(1), info),
            (std::vector<std::size_t>{0, 0, 0, 0}));
  EXPECT_EQ(sample_frames({.rule = FrameRule::kRate, .frames = 4}, constant_times(1), info),
            (std::vector<std::size_t>{0}));
}

TEST(FrameSampler, AMissingRateIsTheMeanOne) {
  std::vector<std::int64_t> times(100);
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<std::int64_t>(4 * i);
  const VideoInfo unsaid{.tick = {1, 100}}, said{.tick = {1, 100}, .rate = {25, 1}};
  const FrameSampling sampling{.rule = FrameRule::kQwen, .frames = 768};
  EXPECT_EQ(sample_frames(sampling, times, unsaid), sample_frames(sampling, times, said));
}

}  // namespace
}  // namespace tessera
