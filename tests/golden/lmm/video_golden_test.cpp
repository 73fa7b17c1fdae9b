// Videos through whole captioning models, against the reference implementation: pixels, places,
// merged embeddings, logits and greedy text, for an even and an odd number of frames.
#include <gtest/gtest.h>

#include "tests/golden/lmm/parity.h"
#include "tests/support/tiny_lmm.h"
#include "vision/image/video_preprocess.h"

namespace tessera::video_golden_test {
namespace {

TinyLmm video_model(const std::string& name) {
  const auto folder = TinyLmm::goldens() / name;
  return TinyLmm(folder, folder / "clips.safetensors", 1);
}

struct RecordedVideo {
  std::vector<DecodedImage> frames;
  VideoFrames choice;
};

RecordedVideo video_of(const TinyLmm& tiny, int number, const std::string& prefix) {
  const ConstTensorView* view = tiny.recorded.find("frames." + std::to_string(number));
  expects(view != nullptr, "recorded frames");
  const std::int64_t height = view->shape[1], width = view->shape[2];
  const auto size = static_cast<std::size_t>(height * width * 3);
  RecordedVideo out;
  for (std::int64_t t = 0; t < view->shape[0]; ++t) {
    DecodedImage frame(width, height, 3, "frame");
    const auto* data =
        static_cast<const std::uint8_t*>(view->data) + static_cast<std::size_t>(t) * size;
    frame.pixels.assign(data, data + size);
    out.frames.push_back(std::move(frame));
    out.choice.seconds.push_back(static_cast<double>(t));
    out.choice.numbers.push_back(t);
  }
  out.choice.length = static_cast<double>(out.frames.size());
  if (tiny.has(prefix + "seconds_per_grid")) {
    out.choice.rate = 2.0 / static_cast<double>(tiny.floats(prefix + "seconds_per_grid")[0]);
  }
  return out;
}

PreprocessedImage prepared(const VideoPolicy& policy, const RecordedVideo& video) {
  VideoPreprocessor maker(policy, video.frames[0].width, video.frames[0].height, video.choice);
  for (const DecodedImage& frame : video.frames) maker.add(frame);
  return maker.finish();
}

std::vector<float> pixels_of(const TinyLmm& tiny, const PreprocessedImage& video) {
  std::vector<float> out;
  for (const EncoderView& view : video.views) {
    const bool rows = tiny.spec.describe->policy.mode == ResizeMode::kMultiples;
    const std::vector<float> more = rows ? patch_rows(tiny.spec.describe->video.frame, view,
                                                      tiny.spec.describe->video.view_frames)
                                         : view.values;
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

// The processors of videos rescale and normalise in one step, which rounds otherwise than two; a
// level of a pixel is more than 0.007. Every seventh row was recorded.
void expect_close(const std::vector<float>& got, const TinyLmm& tiny, const std::string& name) {
  constexpr std::size_t kEvery = 7;
  const auto row = static_cast<std::size_t>(tiny.recorded.find(name)->shape[1]);
  const std::vector<float> want = tiny.floats(name);
  ASSERT_EQ(want.size() / row, (got.size() / row + kEvery - 1) / kEvery);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i / row * kEvery * row + i % row], want[i], 2e-6) << i;
  }
}

class VideoFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(VideoFamily, EqualsTheReference) {
  const TinyLmm tiny = video_model(GetParam());
  ASSERT_EQ(tiny.spec.describe->video_id, 91);
  int number = 0;
  for (const std::string at : {"", "odd."}) {
    SCOPED_TRACE(at.empty() ? "six frames" : "five frames");
    const RecordedVideo video = video_of(tiny, number++, at);
    const PreprocessedImage ready = prepared(tiny.spec.describe->video, video);
    expect_close(pixels_of(tiny, ready), tiny, at + "pixel_values_videos");
    std::vector<PromptImage> visual;
    visual.push_back({tiny.images->encode(ready, tiny.spec.three_axes(), nullptr)});
    const VisualRows& rows = visual[0].visual;
    EXPECT_EQ(rows.total, ready.plan.tokens);
    std::int64_t last = 0;
    for (const VisualToken& token : rows.block.tokens) {
      EXPECT_GE(token.frame, last) << "frames in order";
      last = token.frame;
    }
    EXPECT_EQ(last, ready.plan.views - 1) << "every view has tokens";
    PromptRows prompt =
        build_prompt(*tiny.text, tiny.ints(at + "input_ids"), tiny.spec.describe->image_id,
                     std::move(visual), tiny.spec.describe->video_id);
    expect_rows_parity(tiny, std::move(prompt), at);
  }
}

// Frames are distinguished: the same frames in another order are another video.
TEST_P(VideoFamily, TheOrderOfFramesShows) {
  const TinyLmm tiny = video_model(GetParam());
  RecordedVideo video = video_of(tiny, 0, "");
  const PreprocessedImage right = prepared(tiny.spec.describe->video, video);
  std::swap(video.frames[1], video.frames[4]);
  const PreprocessedImage swapped = prepared(tiny.spec.describe->video, video);
  const bool three = tiny.spec.three_axes();
  const VisualRows a = tiny.images->encode(right, three, nullptr);
  const VisualRows b = tiny.images->encode(swapped, three, nullptr);
  EXPECT_GT(worst_relative(b.rows, a.rows), 1e-3);
  EXPECT_EQ(a.positions, b.positions);
}

// A video that is encoded next to others is what it is alone.
TEST_P(VideoFamily, SeenTogether) {
  const TinyLmm tiny = video_model(GetParam());
  const PreprocessedImage two[] = {prepared(tiny.spec.describe->video, video_of(tiny, 0, "")),
                                     prepared(tiny.spec.describe->video, video_of(tiny, 1, "odd."))};
  const PreprocessedImage* const order[] = {&two[1], &two[0]};
  std::vector<EncodedTiles> seen = tiny.images->look(order);
  ASSERT_EQ(seen.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const bool three = tiny.spec.three_axes();
    const VisualRows alone = tiny.images->encode(*order[i], three, nullptr);
    const VisualRows together =
        tiny.images->encode(*order[i], three, nullptr, std::move(seen[i]));
    EXPECT_EQ(together.rows, alone.rows);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VideoFamily,
                         ::testing::Values("qwen2-vl", "qwen2.5-vl", "clip-llava-onevision"),
                         [](const auto& family) { return test_name(family.param); });

// Time ids by the clock, worked out by hand: 1.5 s a grid at 4 ids a second is 6 apart, 0.3 s at 2
// is 0, 0, 1, 1, 2 after truncation; text goes on after the highest id.
TEST(VideoPlaces, TimeGoesByTheClock) {
  VideoPolicy policy;
  policy.frame = preprocess_policy("qwen2-vl");
  policy.view_frames = 2;
  policy.ids_per_second = 4;
  const VideoFrames slow{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, 4.5, 2.0 / 1.5};
  EXPECT_EQ(plan_video(policy, 56, 56, slow).video->time_ids, (std::vector<std::int32_t>{0, 6, 12}));
  policy.ids_per_second = 2;
  VideoFrames quick{{}, {}, 1.5, 2.0 / 0.3};
  for (int i = 0; i < 10; ++i) {
    quick.seconds.push_back(0.15 * i);
    quick.numbers.push_back(i);
  }
  EXPECT_EQ(plan_video(policy, 56, 56, quick).video->time_ids,
            (std::vector<std::int32_t>{0, 0, 1, 1, 2}));
  policy.ids_per_second.reset();
  EXPECT_EQ(plan_video(policy, 56, 56, quick).video->time_ids,
            (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
}

TEST(VideoPlaces, TextStandsAfterTheHighestPlace) {
  const TinyLmm tiny = video_model("qwen2.5-vl");
  RecordedVideo video = video_of(tiny, 0, "");
  video.choice.rate = 0.1;  // 20 s a grid at 2 ids a second: 0, 40, 80
  const PreprocessedImage ready = prepared(tiny.spec.describe->video, video);
  ASSERT_EQ(ready.plan.video->time_ids, (std::vector<std::int32_t>{0, 40, 80}));
  std::vector<PromptImage> visual;
  visual.push_back({tiny.images->encode(ready, true, nullptr)});
  const auto ids = tiny.ints("input_ids");
  const PromptRows rows = build_prompt(*tiny.text, ids, tiny.spec.describe->image_id,
                                       std::move(visual), tiny.spec.describe->video_id);
  const auto first = std::find(ids.begin(), ids.end(), 91) - ids.begin();
  const auto after = std::find(ids.rbegin(), ids.rend(), 91).base() - ids.begin();
  EXPECT_EQ(rows.places[static_cast<std::size_t>(after - 1)][0], first + 80);
  EXPECT_EQ(rows.places[static_cast<std::size_t>(after)][0], first + 81);
  EXPECT_EQ(rows.places[static_cast<std::size_t>(after)][2], first + 81);
}

// Qwen's pixels of a frame: 768 tokens' worth, fewer when 115,200 tokens must do for all frames,
// never fewer than 1.05 times 128.
TEST(VideoPlaces, ManyFramesAreSmaller) {
  VideoPolicy policy;
  policy.frame = preprocess_policy("qwen2-vl");
  policy.frame.min_pixels = 128 * 784;
  policy.frame.max_pixels = 768 * 784;
  policy.view_frames = 2;
  policy.total_pixels = 115200 * 784;
  const auto pixels = [&](std::int64_t count) {
    VideoFrames frames;
    for (std::int64_t i = 0; i < count; ++i) {
      frames.seconds.push_back(static_cast<double>(i));
      frames.numbers.push_back(i);
    }
    const PreprocessPlan plan = plan_video(policy, 1920, 1080, frames);
    return plan.view_width * plan.view_height;
  };
  EXPECT_EQ(pixels(4), 1008 * 560);   // 768 tokens' worth: floor(1920 / 1.8556 / 28) = 36 by 20
  EXPECT_EQ(pixels(300), pixels(4));  // 115,200 * 2 / 300 = 768
  EXPECT_LT(pixels(400), pixels(300));
  EXPECT_LE(pixels(768), 300 * 784);
  EXPECT_GE(pixels(100000), 1);
  EXPECT_LE(pixels(100000), static_cast<std::int64_t>(1.05 * 128 * 784));
}

}  // namespace
}  // namespace tessera::video_golden_test
