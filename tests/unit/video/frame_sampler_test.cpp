// Frames that models see: equal to the published processors', and by time where the rate varies.
#include "video/frame_sampler.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>

#include "engine/core/io.h"
#include "engine/core/json.h"

namespace tessera::frame_sampler_test {
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

TEST(FrameSampler, ShortVideosGiveWhatTheyHave) {
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

std::string code_of(const FrameSampling& sampling, const std::vector<std::int64_t>& times,
                    const VideoInfo& info) {
  try {
    sample_frames(sampling, times, info);
  } catch (const Error& error) {
    return error.info().code;
  }
  return "";
}

TEST(FrameSampler, NoClaimMakesAnEndlessList) {
  const VideoInfo info{.tick = {1, 1}};
  const std::vector<std::int64_t> ages = {0, 1, std::int64_t{1} << 45};
  const std::vector<std::int64_t> short_ones = {0, 1, 2};
  const auto by_rate = [](std::int64_t frames, double rate) {
    return FrameSampling{.rule = FrameRule::kRate, .frames = frames, .rate = rate};
  };
  // Few of many moments cost what few cost.
  EXPECT_EQ(sample_frames(by_rate(3, 1.0), ages, info), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(sample_frames(by_rate(3, 1e14), short_ones, info), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(code_of(by_rate(3, 1e14), ages, info), "E_VIDEO_SAMPLES");
  EXPECT_EQ(code_of(by_rate(INT64_MAX, 1.0), ages, info), "E_VIDEO_SAMPLES");
  EXPECT_EQ(code_of(by_rate(3, std::numeric_limits<double>::infinity()), short_ones, info),
            "E_VIDEO_SAMPLES");
  EXPECT_EQ(code_of({.rule = FrameRule::kUniform, .frames = INT64_MAX}, short_ones, info),
            "E_VIDEO_SAMPLES");
  // A tiny rate shows the first frame, whatever the length.
  EXPECT_EQ(sample_frames(by_rate(9, 1e-300), ages, info), (std::vector<std::size_t>{0}));
  EXPECT_EQ(sample_frames({.rule = FrameRule::kQwen, .frames = INT64_MAX, .rate = 1e300},
                          constant_times(10), info)
                .size(),
            10u);
}

// The plain loop over moments, for lists that fit.
std::vector<std::size_t> moment_by_moment(double rate, const std::vector<std::int64_t>& times,
                                          double tick) {
  std::vector<std::size_t> out;
  std::size_t at = 0;
  for (std::int64_t i = 0;; ++i) {
    const double moment = static_cast<double>(i) / rate;
    if (moment > static_cast<double>(times.back()) * tick && i > 0) return out;
    while (at + 1 < times.size() && static_cast<double>(times[at + 1]) * tick <= moment + 1e-9)
      ++at;
    out.push_back(at);
  }
}

TEST(FrameSampler, ManyRatesEqualThePlainLoop) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::int64_t> times = {0};
    for (int i = 0; i < 40; ++i) times.push_back(times.back() + 1 + random() % 9);
    const VideoInfo info{.tick = {static_cast<std::int64_t>(1 + random() % 3), 30}};
    const double rate = 0.1 * static_cast<double>(1 + random() % 400);
    EXPECT_EQ(
        sample_frames({.rule = FrameRule::kRate, .frames = 100000, .rate = rate}, times, info),
        moment_by_moment(rate, times, info.tick.value()))
        << rate;
  }
}

}  // namespace
}  // namespace tessera::frame_sampler_test
