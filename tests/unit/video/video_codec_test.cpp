// Videos written and read: lossless ones bit for bit, times exactly, damaged ones never half.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "tests/support/video_file.h"

namespace tessera::video_codec_test {
namespace {

std::vector<std::int64_t> constant_times(int count) {
  std::vector<std::int64_t> ticks(static_cast<std::size_t>(count));
  std::iota(ticks.begin(), ticks.end(), 0);
  return ticks;
}
const std::vector<std::int64_t> kUneven = {0, 1, 2, 7, 8, 20, 21, 22, 23, 60, 61, 99};

// Seconds as an exact fraction, told as a count of nanoseconds where that is exact.
double seconds(std::int64_t ticks, const Rational& tick) {
  return static_cast<double>(ticks) * static_cast<double>(tick.num) / static_cast<double>(tick.den);
}

double psnr(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return 10.0 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / std::max(sum, 1e-9));
}

ErrorInfo error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

struct Sample {
  const char* name;
  VideoContainer container;
  VideoCodec codec;
  double min_psnr;  // 0: equal bytes
};
class VideoSamples : public ::testing::TestWithParam<Sample> {
 protected:
  VideoFormat format(std::int64_t width = 64, std::int64_t height = 48) const {
    return {.container = GetParam().container,
            .codec = GetParam().codec,
            .width = width,
            .height = height,
            .tick = {1, 25}};
  }
};

TEST_P(VideoSamples, EveryFrameComesBackAtItsTime) {
  for (const auto& ticks : {constant_times(30), kUneven}) {
    MemoryFile file = written_video(format(), ticks, ticks.back() + 1);
    VideoReader reader(file, {});
    EXPECT_EQ(reader.info().width, 64);
    EXPECT_EQ(reader.info().height, 48);
    for (std::size_t i = 0; i < ticks.size(); ++i) {
      const auto frame = reader.next();
      ASSERT_TRUE(frame) << i;
      EXPECT_NEAR(seconds(frame->ticks, reader.info().tick), seconds(ticks[i], {1, 25}), 1e-9) << i;
      const auto drawn = drawn_frame(64, 48, static_cast<int>(i));
      if (GetParam().min_psnr == 0.0) {
        EXPECT_EQ(frame->rgb, drawn) << i;
      } else {
        EXPECT_GE(psnr(frame->rgb, drawn), GetParam().min_psnr) << i;
      }
    }
    EXPECT_FALSE(reader.next());
  }
}

TEST_P(VideoSamples, FlatColoursComeBack) {
  const std::vector<std::array<std::uint8_t, 3>> colours = {
      {255, 255, 255}, {0, 0, 0}, {220, 30, 40}, {30, 200, 60}, {20, 40, 230}, {128, 128, 128}};
  MemoryFile file;
  VideoWriter writer(file, format());
  for (std::size_t i = 0; i < colours.size(); ++i) {
    std::vector<std::uint8_t> rgb(64 * 48 * 3);
    for (std::size_t byte = 0; byte < rgb.size(); ++byte) rgb[byte] = colours[i][byte % 3];
    writer.put(rgb, static_cast<std::int64_t>(i));
  }
  writer.finish(static_cast<std::int64_t>(colours.size()));
  VideoReader reader(file, {});
  for (const auto& colour : colours) {
    const auto frame = reader.next();
    ASSERT_TRUE(frame);
    const std::uint8_t* middle = &frame->rgb[(24 * 64 + 32) * 3];
    for (int channel = 0; channel < 3; ++channel) EXPECT_NEAR(middle[channel], colour[channel], 4);
  }
}

TEST_P(VideoSamples, TheSameFramesGiveTheSameBytes) {
  const auto ticks = constant_times(12);
  EXPECT_EQ(written_video(format(), ticks, 12).bytes, written_video(format(), ticks, 12).bytes);
}

TEST_P(VideoSamples, TheScanKnowsEveryFrame) {
  MemoryFile file = written_video(format(), kUneven, 100);
  VideoReader reader(file, {});
  const std::vector<std::int64_t> times = reader.scan();
  ASSERT_EQ(times.size(), kUneven.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_NEAR(seconds(times[i], reader.info().tick), seconds(kUneven[i], {1, 25}), 1e-9);
    EXPECT_EQ(reader.next()->ticks, times[i]);  // begins again
  }
}

TEST_P(VideoSamples, AMomentShowsTheFrameThatBeganBefore) {
  const auto ticks = constant_times(120);  // longer than a group of images
  MemoryFile file = written_video(format(), ticks, 120);
  VideoReader reader(file, {});
  std::vector<VideoFrame> all;
  while (auto frame = reader.next()) all.push_back(std::move(*frame));
  ASSERT_EQ(all.size(), ticks.size());
  for (const int wanted : {60, 3, 119, 0, 59, 100}) {
    const std::int64_t begins = all[static_cast<std::size_t>(wanted)].ticks;
    const std::int64_t step = all[1].ticks - all[0].ticks;
    for (const std::int64_t inside : {std::int64_t{0}, step / 2}) {
      const auto frame = reader.frame_at(begins + inside);
      ASSERT_TRUE(frame);
      EXPECT_EQ(frame->ticks, begins);
      EXPECT_EQ(frame->rgb, all[static_cast<std::size_t>(wanted)].rgb) << wanted;
    }
    if (wanted < 119) {
      EXPECT_EQ(reader.next()->ticks, begins + step);
    }
  }
  EXPECT_EQ(reader.frame_at(1'000'000'000)->ticks, all.back().ticks);
  EXPECT_EQ(reader.frame_at(-5)->ticks, 0);
}

TEST_P(VideoSamples, ACutFileIsNeverAWholeVideo) {
  const auto ticks = constant_times(30);
  const MemoryFile whole = written_video(format(), ticks, 30);
  int given = 0;
  for (int part = 0; part < 24; ++part) {
    MemoryFile file = whole;
    file.bytes.resize(whole.bytes.size() * static_cast<std::size_t>(part) / 24);
    int frames = 0;
    const ErrorInfo error = error_of([&] {
      VideoReader reader(file, {});
      while (const auto frame = reader.next()) {
        if (GetParam().min_psnr == 0.0) {
          EXPECT_EQ(frame->rgb, drawn_frame(64, 48, frames));
        } else {
          EXPECT_GE(psnr(frame->rgb, drawn_frame(64, 48, frames)), GetParam().min_psnr - 1.0);
        }
        ++frames;
      }
    });
    EXPECT_TRUE(error.code.starts_with("E_VIDEO_")) << part << " of 24";
    EXPECT_LT(frames, 30);
    given += frames;
  }
  std::printf("%s: 24 cuts, all refused, %d frames before them\n", GetParam().name, given);
  if (GetParam().container != VideoContainer::kMp4) {
    EXPECT_GE(given, 24);  // mp4 has its index at the end
  }
}

TEST_P(VideoSamples, FlippedBytesCostTheVideoAndNothingElse) {
  const auto ticks = constant_times(20);
  const MemoryFile whole = written_video(format(), ticks, 20);
  std::mt19937 random(7);
  int refused = 0, wrong = 0;
  for (int sample = 0; sample < 40; ++sample) {
    MemoryFile file = whole;
    for (int flips = 0; flips < 4; ++flips) {
      file.bytes[random() % file.bytes.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
    }
    bool other = false;
    const ErrorInfo error = error_of([&] {
      VideoReader reader(file, {});
      int frames = 0;
      while (const auto frame = reader.next()) other |= frame->rgb != drawn_frame(64, 48, frames++);
    });
    EXPECT_TRUE(error.code.empty() || error.code.starts_with("E_VIDEO_")) << error.code;
    refused += error.code.empty() ? 0 : 1;
    wrong += error.code.empty() && GetParam().min_psnr == 0.0 && other ? 1 : 0;
  }
  std::printf("%s: 40 files with 4 flipped bytes each, %d refused\n", GetParam().name, refused);
  EXPECT_GE(refused, 5);
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, VideoSamples,
    ::testing::Values(Sample{"ffv1", VideoContainer::kMatroska, VideoCodec::kFfv1, 0.0},
                    Sample{"h264", VideoContainer::kMp4, VideoCodec::kH264, 29.0},
                    Sample{"mpeg4", VideoContainer::kMp4, VideoCodec::kMpeg4, 28.0},
                    Sample{"vp9", VideoContainer::kWebm, VideoCodec::kVp9, 28.0},
                    Sample{"av1", VideoContainer::kWebm, VideoCodec::kAv1, 26.0}),
    [](const ::testing::TestParamInfo<Sample>& tested) { return std::string(tested.param.name); });

TEST(VideoFiles, OddSizesAreLosslessOrRefused) {
  VideoFormat format{
      .container = VideoContainer::kMatroska, .width = 37, .height = 19, .tick = {1, 8}};
  MemoryFile file = written_video(format, constant_times(3), 3);
  VideoReader reader(file, {});
  EXPECT_EQ(reader.next()->rgb, drawn_frame(37, 19, 0));
  format.container = VideoContainer::kMp4;
  EXPECT_EQ(error_of([&] { written_video(format, constant_times(3), 3); }).code, "E_VIDEO_SIZE");
}

TEST(VideoFiles, ACodecIsForItsContainer) {
  VideoFormat format{
      .container = VideoContainer::kWebm, .codec = VideoCodec::kFfv1, .width = 32, .height = 32};
  const ErrorInfo error = error_of([&] { written_video(format, constant_times(1), 1); });
  EXPECT_EQ(error.code, "E_VIDEO_CODEC");
  EXPECT_NE(error.expected.find("vp9"), std::string::npos) << error.expected;
  EXPECT_EQ(error.found, "ffv1");
}

TEST(VideoFiles, TimesMustGrow) {
  VideoFormat format{.container = VideoContainer::kMatroska, .width = 32, .height = 32};
  const std::vector<std::int64_t> ticks = {0, 4, 4};
  EXPECT_EQ(error_of([&] { written_video(format, ticks, 5); }).code, "E_VIDEO_TIME");
}

TEST(VideoFiles, WhatIsNoVideoIsRefused) {
  const auto code_of = [](std::string_view text) {
    MemoryFile file;
    file.bytes.assign(text.begin(), text.end());
    return error_of([&] { VideoReader(file, VideoLimits{}); }).code;
  };
  EXPECT_EQ(code_of(""), "E_VIDEO_FILE");
  EXPECT_EQ(code_of("#EXTM3U\n/etc/passwd\n"), "E_VIDEO_FORMAT");
  EXPECT_EQ(code_of("ffconcat version 1.0\nfile /etc/passwd\n"), "E_VIDEO_FORMAT");
  EXPECT_EQ(code_of(std::string("\0\0\0\x18"
                                "ftypmp42",
                                12)),
            "E_VIDEO_FORMAT");
  EXPECT_EQ(code_of("\x1a\x45\xdf\xa3 and nothing else"), "E_VIDEO_FORMAT");
}

TEST(VideoFiles, LimitsAreCheckedBeforeDecoding) {
  const VideoFormat format{
      .container = VideoContainer::kMp4, .width = 64, .height = 48, .tick = {1, 500}};
  MemoryFile file = written_video(format, constant_times(40), 40);
  const auto code_with = [&](const VideoLimits& limits) {
    return error_of([&] {
             VideoReader reader(file, limits);
             while (reader.next()) {
             }
           })
        .code;
  };
  EXPECT_EQ(code_with({}), "");
  EXPECT_EQ(code_with({.side = 63}), "E_VIDEO_SIZE");
  EXPECT_EQ(code_with({.pixels = 64 * 48 - 1}), "E_VIDEO_SIZE");
  EXPECT_EQ(code_with({.frames = 10}), "E_VIDEO_SIZE");
  EXPECT_EQ(code_with({.decoded_pixels = 64 * 48 * 10}), "E_VIDEO_SIZE");
  EXPECT_EQ(code_with({.rate = 100}), "E_VIDEO_RATE");
}

}  // namespace
}  // namespace tessera::video_codec_test
