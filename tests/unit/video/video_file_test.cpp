// Videos through the confined process and through files: what the codec gives, nothing else; a
// process that dies, a file that changes, a full disk.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "engine/core/io.h"
#include "tests/support/fault_scope.h"
#include "tests/support/video_file.h"
#include "video/frame_reader.h"
#include "video/frame_writer.h"
#include "vision/image/image_reader.h"

namespace tessera::video_file_test {
namespace {

namespace fs = std::filesystem;

class VideoFileTest : public ::testing::Test {
 protected:
  fs::path folder = fs::temp_directory_path() / ("tessera-clips-" + std::to_string(::getpid()));
  VideoProcessOptions process{.program = VIDEO_HELPER};

  void SetUp() override {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  VideoFormat format(VideoContainer container, std::int64_t width = 64, std::int64_t height = 48) {
    return {.container = container,
            .width = width,
            .height = height,
            .tick = {1, 8},
            .comment = "a red sphere, <b>bold</b>"};
  }
  fs::path write(const std::string& name, int frames, std::int64_t width = 64,
                 std::int64_t height = 48) {
    const fs::path path = folder / name;
    FrameWriter writer(path, format(container_of(path), width, height), process);
    for (int i = 0; i < frames; ++i) writer.put(drawn_frame(width, height, i), i);
    EXPECT_TRUE(writer.finish(frames));
    return path;
  }
  FrameReader open(const fs::path& path) {
    return FrameReader(path, {.limits = {}, .process = process});
  }
};

ErrorInfo error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

TEST_F(VideoFileTest, EveryContainerGoesThroughTheConfinedProcess) {
  for (const char* name : {"a.mkv", "a.mp4", "a.webm"}) {
    const fs::path path = write(name, 20);
    FrameReader reader = open(path);
    EXPECT_EQ(reader.confinement(), kWholeConfinement);
    EXPECT_EQ(reader.info().width, 64);
    int frames = 0;
    while (const auto frame = reader.next()) {
      if (path.extension() == ".mkv") {
        EXPECT_EQ(frame->rgb, drawn_frame(64, 48, frames));
      }
      ++frames;
    }
    EXPECT_EQ(frames, 20) << name;
    EXPECT_EQ(reader.scan().size(), 20u);
    const auto tenth = reader.frame_at(reader.scan()[10]);
    ASSERT_TRUE(tenth);
    EXPECT_EQ(tenth->ticks, reader.scan()[10]);
    EXPECT_EQ(list_folder(folder).size(), 1u);  // no draft is left
    fs::remove(path);
  }
}

TEST_F(VideoFileTest, EveryCodecOfTheMachineRunsAfterTheWalls) {
  for (const VideoContainer container :
       {VideoContainer::kMp4, VideoContainer::kWebm, VideoContainer::kMatroska}) {
    const auto codecs = codecs_there(container, process);
    EXPECT_FALSE(codecs.empty());
    for (const VideoCodec codec : codecs) {
      const fs::path path = folder / ("c." + std::string(name_of(container)));
      VideoFormat wanted = format(container);
      wanted.codec = codec;
      FrameWriter writer(path, wanted, process);
      EXPECT_EQ(writer.codec(), codec);
      for (int i = 0; i < 5; ++i) writer.put(drawn_frame(64, 48, i), i);
      EXPECT_TRUE(writer.finish(5)) << name_of(codec);
      FrameReader reader = open(path);
      int frames = 0;
      while (reader.next()) ++frames;
      EXPECT_EQ(frames, 5) << name_of(codec);
    }
  }
}

TEST_F(VideoFileTest, AnUnfinishedVideoLeavesNothing) {
  {
    FrameWriter writer(folder / "b.mkv", format(VideoContainer::kMatroska), process);
    writer.put(drawn_frame(64, 48, 0), 0);
  }
  EXPECT_TRUE(list_folder(folder).empty());
}

TEST_F(VideoFileTest, ATakenNameIsKept) {
  std::ofstream(folder / "b.mkv") << "mine";
  FrameWriter writer(folder / "b.mkv", format(VideoContainer::kMatroska), process);
  writer.put(drawn_frame(64, 48, 0), 0);
  EXPECT_FALSE(writer.finish(1, Publish::kNew));
  EXPECT_EQ(read_file(folder / "b.mkv", 100, ErrorKind::kGeneral), "mine");
}

TEST_F(VideoFileTest, ErrorsNameTheFile) {
  std::ofstream(folder / "sound.mp4") << "no video at all, whatever its name says";
  const ErrorInfo error = error_of([&] { open(folder / "sound.mp4"); });
  EXPECT_EQ(error.code, "E_VIDEO_FORMAT");
  EXPECT_EQ(error.file, (folder / "sound.mp4").string());
  EXPECT_EQ(error_of([&] { open(folder / "none.mp4"); }).code, "E_IO_OPEN");
  EXPECT_EQ(error_of([&] { container_of("a.avi"); }).code, "E_VIDEO_NAME");
}

TEST_F(VideoFileTest, AFileThatGrowsWhileItIsReadIsRefused) {
  const fs::path path = write("long.mkv", 200, 320, 240);
  ASSERT_GT(fs::file_size(path), 500'000u);
  FrameReader reader = open(path);
  reader.next();
  std::ofstream(path, std::ios::app) << "more";
  const ErrorInfo error = error_of([&] {
    while (reader.next()) {
    }
  });
  EXPECT_EQ(error.code, "E_IO_CHANGED");
}

TEST_F(VideoFileTest, ACutFileSaysHowFarItWent) {
  const fs::path path = write("cut.mkv", 60);
  fs::resize_file(path, fs::file_size(path) / 2);
  FrameReader reader = open(path);
  int frames = 0;
  const ErrorInfo error = error_of([&] {
    while (reader.next()) ++frames;
  });
  EXPECT_EQ(error.code, "E_VIDEO_CUT");
  EXPECT_NE(error.where.find("frame " + std::to_string(frames)), std::string::npos) << error.where;
  EXPECT_GT(frames, 10);
}

TEST_F(VideoFileTest, AProcessThatDiesCostsTheVideo) {
  const fs::path path = write("a.mkv", 3);
  VideoProcessOptions poor = process;
  poor.program = "/bin/false";
  EXPECT_EQ(error_of([&] { FrameReader(path, {.limits = {}, .process = poor}); }).code,
            "E_VIDEO_HELPER");
  poor.program = folder / "missing";
  EXPECT_EQ(error_of([&] { FrameReader(path, {.limits = {}, .process = poor}); }).code,
            "E_VIDEO_HELPER");
}

TEST_F(VideoFileTest, AFullDiskIsSaidAndLeavesNothing) {
  for (int at = 1; at <= 6; ++at) {
    const FaultScope full(
        {.op = IoOp::kWrite, .nth = static_cast<std::uint64_t>(at), .error = ENOSPC});
    const ErrorInfo error = error_of([&] { write("full.mkv", 30, 320, 240); });
    EXPECT_EQ(error.kind, ErrorKind::kStorage);
    EXPECT_TRUE(fs::is_empty(folder));
  }
}

}  // namespace
}  // namespace tessera::video_file_test
