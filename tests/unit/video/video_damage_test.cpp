// Videos that are cut, miss frames, or say what cannot be: a clear error each, after what is whole.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "tests/support/packets.h"

namespace tessera::video_damage_test {
namespace {

std::vector<std::int64_t> constant_times(int count) {
  std::vector<std::int64_t> ticks(static_cast<std::size_t>(count));
  std::iota(ticks.begin(), ticks.end(), 0);
  return ticks;
}

ErrorInfo error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

struct Outcome {
  std::vector<VideoFrame> frames;
  ErrorInfo error;
};
Outcome decoded(MemoryFile file) {
  Outcome out;
  out.error = error_of([&] {
    VideoReader reader(file, {});
    while (auto frame = reader.next()) out.frames.push_back(std::move(*frame));
  });
  return out;
}

void expect_beginning(const Outcome& part, const Outcome& whole, const std::string& name) {
  ASSERT_LE(part.frames.size(), whole.frames.size()) << name;
  for (std::size_t i = 0; i < part.frames.size(); ++i) {
    EXPECT_EQ(part.frames[i].ticks, whole.frames[i].ticks) << name << ", frame " << i;
    EXPECT_TRUE(part.frames[i].rgb == whole.frames[i].rgb) << name << ", frame " << i;
  }
}

TEST(VideoCuts, TablesFirstTellOfMissingImages) {
  for (const VideoCodec codec : {VideoCodec::kH264, VideoCodec::kMpeg4}) {
    const std::string name(name_of(codec));
    const MemoryFile last = written_video({.container = VideoContainer::kMp4,
                                          .codec = codec,
                                          .width = 64,
                                          .height = 48,
                                          .tick = {1, 25}},
                                         constant_times(40), 40);
    MemoryFile file = tables_first(last);
    const Outcome whole = decoded(file);
    ASSERT_EQ(whole.error.code, "") << whole.error.found;
    ASSERT_EQ(whole.frames.size(), 40u);
    const StoredVideo packets = demuxed(file);
    const std::size_t begin = packets.packets[0].offset;
    int noticed = 0;
    for (std::size_t cut = begin + 1; cut < file.bytes.size(); cut += 41) {
      MemoryFile part = file;
      part.bytes.resize(cut);
      const Outcome got = decoded(part);
      EXPECT_EQ(got.error.code, "E_VIDEO_CUT") << name << " at " << cut;
      if (!got.frames.empty()) {
        EXPECT_EQ(got.error.where, "stream 0, frame " + std::to_string(got.frames.size()));
      }
      EXPECT_TRUE(got.error.where.starts_with("stream 0")) << got.error.where;
      expect_beginning(got, whole, name);
      std::size_t there = 0;
      for (const StoredPacket& packet : packets.packets) {
        there += packet.offset + packet.data.size() <= cut ? 1 : 0;
      }
      // Frames that are shown after one that is missing are not given.
      EXPECT_LE(got.frames.size(), there);
      EXPECT_GE(got.frames.size() + (codec == VideoCodec::kH264 ? 4 : 0), there);
      ++noticed;
    }
    std::printf("%s: %d cuts after the tables, all noticed\n", name.c_str(), noticed);
    EXPECT_GT(noticed, 20);
  }
}

TEST(VideoCuts, AnErrorComesAgainUntilAnotherPlaceIsAskedFor) {
  const MemoryFile last =
      written_video({.container = VideoContainer::kMp4, .width = 64, .height = 48, .tick = {1, 25}},
                   constant_times(100), 100);
  MemoryFile file = tables_first(last);
  const StoredVideo packets = demuxed(file);
  file.bytes.resize(packets.packets[80].offset + 3);
  VideoReader reader(file, {});
  std::size_t frames = 0;
  const ErrorInfo first = error_of([&] {
    while (reader.next()) ++frames;
  });
  EXPECT_EQ(first.code, "E_VIDEO_CUT");
  for (int i = 0; i < 3; ++i) {
    const ErrorInfo again = error_of([&] { reader.next(); });
    EXPECT_EQ(again.code, first.code);
    EXPECT_EQ(again.where, first.where);
    EXPECT_EQ(again.found, first.found);
  }
  EXPECT_EQ(error_of([&] { reader.scan(); }).code, "E_VIDEO_CUT");
  EXPECT_EQ(error_of([&] { reader.next(); }).code, "E_VIDEO_CUT");
  ASSERT_EQ(reader.frame_at(0)->ticks, 0);  // what is there can still be had
  std::size_t again = 1;
  EXPECT_EQ(error_of([&] {
              while (reader.next()) ++again;
            }).code,
            "E_VIDEO_CUT");
  EXPECT_EQ(again, frames);
}

TEST(VideoCuts, AFragmentThatIsCutIsNoticed) {
  const StoredVideo video = encoded("libx264", 64, 48, constant_times(40), {{"g", "8"}});
  MemoryFile file = muxed(video, "ismv");
  const Outcome whole = decoded(file);
  if (whole.error.code == "E_VIDEO_FORMAT") GTEST_SKIP() << whole.error.found;
  ASSERT_EQ(whole.frames.size(), 40u) << whole.error.found;
  for (std::size_t cut = file.bytes.size() * 2 / 3; cut + 200 < file.bytes.size(); cut += 97) {
    MemoryFile part = file;
    part.bytes.resize(cut);
    const Outcome got = decoded(part);
    EXPECT_TRUE(got.error.code.starts_with("E_VIDEO_")) << cut;
    expect_beginning(got, whole, "fragments");
  }
}

TEST(MissingFrames, AStartThatIsCutIsNoVideo) {
  for (const char* encoder : {"libx264", "mpeg4", "libvpx-vp9"}) {
    StoredVideo video = encoded(encoder, 64, 48, constant_times(20), {{"g", "30"}, {"bf", "0"}});
    video.packets.erase(video.packets.begin());
    const Outcome got = decoded(muxed(video, "matroska"));
    EXPECT_EQ(got.frames.size(), 0u) << encoder;
    EXPECT_TRUE(got.error.code == "E_VIDEO_DATA" || got.error.code == "E_VIDEO_SIZE")
        << encoder << ": " << got.error.code << " " << got.error.found;
    EXPECT_NE(got.error.where.find("stream 0"), std::string::npos) << got.error.where;
  }
}

TEST(MissingFrames, ABrokenGroupEndsBeforeTheGap) {
  for (const char* reordered : {"0", "3"}) {
    const StoredVideo video = encoded("libx264", 64, 48, constant_times(40),
                                    {{"g", "30"}, {"bf", reordered}, {"refs", "2"}});
    const Outcome whole = decoded(muxed(video, "matroska"));
    ASSERT_EQ(whole.frames.size(), 40u) << whole.error.found;
    int refused = 0;
    for (std::size_t lost = 1; lost < 25; ++lost) {
      StoredVideo broken = video;
      broken.packets.erase(broken.packets.begin() + static_cast<std::ptrdiff_t>(lost));
      const Outcome got = decoded(muxed(broken, "matroska"));
      const std::string name = "without packet " + std::to_string(lost);
      if (got.error.code.empty()) {
        // A frame that nothing refers to: the others are as they were.
        ASSERT_EQ(got.frames.size(), 39u) << name;
        for (const VideoFrame& frame : got.frames) {
          const auto& same = *std::find_if(whole.frames.begin(), whole.frames.end(),
                                           [&](const auto& a) { return a.ticks == frame.ticks; });
          EXPECT_TRUE(same.rgb == frame.rgb) << name << ", tick " << frame.ticks;
        }
        continue;
      }
      ++refused;
      EXPECT_EQ(got.error.code, "E_VIDEO_DATA") << name << got.error.found;
      for (const VideoFrame& frame : got.frames) {
        const auto& same = *std::find_if(whole.frames.begin(), whole.frames.end(),
                                         [&](const auto& a) { return a.ticks == frame.ticks; });
        EXPECT_TRUE(same.rgb == frame.rgb) << name << ", tick " << frame.ticks;
      }
    }
    std::printf("%s reordered: 24 gaps, %d refused\n", reordered, refused);
    EXPECT_GT(refused, reordered[0] == '0' ? 23 : 5);
  }
}

TEST(PacketTimes, EmptyPacketsShowTheFrameBeforeLonger) {
  StoredVideo video = encoded("mpeg4", 64, 48, constant_times(12), {{"bf", "0"}});
  for (std::size_t i = 5; i < 12; ++i) {  // three ticks in which nothing changes: "avi" fills them
    video.packets[i].pts += 3;
    video.packets[i].dts += 3;
  }
  MemoryFile file = muxed(video, "avi");
  const Outcome got = decoded(file);
  EXPECT_EQ(got.error.code, "") << got.error.where << got.error.found;
  ASSERT_EQ(got.frames.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(got.frames[i].ticks, static_cast<std::int64_t>(i < 5 ? i : i + 3));
  }
  VideoReader reader(file, {});
  const std::vector<std::int64_t> times = reader.scan();
  ASSERT_EQ(times.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(times[i], got.frames[i].ticks);
  EXPECT_TRUE(reader.frame_at(6)->rgb == got.frames[4].rgb);
}

TEST(PacketTimes, WithoutTimesOfShowingTheOrderTells) {
  StoredVideo video = encoded("mpeg4", 64, 48, constant_times(30), {{"bf", "2"}, {"g", "12"}});
  const Outcome dated = decoded(muxed(video, "mp4"));
  ASSERT_EQ(dated.frames.size(), 30u);
  MemoryFile file = muxed(video, "avi");
  const Outcome got = decoded(file);
  EXPECT_EQ(got.error.code, "") << got.error.where << got.error.found;
  ASSERT_EQ(got.frames.size(), 30u);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(got.frames[i].ticks, static_cast<std::int64_t>(i));
    EXPECT_TRUE(got.frames[i].rgb == dated.frames[i].rgb) << i;
  }
  VideoReader reader(file, {});
  EXPECT_EQ(reader.scan(), constant_times(30));
  for (const std::int64_t at : {17, 3, 29, 12, 0}) {
    const auto frame = reader.frame_at(at);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->ticks, at);
    EXPECT_TRUE(frame->rgb == got.frames[static_cast<std::size_t>(at)].rgb) << at;
  }
}

// Times of showing as given, in a container that keeps them whatever they are.
MemoryFile misdated(const char* encoder, const std::vector<std::int64_t>& pts) {
  StoredVideo video =
      encoded(encoder, 64, 48, constant_times(static_cast<int>(pts.size())), {{"bf", "0"}});
  for (std::size_t i = 0; i < pts.size(); ++i) {
    video.packets[i].pts = pts[i];
    video.packets[i].dts = static_cast<std::int64_t>(i) - 100;
  }
  return muxed(video, "matroska");
}

TEST(PacketTimes, TheSameTimeTwiceEndsTheVideo) {
  for (const char* encoder : {"libvpx-vp9", "libx264", "mpeg4"}) {
    MemoryFile file = misdated(encoder, {0, 1, 2, 3, 3, 4, 5, 6});
    const Outcome got = decoded(file);
    EXPECT_EQ(got.error.code, "E_VIDEO_TIME") << encoder;
    EXPECT_EQ(got.frames.size(), 4u) << encoder;
    EXPECT_EQ(got.error.where, "stream 0, frame 4") << encoder;
    EXPECT_EQ(error_of([&] { VideoReader(file, {}).scan(); }).code, "E_VIDEO_TIME") << encoder;
  }
}

TEST(PacketTimes, TimesThatGoBackEndTheVideo) {
  for (const char* encoder : {"libvpx-vp9", "libx264", "mpeg4"}) {
    MemoryFile file = misdated(encoder, {0, 1, 2, 6, 5, 7, 8, 9});
    const Outcome got = decoded(file);
    EXPECT_EQ(got.error.code, "E_VIDEO_TIME") << encoder;
    EXPECT_EQ(got.frames.size(), 4u) << encoder;
    EXPECT_NE(got.error.where.find("stream 0, frame 4"), std::string::npos) << encoder;
  }
  // Where nothing is ever reordered, the scan sees it too.
  MemoryFile file = misdated("libvpx-vp9", {0, 1, 2, 6, 5, 7, 8, 9});
  EXPECT_EQ(error_of([&] { VideoReader(file, {}).scan(); }).code, "E_VIDEO_TIME");
}

TEST(AbsurdVideos, SizesAreRefusedBeforeAnythingIsDecoded) {
  const StoredVideo video = encoded("ffv1", 64, 48, constant_times(3));
  for (const auto& [width, height] : {std::pair{65536, 65536}, std::pair{1, 100000},
                                      std::pair{100000, 1}, std::pair{8192, 8192}}) {
    StoredVideo absurd = video;
    absurd.parameters.reset(avcodec_parameters_alloc(),
                            [](AVCodecParameters* old) { avcodec_parameters_free(&old); });
    avcodec_parameters_copy(absurd.parameters.get(), video.parameters.get());
    absurd.parameters->width = width;
    absurd.parameters->height = height;
    const Outcome got = decoded(muxed(absurd, "matroska"));
    EXPECT_EQ(got.error.code, "E_VIDEO_SIZE") << got.error.found;
    EXPECT_EQ(got.error.where, "stream 0");
    EXPECT_EQ(got.error.found, std::to_string(width) + "x" + std::to_string(height));
  }
  MemoryFile none = muxed(video, "matroska");
  const std::array<std::uint8_t, 3> width = {0xb0, 0x81, 64};
  const auto at = std::search(none.bytes.begin(), none.bytes.end(), width.begin(), width.end());
  ASSERT_NE(at, none.bytes.end());
  *(at + 2) = 0;
  const Outcome got = decoded(none);
  EXPECT_EQ(got.error.code, "E_VIDEO_SIZE") << got.error.found;
  EXPECT_EQ(got.error.where, "stream 0");
}

TEST(AbsurdVideos, ASizeThatChangesMidwayEndsTheVideo) {
  StoredVideo video = encoded("libvpx-vp9", 64, 48, constant_times(5));
  const StoredVideo other = encoded("libvpx-vp9", 96, 32, constant_times(5));
  for (StoredPacket packet : other.packets) {
    packet.pts += 5;
    packet.dts += 5;
    video.packets.push_back(std::move(packet));
  }
  const Outcome got = decoded(muxed(video, "webm"));
  EXPECT_EQ(got.frames.size(), 5u);
  EXPECT_EQ(got.error.code, "E_VIDEO_SIZE");
  EXPECT_EQ(got.error.where, "stream 0, frame 5");
  EXPECT_EQ(got.error.found, "96x32");
}

TEST(AbsurdVideos, RatesAreRefused) {
  MemoryFile file = muxed(encoded("ffv1", 64, 48, constant_times(3)), "matroska");
  const std::array<std::uint8_t, 4> duration = {0x23, 0xe3, 0x83, 0x84};  // 4 bytes, nanoseconds
  const auto at =
      std::search(file.bytes.begin(), file.bytes.end(), duration.begin(), duration.end());
  ASSERT_NE(at, file.bytes.end());
  std::copy_n(std::array<std::uint8_t, 4>{0, 0, 3, 232}.begin(), 4, at + 4);
  const Outcome got = decoded(file);
  EXPECT_EQ(got.error.code, "E_VIDEO_RATE") << got.error.found;
  EXPECT_EQ(got.error.where, "stream 0");
}

TEST(AbsurdVideos, SoundAloneIsNoVideo) {
  for (const char* container : {"matroska", "avi", "mov"}) {
    const Outcome got = decoded(muxed(silence(), container));
    EXPECT_EQ(got.error.code, "E_VIDEO_STREAM") << container;
    EXPECT_NE(got.error.found.find("1 of sound"), std::string::npos) << got.error.found;
  }
}

TEST(AbsurdVideos, ACodecThatIsNotThereIsNamedByItsStream) {
  MemoryFile file = written_video({.container = VideoContainer::kMatroska, .width = 64, .height = 48},
                                 constant_times(3), 3);
  const std::string name = "FFV1";
  const auto at = std::search(file.bytes.begin(), file.bytes.end(), name.begin(), name.end());
  ASSERT_NE(at, file.bytes.end());
  *at = 'X';
  const Outcome got = decoded(file);
  EXPECT_EQ(got.error.code, "E_VIDEO_CODEC") << got.error.found;
  EXPECT_EQ(got.error.where, "stream 0");
}

// Every moment of uneven, reordered videos against the frames in order.
TEST(FrameAt, EqualsTheLinearDecodeAtRandomMoments) {
  std::mt19937 random(11);
  std::vector<std::int64_t> uneven = {0};
  while (uneven.size() < 150) uneven.push_back(uneven.back() + 1 + random() % 7);
  struct Kind {
    const char* encoder;
    const char* container;
    Options options;
  };
  const std::vector<Kind> kinds = {
      {"libx264", "mp4", {{"g", "12"}, {"bf", "3"}}},
      {"libx264", "mp4", {{"g", "250"}, {"bf", "3"}}},
      {"libx264", "matroska", {{"g", "12"}, {"bf", "3"}, {"x264-params", "open-gop=1"}}},
      {"libx264", "mp4", {{"g", "12"}, {"bf", "3"}, {"x264-params", "open-gop=1"}}},
      {"libx264", "avi", {{"g", "12"}, {"bf", "0"}}},
      {"mpeg4", "mp4", {{"g", "12"}, {"bf", "2"}}},
      {"libvpx-vp9", "webm", {{"g", "12"}}},
      {"ffv1", "matroska", {{"g", "12"}}},
  };
  for (const Kind& kind : kinds) {
    const std::string name = std::string(kind.encoder) + " in " + kind.container;
    MemoryFile file = muxed(encoded(kind.encoder, 64, 48, uneven, kind.options), kind.container);
    const Outcome whole = decoded(file);
    ASSERT_EQ(whole.error.code, "") << name << whole.error.where << whole.error.found;
    ASSERT_EQ(whole.frames.size(), uneven.size()) << name;
    VideoReader reader(file, {});
    const std::int64_t end = whole.frames.back().ticks + 10;
    for (int moment = 0; moment < 250; ++moment) {
      const auto at =
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end + 10)) - 10;
      std::size_t wanted = 0;
      while (wanted + 1 < whole.frames.size() && whole.frames[wanted + 1].ticks <= at) ++wanted;
      std::optional<VideoFrame> frame;
      const ErrorInfo error = error_of([&] { frame = reader.frame_at(at); });
      ASSERT_TRUE(frame) << name << " at " << at << ": " << error.where << error.found;
      ASSERT_EQ(frame->ticks, whole.frames[wanted].ticks) << name << " at " << at;
      ASSERT_TRUE(frame->rgb == whole.frames[wanted].rgb) << name << " at " << at;
      if (moment % 5 != 0) continue;
      const auto next = reader.next();
      ASSERT_EQ(next.has_value(), wanted + 1 < whole.frames.size()) << name << " at " << at;
      if (!next) continue;
      ASSERT_EQ(next->ticks, whole.frames[wanted + 1].ticks) << name << " at " << at;
      ASSERT_TRUE(next->rgb == whole.frames[wanted + 1].rgb) << name << " at " << at;
    }
  }
}

TEST(FlippedBytes, OneErrorOrAVideoOfEveryContainer) {
  settle_video_codecs(std::size_t{256} << 20);
  constexpr int kSamples = 200;
  const std::vector<std::int64_t> ticks = constant_times(12);
  const auto written = [&](VideoContainer container, VideoCodec codec) {
    return written_video(
        {.container = container, .codec = codec, .width = 32, .height = 32, .tick = {1, 25}}, ticks,
        12);
  };
  const std::vector<std::pair<const char*, MemoryFile>> videos = {
      {"h264 in mp4", written(VideoContainer::kMp4, VideoCodec::kH264)},
      {"h264 in mp4, tables first", tables_first(written(VideoContainer::kMp4, VideoCodec::kH264))},
      {"vp9 in webm", written(VideoContainer::kWebm, VideoCodec::kVp9)},
      {"ffv1 in mkv", written(VideoContainer::kMatroska, VideoCodec::kFfv1)},
      {"mpeg4 in avi", muxed(encoded("mpeg4", 32, 32, ticks), "avi")}};
  for (const auto& [name, whole] : videos) {
    const bool lossless = std::string(name).starts_with("ffv1");
    std::mt19937 random(5);
    int refused = 0, given = 0;
    for (int sample = 0; sample < kSamples; ++sample) {
      MemoryFile file = whole;
      for (std::uint32_t flips = 1 + random() % 8; flips > 0; --flips) {
        file.bytes[random() % file.bytes.size()] ^= static_cast<std::uint8_t>(1 + random() % 255);
      }
      Outcome got;
      try {
        got = decoded(file);
      } catch (const std::bad_alloc&) {
        got.error.code = "E_VIDEO_MEMORY";  // as the process tells it
      }
      EXPECT_TRUE(got.error.code.empty() || got.error.code.starts_with("E_VIDEO_"));
      (got.error.code.empty() ? given : refused) += 1;
      for (std::size_t i = 0; lossless && i < got.frames.size(); ++i) {
        EXPECT_TRUE(got.frames[i].rgb == drawn_frame(32, 32, static_cast<int>(i))) << sample;
      }
      if (lossless && got.error.code.empty()) {
        EXPECT_EQ(got.frames.size(), ticks.size()) << sample;
      }
    }
    EXPECT_GE(refused, kSamples / 10) << name;
    std::printf("%s: %d samples, %d refused with one error, %d decoded\n", name, kSamples, refused,
                given);
  }
}

}  // namespace
}  // namespace tessera::video_damage_test
