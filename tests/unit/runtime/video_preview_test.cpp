// Previews of videos: the grid that is being written, every few rows, and frames that they do not
// change.
#include <gtest/gtest.h>

#include "tests/support/own_video_task.h"

namespace tessera::video_preview_test {
namespace {

class Watcher final : public VideoListener {
 public:
  std::int64_t preview_rows() const override { return interval; }
  void on_preview(const VideoProgress& progress, const Image& frame) override {
    at.push_back(progress.tokens_done);
    frames_before.push_back(static_cast<std::int64_t>(bytes.size()));
    previews.push_back(frame);
  }
  void on_frame(std::int64_t, const Image& frame) override { bytes.push_back(frame.rgb); }

  std::int64_t interval = 0;
  std::vector<std::int64_t> at, frames_before;
  std::vector<Image> previews;
  std::vector<std::vector<std::uint8_t>> bytes;
};

GenerateOptions plain(const char* model) {
  GenerateOptions options;
  options.model = model;
  options.threads = 1;
  return options;
}

VideoRequest request(std::int64_t frames) {
  return {.prompt = "a red cube", .seed = 3, .frames = frames};
}

// Rows of one color.
bool flat(const Image& image, std::int64_t first_row) {
  const auto from = static_cast<std::size_t>(first_row * image.width * 3);
  for (std::size_t i = from + 3; i < image.rgb.size(); ++i) {
    if (image.rgb[i] != image.rgb[i - 3]) return false;
  }
  return true;
}

// A grid of test:clip has four rows of six codes, four pixels a side each.
TEST(VideoPreviews, ComeEveryFewRowsOfTheGridThatIsWritten) {
  OwnVideoTask task(plain("test:clip"));
  Watcher truth, each, second;
  task.run(task.prepare(request(24)), truth);
  EXPECT_TRUE(truth.previews.empty());
  each.interval = 1;
  task.run(task.prepare(request(24)), each);
  EXPECT_EQ(each.bytes, truth.bytes);
  // Of the first window four grids, of the second the two that are new.
  ASSERT_EQ(each.at.size(), 6u * 3);
  for (std::size_t i = 0; i < each.at.size(); ++i) {
    const auto grid = static_cast<std::int64_t>(i / 3), row = static_cast<std::int64_t>(i % 3 + 1);
    EXPECT_EQ(each.at[i], (grid < 4 ? grid : grid - 2) * 24 + row * 6) << i;
    EXPECT_EQ(each.frames_before[i], grid * 4) << i;
    const Image& shown = each.previews[i];
    EXPECT_EQ(shown.width, 24);
    EXPECT_EQ(shown.height, 16);
    EXPECT_TRUE(flat(shown, row * 4)) << i;
    EXPECT_FALSE(flat(shown, 0)) << i;
  }
  second.interval = 2;
  task.run(task.prepare(request(16)), second);
  EXPECT_EQ(second.at, (std::vector<std::int64_t>{12, 36, 60, 84}));
}

TEST(VideoPreviews, AreThereForBlocksAndControlIds) {
  for (const char* model : {"test:nbp", "test:clip-rows"}) {
    OwnVideoTask task(plain(model));
    Watcher truth, each;
    each.interval = 1;
    task.run(task.prepare(request(16)), truth);
    task.run(task.prepare(request(16)), each);
    EXPECT_EQ(each.bytes, truth.bytes) << model;
    EXPECT_EQ(each.at.size(), 4u * 3) << model;
  }
}

// Where only codes are wanted nothing is decoded.
TEST(VideoPreviews, AreNotOfCodesAlone) {
  OwnVideoTask task(plain("test:clip"));
  Watcher codes;
  codes.interval = 1;
  task.run(task.prepare(request(16)), codes, {.frames = false});
  EXPECT_TRUE(codes.previews.empty());
}

}  // namespace
}  // namespace tessera::video_preview_test
