// Videos with a draft model: what drafts changes the passes alone, where the method says so.
#include <gtest/gtest.h>

#include "engine/decoding/drafters/named_drafters.h"
#include "tests/support/own_video_task.h"

namespace tessera::video_draft_test {
namespace {

class Frames final : public VideoListener {
 public:
  void on_frame(std::int64_t, const Image& frame) override { bytes.push_back(frame.rgb); }
  void on_over(GeneratedVideo&& video) override { made = std::move(video); }
  std::vector<std::vector<std::uint8_t>> bytes;
  GeneratedVideo made;
};

GenerateOptions options_for(const char* model, const char* method, const char* draft = "") {
  GenerateOptions options;
  options.model = model;
  options.threads = 1;
  options.method = decode_method(method);
  options.draft_model = draft;
  if (*draft != '\0') options.method.drafter = kModelDrafter;
  return options;
}

VideoRequest request_for(const VideoTask& task, std::int64_t frames,
                         Continuation continuation = Continuation::kRecompute) {
  VideoRequest out{.seed = 3, .frames = frames, .continuation = continuation};
  if (task.takes_prompts()) out.prompt = "a red cube";
  if (task.takes_prompts()) return out;
  Image image(task.spec().image_width(), task.spec().image_height());
  for (std::size_t i = 0; i < image.rgb.size(); ++i) {
    image.rgb[i] = static_cast<std::uint8_t>(i * i / 5 % 253);
  }
  out.first_frames = {image};
  return out;
}

struct Case {
  const char* model;
  const char* draft;
  std::int64_t frames;
  Continuation continuation = Continuation::kRecompute;
};

class VideoDrafts : public ::testing::TestWithParam<Case> {};

// The draft model is the model itself: nothing it drafts is rejected while it sees what the model
// sees.
TEST_P(VideoDrafts, WriteThePlainVideoInFewerPasses) {
  const Case& one = GetParam();
  OwnVideoTask plain(options_for(one.model, "plain"));
  Frames truth;
  plain.run(plain.prepare(request_for(plain, one.frames, one.continuation)), truth);
  ASSERT_EQ(truth.made.status, ImageStatus::kDone);
  for (const char* method : {"gumbel", "draft-tree"}) {
    GenerateOptions options = options_for(one.model, method, one.draft);
    if (options.method.branches()) options.method.tree = options.method.rule = "gumbel";
    OwnVideoTask drafted(options);
    Frames heard;
    const PreparedVideo video = drafted.prepare(request_for(drafted, one.frames, one.continuation));
    EXPECT_EQ(video.facts.draft_model, one.draft);
    EXPECT_GT(drafted.plan(video).draft, 0u);
    drafted.run(video, heard);
    EXPECT_EQ(heard.bytes, truth.bytes) << method;
    EXPECT_LT(heard.made.facts.passes, truth.made.facts.passes / 2) << method;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, VideoDrafts,
                         ::testing::Values(Case{"test:clip", "test:clip", 30},
                                         Case{"test:clip-rows", "test:clip-rows", 30},
                                         Case{"test:clip", "test:clip", 30, Continuation::kSinks},
                                         Case{"test:cosmos", "test:cosmos", 17}));

// Several at once, unguided ones among them, with slots that change their videos.
TEST(VideoDraft, EachOfManyIsWhatItIsAlone) {
  for (const char* method : {"gumbel", "draft", "draft-tree"}) {
    GenerateOptions options = options_for("test:clip", method, "test:clip");
    OwnVideoTask single(options);
    options.batch_size = 3;
    OwnVideoTask many(options);
    std::vector<Frames> truth(5), heard(5);
    std::vector<VideoOrder> orders;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      VideoRequest one = request_for(single, 10 + 6 * static_cast<std::int64_t>(i % 4));
      one.seed = i;
      if (i % 2 == 1) one.sampling.set(setting::kGuidance, 1);
      if (i == 3) one.continuation = Continuation::kSinks;
      one.prompt += std::string(7 * i, '!');
      single.run(single.prepare(one), truth[i]);
      orders.push_back({many.prepare(one), &heard[i]});
    }
    many.runtime().finish(many.submit(std::move(orders)));
    for (std::size_t i = 0; i < truth.size(); ++i) {
      EXPECT_EQ(heard[i].bytes, truth[i].bytes) << method << ' ' << i;
      EXPECT_EQ(heard[i].made.facts.passes, truth[i].made.facts.passes) << method << ' ' << i;
    }
  }
}

std::string refusal(const GenerateOptions& options) {
  Runtime runtime;
  try {
    VideoTask task(runtime, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.info().code;
  }
  return "";
}

TEST(VideoDraft, WhatDoesNotFitIsRefusedByName) {
  EXPECT_EQ(refusal(options_for("test:clip", "draft", "test:clip-rows")), "E_DRAFT_STREAM");
  EXPECT_EQ(refusal(options_for("test:clip", "draft", "test:tiny")), "E_DRAFT_GRID");
  EXPECT_EQ(refusal(options_for("test:clip", "draft", "test:cosmos")), "E_DRAFT_CODES");
  EXPECT_EQ(refusal(options_for("test:clip", "draft", "test:nbp")), "E_DRAFT_STREAM");
  EXPECT_EQ(refusal(options_for("test:cosmos", "draft", "test:cosmos-text")), "E_DRAFT_STREAM");
  EXPECT_EQ(refusal(options_for("test:clip", "draft")), "E_DECODE_DRAFT");
  EXPECT_EQ(refusal(options_for("test:nbp", "draft", "test:clip")), "E_DECODE_CONFLICT");
  GenerateOptions idle = options_for("test:clip", "frames");
  idle.draft_model = "test:clip";
  EXPECT_EQ(refusal(idle), "E_DECODE_CONFLICT");
}

}  // namespace
}  // namespace tessera::video_draft_test
