// Sequences of PNG files, and the one function that tells by a name what is written.
#include "video/frame_sink.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "engine/core/draft_folder.h"
#include "engine/core/io.h"
#include "tests/support/fault_scope.h"
#include "tests/support/video_file.h"
#include "video/frame_reader.h"
#include "vision/image/png.h"

namespace tessera::frame_sink_test {
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

class FrameSinkTest : public ::testing::Test {
 protected:
  fs::path folder = fs::temp_directory_path() / ("tessera-sinks-" + std::to_string(::getpid()));
  VideoProcessOptions process{.program = VIDEO_HELPER};
  VideoFormat format{.width = 37, .height = 19, .tick = {3, 24}, .comment = "a \xc3\xa9toile"};

  void SetUp() override {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  std::unique_ptr<FrameSink> open(const fs::path& name) {
    return open_frame_sink(folder / name, format, process);
  }
  void put(FrameSink& sink, int from, int to) {
    for (int i = from; i < to; ++i) sink.put(drawn_frame(format.width, format.height, i), i);
  }
  void write_text(const fs::path& name) { std::ofstream(folder / name) << "mine"; }
  std::string text_of(const fs::path& name) {
    return read_file(folder / name, 1 << 20, ErrorKind::kGeneral);
  }
  // Names and nothing else, hidden ones too.
  std::vector<std::string> names(const fs::path& where = "") {
    std::vector<std::string> out;
    for (const fs::path& path : list_folder(folder / where)) out.push_back(path.filename());
    return out;
  }
};

using Names = std::vector<std::string>;

TEST_F(FrameSinkTest, ASequenceKeepsEveryPixelCommentAndTime) {
  const auto sink = open("name-%03d.png");
  EXPECT_EQ(sink->codec(), "png");
  const std::vector<std::int64_t> ticks = {4, 5, 8, 20};
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    sink->put(drawn_frame(37, 19, static_cast<int>(i)), ticks[i]);
    EXPECT_EQ(sink->frames(), i + 1);
    EXPECT_EQ(list_folder(folder).size(), 1u) << "a hidden folder alone";
  }
  EXPECT_TRUE(sink->finish(21));
  EXPECT_EQ(names().size(), 5u) << "which is left until the sink ends";
  const std::vector<std::string> times = {"0/1 s", "1/8 s", "1/2 s", "2/1 s"};
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const fs::path path = folder / ("name-00" + std::to_string(i + 1) + ".png");
    EXPECT_EQ(read_own_png(path).rgb, drawn_frame(37, 19, static_cast<int>(i)));
    std::map<std::string, std::string> texts;
    for (const PngText& text : read_png_texts(path).texts) texts[text.keyword] = text.text;
    EXPECT_EQ(texts["Comment"], format.comment);
    EXPECT_EQ(texts["Time"], times[i]);
  }
}

TEST_F(FrameSinkTest, AFolderIsASequenceToo) {
  {
    const auto sink = open("new/");
    put(*sink, 0, 3);
    EXPECT_FALSE(fs::exists(folder / "new"));
    EXPECT_TRUE(sink->finish(3, Publish::kNew));
  }
  EXPECT_EQ(names(), Names{"new"});
  EXPECT_EQ(names("new"), (Names{"0001.png", "0002.png", "0003.png"}));
  {
    const auto taken = open("new");
    put(*taken, 5, 6);
    EXPECT_FALSE(taken->finish(6, Publish::kNew));
  }
  EXPECT_EQ(read_own_png(folder / "new/0001.png").rgb, drawn_frame(37, 19, 0));
  {
    const auto replaced = open("new");
    put(*replaced, 5, 7);
    EXPECT_TRUE(replaced->finish(7, Publish::kReplace));
  }
  EXPECT_EQ(read_own_png(folder / "new/0001.png").rgb, drawn_frame(37, 19, 5));
  EXPECT_EQ(read_own_png(folder / "new/0003.png").rgb, drawn_frame(37, 19, 2));
  fs::create_directory(folder / "empty");
  {
    const auto sink = open("empty");
    put(*sink, 0, 1);
    EXPECT_TRUE(sink->finish(1, Publish::kNew));
  }
  EXPECT_EQ(names("empty"), Names{"0001.png"});
  EXPECT_EQ(names(), (Names{"empty", "new"}));
}

TEST_F(FrameSinkTest, ANameThatIsTakenGivesTheOthersBack) {
  write_text("a3.png");
  {
    const auto sink = open("a%d.png");
    put(*sink, 0, 5);
    EXPECT_FALSE(sink->finish(5, Publish::kNew));
  }
  EXPECT_EQ(names(), Names{"a3.png"});
  EXPECT_EQ(text_of("a3.png"), "mine");
}

TEST_F(FrameSinkTest, AFailedFrameKeepsTheNamesFree) {
  {
    const auto sink = open("f%02d.png");
    put(*sink, 0, 4);
    EXPECT_EQ(error_of([&] { put(*sink, 2, 3); }).code, "E_VIDEO_TIME");
    EXPECT_EQ(error_of([&] { put(*sink, 4, 5); }).code, "E_VIDEO_TIME") << "the error stays";
    const ErrorInfo error = error_of([&] { sink->finish(5); });
    EXPECT_EQ(error.code, "E_VIDEO_UNFINISHED");
    EXPECT_EQ(error.where, "frame 4");
    EXPECT_EQ(list_folder(folder).size(), 1u);
    EXPECT_TRUE(sink->finish_whole_frames(4));
  }
  EXPECT_EQ(names(), (Names{"f01.png", "f02.png", "f03.png", "f04.png"}));
  {
    const auto sink = open("g%02d.png");
    EXPECT_EQ(error_of([&] { sink->finish(5); }).code, "E_VIDEO_EMPTY");
    put(*sink, 0, 2);
  }
  EXPECT_EQ(names().size(), 4u) << "what was not finished leaves nothing";
}

TEST_F(FrameSinkTest, AFullDiskKeepsTheWholeFramesOnly) {
  for (const bool keep : {false, true}) {
    {
      const auto sink = open("d%d.png");
      put(*sink, 0, 2);
      {
        const FaultScope full({.op = IoOp::kWrite, .nth = 1, .error = ENOSPC});
        EXPECT_EQ(error_of([&] { put(*sink, 2, 3); }).kind, ErrorKind::kStorage);
      }
      EXPECT_EQ(error_of([&] { sink->finish(3); }).kind, ErrorKind::kStorage);
      if (keep) {
        EXPECT_TRUE(sink->finish_whole_frames(2));
      }
    }
    EXPECT_EQ(names(), keep ? (Names{"d1.png", "d2.png"}) : Names{});
  }
}

TEST_F(FrameSinkTest, EveryStepOfPublishingMayFail) {
  for (const IoOp op : {IoOp::kMkdir, IoOp::kOpen, IoOp::kSync, IoOp::kRename}) {
    int failures = 0;
    for (std::uint64_t nth = 1; nth <= 12; ++nth) {
      ErrorInfo error;
      std::uint64_t hits = 0;
      {
        const FaultScope fault({.op = op, .nth = nth, .error = EIO});
        error = error_of([&] {
          const auto sink = open("e%d.png");
          put(*sink, 0, 3);
          sink->finish(3, Publish::kNew);
        });
        hits = fault.hits();
      }
      if (hits == 0) {
        EXPECT_EQ(error.code, "");
        EXPECT_EQ(names().size(), 3u);
        fs::remove_all(folder);
        fs::create_directories(folder);
        break;
      }
      ++failures;
      EXPECT_EQ(error.kind, ErrorKind::kStorage);
      // Only the opening and the sync of the folder come after the names.
      const std::size_t left = names().size();
      const bool after = op == IoOp::kSync || op == IoOp::kOpen;
      EXPECT_TRUE(left == 0 || (after && left == 3u)) << static_cast<int>(op) << nth;
      fs::remove_all(folder);
      fs::create_directories(folder);
    }
    EXPECT_GT(failures, 0) << static_cast<int>(op);
    EXPECT_LT(failures, 12);
  }
}

TEST_F(FrameSinkTest, NamesTellWhatIsWritten) {
  for (const char* name : {"a-%04d.png", "%d.png", "x/", "."}) {
    EXPECT_TRUE(is_png_sequence(folder / name)) << name;
  }
  for (const char* name : {"a.png", "a%4d.png", "a%0d.png", "a%d%d.png", "a%012d.png", "a%s.png",
                           "a%d.gif", "a.mkv"}) {
    EXPECT_FALSE(is_png_sequence(folder / name)) << name;
  }
  for (const char* name : {"a.png", "a%s.png", "a.avi", "a"}) {
    EXPECT_EQ(error_of([&] { open(name); }).code, "E_VIDEO_NAME") << name;
  }
  EXPECT_TRUE(fs::is_empty(folder));
  format.width = 20'000;
  EXPECT_EQ(error_of([&] { open("a%d.png"); }).code, "E_VIDEO_SIZE");
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(FrameSinkTest, VideosAreWrittenByTheirEnding) {
  const std::map<std::string, std::string> codecs = {
      {"a.mkv", "ffv1"}, {"a.webp", "webp"}, {"a.gif", "gif"}};
  for (const auto& [name, codec] : codecs) {
    const auto sink = open(name);
    EXPECT_EQ(sink->codec(), codec);
    put(*sink, 0, 4);
    EXPECT_EQ(sink->frames(), 4u);
    EXPECT_TRUE(sink->finish(4));
  }
  EXPECT_EQ(names(), (Names{"a.gif", "a.mkv", "a.webp"}));
  EXPECT_TRUE(text_of("a.gif").starts_with("GIF89a"));
  EXPECT_EQ(text_of("a.webp").substr(8, 4), "WEBP");
  FrameReader reader(folder / "a.mkv", {.limits = {}, .process = process});
  EXPECT_EQ(reader.next()->rgb, drawn_frame(37, 19, 0));
}

}  // namespace
}  // namespace tessera::frame_sink_test
