// Videos written and measured on a device whose memory the host cannot touch and whose ops run late:
// the CPU backend's, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_videos.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/support/guarded_backend.h"
#include "tests/support/own_video_task.h"
#include "tests/support/temp_folder.h"

namespace tessera::videos_test {
namespace {

class Frames final : public VideoListener {
 public:
  void on_frame(std::int64_t, const Image& frame) override { frames.push_back(frame); }
  std::vector<Image> frames;
};

struct Video {
  const char* model = "test:clip";
  const char* method = "plain";
  std::int64_t frames = 0;  // 0: the model's own length
  Continuation continuation = Continuation::kRecompute;
  std::size_t first_frames = 0;  // that are given
  bool text = false;             // features of a text encoder
};

struct Written {
  ImageStatus status = ImageStatus::kFailed;
  std::int64_t passes = 0;
  std::vector<std::vector<std::uint8_t>> frames;
  bool operator==(const Written&) const = default;
};

Image some_frame(std::int64_t width, std::int64_t height, std::size_t number) {
  Image image(width, height);
  for (std::size_t i = 0; i < image.rgb.size(); ++i) {
    image.rgb[i] = static_cast<std::uint8_t>(i * (number + 3) + i / 7);
  }
  return image;
}

Written write(const Video& video, const char* device, const std::filesystem::path& features) {
  GenerateOptions options;
  options.model = video.model;
  options.device = device;
  options.threads = 1;
  options.method = decode_method(video.method);
  OwnVideoTask pipeline(options);
  VideoRequest request{.seed = 3, .frames = video.frames, .continuation = video.continuation};
  if (pipeline.takes_prompts()) request.prompt = "a red cube";
  if (video.text) request.text_features = features.string();
  for (std::size_t i = 0; i < video.first_frames; ++i) {
    request.first_frames.push_back(
        some_frame(pipeline.spec().image_width(), pipeline.spec().image_height(), i));
  }
  Frames heard;
  const GeneratedVideo made = pipeline.run(pipeline.prepare(request), heard);
  Written out{made.status, made.facts.passes, {}};
  for (const Image& frame : heard.frames) out.frames.push_back(frame.rgb);
  return out;
}

class DeviceVideos : public ::testing::TestWithParam<Video> {};

TEST_P(DeviceVideos, AreTheCpusBitForBit) {
  offer_guarded_devices();
  const TempFolder folder;
  const std::filesystem::path features = folder.path() / "text.safetensors";
  if (GetParam().text) {
    Tensor rows = Tensor::host(DType::kF32, {5, 24});
    for (int i = 0; i < 5 * 24; ++i) rows.f32()[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
    write_safetensors(features, {{"text", std::as_const(rows).view()}});
  }
  const Written want = write(GetParam(), "cpu", features);
  ASSERT_EQ(want.status, ImageStatus::kDone);
  ASSERT_GT(want.frames.size(), 4u);
  EXPECT_TRUE(write(GetParam(), "guarded:0", features) == want);
}

INSTANTIATE_TEST_SUITE_P(
    Models, DeviceVideos,
    ::testing::Values(Video{}, Video{.model = "test:clip-rows", .method = "frames"},
                    Video{.frames = 24, .continuation = Continuation::kSinks, .first_frames = 4},
                    Video{.frames = 24, .continuation = Continuation::kRecompute, .first_frames = 4},
                    Video{.model = "test:nbp"}, Video{.model = "test:nbp-frames", .first_frames = 4},
                    Video{.model = "test:cosmos", .first_frames = 1},
                    Video{.model = "test:cosmos-text", .first_frames = 1, .text = true}));

// The whole of `eval videos`, short: generates, reconstructs, measures.
std::string evaluation(const char* device) {
  EvalVideosRequest request;
  request.options.model = "tabletop-video";
  request.options.device = device;
  request.options.threads = 1;
  request.options.method = decode_method("frames");
  request.splits = {SceneSplit::kVal};
  request.videos = 1;
  request.frames = 8;
  request.first_frames = 4;
  const EvalVideosReport report = eval_videos(request, {});
  EXPECT_EQ(report.failed, 0);
  std::string out;
  for (const VideoRow& row : report.rows) out += row_json(row).dump();
  for (const VideoSample& sample : report.samples) {
    for (const Image& frame : sample.frames) out.append(frame.rgb.begin(), frame.rgb.end());
  }
  return out;
}

TEST(DeviceEvalVideos, MeasuresWhatTheCpuMeasures) {
  offer_guarded_devices();
  EXPECT_TRUE(evaluation("guarded:0") == evaluation("cpu"));
}

}  // namespace
}  // namespace tessera::videos_test
