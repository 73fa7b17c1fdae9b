// The program against the process that reads or writes a video, lying or true: every number checked,
// every wait bounded, no file of a name whose video is not whole.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include "engine/core/io.h"
#include "tests/support/fault_scope.h"
#include "tests/unit/video/fake_video.h"
#include "tests/support/packets.h"
#include "video/frame_reader.h"
#include "video/frame_writer.h"

namespace tessera::video_process_test {
namespace {

namespace fs = std::filesystem;

ErrorInfo error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

class VideoProcessTest : public ::testing::Test {
 protected:
  fs::path folder = fs::temp_directory_path() / ("tessera-process-" + std::to_string(::getpid()));
  VideoProcessOptions real{.program = VIDEO_HELPER};

  void SetUp() override {
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::ofstream(folder / "a.mp4") << "whatever";
  }
  void TearDown() override { fs::remove_all(folder); }

  static VideoProcessOptions liar(Lie lie, double seconds = 20) {
    return {.program = FAKE_VIDEO,
            .deadline_seconds = seconds,
            .cpu_seconds = static_cast<std::uint64_t>(lie)};
  }
  FrameReader open(Lie lie, double seconds = 20, VideoLimits limits = {}) {
    return FrameReader(folder / "a.mp4", {.limits = limits, .process = liar(lie, seconds)});
  }
  VideoFormat format(VideoContainer container = VideoContainer::kMatroska) {
    return {.container = container, .width = 64, .height = 48, .tick = {1, 8}};
  }
};

TEST_F(VideoProcessTest, ATrueOneIsBelieved) {
  FrameReader reader = open(Lie::kNone);
  EXPECT_EQ(reader.scan().size(), 3u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(reader.next()->ticks, i);
  FrameWriter writer(folder / "b.mkv", format(), liar(Lie::kNone));
  writer.put(drawn_frame(64, 48, 0), 0);
  EXPECT_TRUE(writer.finish(1));
}

TEST_F(VideoProcessTest, DescriptionsAreChecked) {
  for (const Lie lie : {Lie::kOtherHello, Lie::kHugeInfo, Lie::kNoSize, Lie::kFastInfo,
                        Lie::kNoTick, Lie::kOddTurn, Lie::kOtherContainer, Lie::kLongInfo}) {
    const ErrorInfo error = error_of([&] { open(lie); });
    EXPECT_EQ(error.code, "E_VIDEO_HELPER") << static_cast<int>(lie);
    EXPECT_EQ(error.file, (folder / "a.mp4").string());
  }
}

TEST_F(VideoProcessTest, FramesAreCheckedAgainstWhatWasAnnounced) {
  for (const Lie lie :
       {Lie::kOtherSize, Lie::kHugeFrame, Lie::kShortFrame, Lie::kSameTime, Lie::kOtherAnswer,
        Lie::kHugeNeed, Lie::kHugeError, Lie::kOtherError, Lie::kUnasked}) {
    FrameReader reader = open(lie);
    const ErrorInfo error = error_of([&] {
      for (int i = 0; i < 3; ++i) reader.next();
    });
    EXPECT_EQ(error.code, "E_VIDEO_HELPER") << static_cast<int>(lie);
    // It is gone, and stays so.
    EXPECT_EQ(error_of([&] { reader.next(); }).code, "E_VIDEO_HELPER");
    EXPECT_EQ(error_of([&] { reader.frame_at(0); }).code, "E_VIDEO_HELPER");
    EXPECT_EQ(error_of([&] { reader.scan(); }).code, "E_VIDEO_HELPER");
  }
}

TEST_F(VideoProcessTest, FramesWithoutEndAreCounted) {
  FrameReader by_count = open(Lie::kNone, 20, {.frames = 10});
  int frames = 0;
  EXPECT_EQ(error_of([&] {
              for (; frames < 1000; ++frames) by_count.next();
            }).code,
            "E_VIDEO_HELPER");
  EXPECT_EQ(frames, 10);
  FrameReader by_pixels = open(Lie::kNone, 20, {.decoded_pixels = 64 * 48 * 7});
  frames = 0;
  EXPECT_EQ(error_of([&] {
              for (; frames < 1000; ++frames) by_pixels.next();
            }).code,
            "E_VIDEO_HELPER");
  EXPECT_EQ(frames, 7);
}

TEST_F(VideoProcessTest, EveryAnswerHasItsTime) {
  for (const Lie lie : {Lie::kEndlessNeeds, Lie::kSilence, Lie::kTrickle}) {
    FrameReader reader = open(lie, 1.0);
    const double begin = monotonic_seconds();
    const ErrorInfo error = error_of([&] { reader.next(); });
    // What trickles is no message, whichever is noticed first.
    EXPECT_TRUE(error.code == "E_VIDEO_LATE" ||
                (lie == Lie::kTrickle && error.code == "E_VIDEO_HELPER"))
        << static_cast<int>(lie) << error.code;
    EXPECT_LT(monotonic_seconds() - begin, 10.0);
    EXPECT_EQ(error_of([&] { reader.next(); }).code, error.code);
  }
}

TEST_F(VideoProcessTest, ListsOfTimesAreChecked) {
  for (const Lie lie : {Lie::kTimesBack, Lie::kManyTimes}) {
    FrameReader reader = open(lie);
    EXPECT_EQ(error_of([&] { reader.scan(); }).code, "E_VIDEO_HELPER") << static_cast<int>(lie);
  }
}

TEST_F(VideoProcessTest, PiecesOfAWrittenVideoAreBounded) {
  for (const Lie lie : {Lie::kEndlessPieces, Lie::kEndlessSamePiece, Lie::kEmptyPieces,
                        Lie::kFarPiece, Lie::kPieceOverTheEnd, Lie::kLongPiece}) {
    const fs::path path = folder / "b.mkv";
    {
      FrameWriter writer(path, format(), liar(lie));
      EXPECT_EQ(error_of([&] { writer.put(drawn_frame(64, 48, 0), 0); }).code, "E_VIDEO_HELPER")
          << static_cast<int>(lie);
      EXPECT_EQ(error_of([&] { writer.finish(1); }).code, "E_VIDEO_UNFINISHED");
      EXPECT_NE(error_of([&] { writer.finish_whole_frames(1); }).code, "");
    }
    EXPECT_EQ(list_folder(folder).size(), 1u);
  }
  VideoFormat wanted = format();
  wanted.codec = VideoCodec::kH264;
  EXPECT_EQ(error_of([&] { FrameWriter(folder / "b.mkv", wanted, liar(Lie::kOtherCodec)); }).code,
            "E_VIDEO_HELPER");
  EXPECT_EQ(error_of([&] { codecs_there(VideoContainer::kMp4, liar(Lie::kManyCodecs)); }).code,
            "E_VIDEO_HELPER");
  FrameWriter late(folder / "b.mkv", format(), liar(Lie::kSilence, 1.0));
  EXPECT_EQ(error_of([&] { late.put(drawn_frame(64, 48, 0), 0); }).code, "E_VIDEO_LATE");
}

TEST_F(VideoProcessTest, AFailedFrameKeepsTheNameFree) {
  for (const VideoContainer container :
       {VideoContainer::kMp4, VideoContainer::kWebm, VideoContainer::kMatroska}) {
    const fs::path path = folder / ("c." + std::string(name_of(container)));
    {
      FrameWriter writer(path, format(container), real);
      for (int i = 0; i < 10; ++i) writer.put(drawn_frame(64, 48, i), i);
      EXPECT_EQ(error_of([&] { writer.put(drawn_frame(64, 48, 10), 3); }).code, "E_VIDEO_TIME");
      EXPECT_EQ(error_of([&] { writer.put(drawn_frame(64, 48, 10), 10); }).code, "E_VIDEO_TIME");
      const ErrorInfo error = error_of([&] { writer.finish(11); });
      EXPECT_EQ(error.code, "E_VIDEO_UNFINISHED");
      EXPECT_EQ(error.file, path.string());
      EXPECT_EQ(error.where, "frame 10");
      EXPECT_FALSE(fs::exists(path));
      EXPECT_EQ(writer.frames(), 10u);
      EXPECT_TRUE(writer.finish_whole_frames(10));
    }
    FrameReader reader(path, {.limits = {}, .process = real});
    int frames = 0;
    while (reader.next()) ++frames;
    EXPECT_EQ(frames, 10) << path;
    fs::remove(path);
    { FrameWriter unfinished(path, format(container), real); }
    FrameWriter empty(path, format(container), real);
    EXPECT_EQ(error_of([&] { empty.finish(1); }).code, "E_VIDEO_EMPTY");
    EXPECT_EQ(error_of([&] { empty.finish_whole_frames(1); }).code, "E_VIDEO_EMPTY");
    EXPECT_FALSE(fs::exists(path));
  }
}

TEST_F(VideoProcessTest, AFullDiskMidwayPublishesNothing) {
  const fs::path path = folder / "d.mkv";
  {
    FrameWriter writer(path, format(), real);
    ErrorInfo error;
    {
      const FaultScope full({.op = IoOp::kWrite, .nth = 1, .error = ENOSPC});
      error = error_of([&] {
        for (int i = 0; i < 2000; ++i) writer.put(drawn_frame(64, 48, i), i);
      });
    }
    ASSERT_EQ(error.kind, ErrorKind::kStorage);
    const ErrorInfo ended = error_of([&] { writer.finish(2000); });
    EXPECT_EQ(ended.kind, ErrorKind::kStorage);
    EXPECT_EQ(ended.code, "E_VIDEO_UNFINISHED");
    EXPECT_EQ(error_of([&] { writer.finish_whole_frames(2000); }).kind, ErrorKind::kStorage);
  }
  EXPECT_EQ(list_folder(folder).size(), 1u);
}

TEST_F(VideoProcessTest, ErrorsNameFileAndStream) {
  const fs::path path = folder / "e.mkv";
  FrameWriter writer(path, format(), real);
  for (int i = 0; i < 30; ++i) writer.put(drawn_frame(64, 48, i), i);
  ASSERT_TRUE(writer.finish(30));
  fs::resize_file(path, fs::file_size(path) * 2 / 3);
  FrameReader reader(path, {.limits = {}, .process = real});
  int frames = 0;
  const auto read_on = [&] {
    while (reader.next()) ++frames;
  };
  const ErrorInfo first = error_of(read_on);
  EXPECT_EQ(first.code, "E_VIDEO_CUT");
  EXPECT_EQ(first.file, path.string());
  EXPECT_EQ(first.where, "stream 0, frame " + std::to_string(frames));
  const ErrorInfo again = error_of(read_on);
  EXPECT_EQ(again.where, first.where);
  EXPECT_EQ(reader.frame_at(0)->ticks, 0);  // the process is there still
  std::ofstream(folder / "empty.mp4").flush();
  const ErrorInfo empty =
      error_of([&] { FrameReader(folder / "empty.mp4", {.limits = {}, .process = real}); });
  EXPECT_EQ(empty.code, "E_VIDEO_FILE");
  EXPECT_EQ(empty.file, (folder / "empty.mp4").string());
  VideoFormat other = format(VideoContainer::kWebm);
  other.codec = VideoCodec::kFfv1;
  const ErrorInfo codec = error_of([&] { FrameWriter(folder / "f.webm", other, real); });
  EXPECT_EQ(codec.code, "E_VIDEO_CODEC");
  EXPECT_EQ(codec.file, (folder / "f.webm").string());
  EXPECT_FALSE(fs::exists(folder / "f.webm"));
}

TEST_F(VideoProcessTest, AFileThatChangesIsLeftForGood) {
  const fs::path path = folder / "g.mkv";
  FrameWriter writer(path, format(), real);
  for (int i = 0; i < 200; ++i) writer.put(drawn_frame(64, 48, i), i);
  ASSERT_TRUE(writer.finish(200));
  FrameReader reader(path, {.limits = {}, .process = real});
  reader.next();
  std::ofstream(path, std::ios::app) << "more";
  const auto code_of = [&](const std::function<void()>& run) { return error_of(run).code; };
  EXPECT_EQ(code_of([&] { reader.scan(); }), "E_IO_CHANGED");
  EXPECT_EQ(code_of([&] { reader.next(); }), "E_IO_CHANGED");
  EXPECT_EQ(code_of([&] { reader.frame_at(0); }), "E_IO_CHANGED");
}

TEST_F(VideoProcessTest, ADatedFileIsReadAfterTheWalls) {
  MemoryFile file = written_video(format(VideoContainer::kMp4), std::vector<std::int64_t>{0, 1}, 2);
  for (const std::string name : {"mvhd", "tkhd", "mdhd"}) {
    const auto box = std::search(file.bytes.begin(), file.bytes.end(), name.begin(), name.end());
    ASSERT_NE(box, file.bytes.end());
    const std::array<std::uint8_t, 4> date = {0xe0, 0, 0, 0};  // seconds since 1904: in 2023
    std::copy(date.begin(), date.end(), box + 8);
  }
  const fs::path path = folder / "dated.mp4";
  std::ofstream(path, std::ios::binary) << std::string(file.bytes.begin(), file.bytes.end());
  FrameReader reader(path, {.limits = {}, .process = real});
  int frames = 0;
  while (reader.next()) ++frames;
  EXPECT_EQ(frames, 2);
}

// Some bytes of bad luck cost one error or give a video; the program goes on.
TEST_F(VideoProcessTest, FlippedBytesOfEveryContainerCostOneErrorAtMost) {
  constexpr int kSamples = 60;  // each starts a process; video_damage_test has more
  const std::vector<std::int64_t> ticks = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto written = [&](VideoContainer container) {
    VideoFormat small = format(container);
    small.width = small.height = 32;
    return written_video(small, ticks, 8);
  };
  const std::vector<std::pair<const char*, MemoryFile>> videos = {
      {"mp4", written(VideoContainer::kMp4)},
      {"webm", written(VideoContainer::kWebm)},
      {"mkv", written(VideoContainer::kMatroska)},
      {"avi", muxed(encoded("mpeg4", 32, 32, ticks), "avi")}};
  for (const auto& [name, whole] : videos) {
    std::mt19937 random(5);
    int refused = 0, given = 0;
    for (int sample = 0; sample < kSamples; ++sample) {
      std::string bytes(whole.bytes.begin(), whole.bytes.end());
      for (std::uint32_t flips = 1 + random() % 8; flips > 0; --flips) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
      }
      const fs::path path = folder / "flipped";
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
      int frames = 0;
      const ErrorInfo error = error_of([&] {
        FrameReader reader(path, {.limits = {.pixels = 1 << 22}, .process = real});
        while (reader.next()) ++frames;
      });
      EXPECT_LE(frames, 8);
      if (error.code.empty()) {
        ++given;
      } else {
        ++refused;
        EXPECT_TRUE(error.code.starts_with("E_VIDEO_")) << error.code;
        EXPECT_EQ(error.file, path.string());
      }
      EXPECT_NE(error.code, "E_VIDEO_HELPER") << sample << ": " << error.found;
    }
    EXPECT_EQ(refused + given, kSamples);
    EXPECT_GE(refused, kSamples / 10);
    std::printf("%s: %d samples, %d refused with one error, %d decoded\n", name, kSamples, refused,
                given);
  }
}

}  // namespace
}  // namespace tessera::video_process_test
