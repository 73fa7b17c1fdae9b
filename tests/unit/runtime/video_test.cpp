// The video task on the seeded video models: frames depend on the request alone, whatever the
// method; they leave in order, as soon as they stand; a video goes on from first frames and beyond
// the model's own length.

#include "apps/runtime/generate_task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "apps/lab/models/test_models.h"
#include "tests/support/video_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/video_listeners.h"

namespace tessera::video_test {
namespace {

class VideoModels : public ::testing::TestWithParam<const char*> {};

TEST_P(VideoModels, MethodsAndThreadsGiveOneVideo) {
  OwnVideoTask plain(options_for(GetParam()));
  EXPECT_EQ(plain.own_frames(), 16);
  EXPECT_EQ(plain.max_first_frames(), 12);
  Frames truth;
  const GeneratedVideo made = plain.run(plain.prepare(request()), truth);
  EXPECT_EQ(made.status, ImageStatus::kDone);
  EXPECT_EQ(made.frames, 16);
  EXPECT_EQ(made.windows, 1);
  ASSERT_EQ(truth.images.size(), 16u);
  EXPECT_EQ(truth.images[0].width, 24);
  EXPECT_EQ(truth.images[0].height, 16);
  EXPECT_NE(truth.bytes()[0], truth.bytes()[15]);
  for (const char* method : {"frames", "gumbel", "auto", "gumbel-tree"}) {
    OwnVideoTask other(options_for(GetParam(), method, 1));
    Frames frames;
    const GeneratedVideo same = other.run(other.prepare(request()), frames);
    EXPECT_EQ(frames.bytes(), truth.bytes()) << method;
    EXPECT_LE(same.facts.passes, made.facts.passes) << method;
  }
  Frames another;
  plain.run(plain.prepare(request(4)), another);
  EXPECT_NE(another.bytes(), truth.bytes());
}

INSTANTIATE_TEST_SUITE_P(All, VideoModels, ::testing::Values("test:clip", "test:clip-rows"),
                         [](const auto& one) {
                           return std::string(one.param) == "test:clip" ? "Plain" : "Rows";
                         });

TEST(VideoTask, FramesLeaveAsSoonAsTheirGridStands) {
  OwnVideoTask pipeline(options_for("test:clip"));
  Frames frames;
  pipeline.run(pipeline.prepare(request()), frames);
  EXPECT_EQ(frames.first_at, 24);  // plain: a code a pass, 4x6 codes a grid
  EXPECT_EQ(frames.passes, 4 * 24);
}

TEST(VideoTask, FewerFramesAreTheFirstOnes) {
  OwnVideoTask pipeline(options_for("test:clip", "frames"));
  Frames whole, some;
  pipeline.run(pipeline.prepare(request()), whole);
  VideoRequest shorter = request();
  shorter.frames = 6;
  const GeneratedVideo made = pipeline.run(pipeline.prepare(shorter), some);
  EXPECT_EQ(made.status, ImageStatus::kDone);
  ASSERT_EQ(some.images.size(), 6u);
  const auto all = whole.bytes(), first = some.bytes();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  EXPECT_LT(some.passes, whole.passes);
}

TEST(VideoTask, LongerVideosGoOnInWindows) {
  OwnVideoTask plain(options_for("test:clip")), drafted(options_for("test:clip", "frames"));
  Frames whole, longer, same;
  plain.run(plain.prepare(request()), whole);
  VideoRequest long_request = request();
  long_request.frames = 30;
  const GeneratedVideo made = plain.run(plain.prepare(long_request), longer);
  EXPECT_EQ(made.frames, 30);
  EXPECT_EQ(made.windows, 3);  // 16, then 8 more each
  EXPECT_EQ(made.facts.tokens, 4 * 24 + 4 * 24);
  const auto all = longer.bytes(), first = whole.bytes();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  EXPECT_NE(all[16], all[24]) << "windows have noise of their own";
  drafted.run(drafted.prepare(long_request), same);
  EXPECT_EQ(same.bytes(), all);
}

// --- windows that slide -------------------------------------------------------------------------

TEST(SlidingVideos, EveryMethodThatKeepsThePlainVideoKeepsItThere) {
  for (const char* model : {"test:clip", "test:clip-rows"}) {
    OwnVideoTask plain(options_for(model));
    Frames truth;
    const GeneratedVideo made = plain.run(plain.prepare(sliding(38)), truth);
    EXPECT_EQ(made.frames, 38);
    EXPECT_EQ(made.windows, 4);
    for (const char* method : {"frames", "gumbel", "auto", "gumbel-tree"}) {
      OwnVideoTask other(options_for(model, method, 1));
      Frames frames;
      other.run(other.prepare(sliding(38)), frames);
      EXPECT_EQ(frames.bytes(), truth.bytes()) << model << ' ' << method;
    }
  }
}

// The first window is the same; from there on another video, with one row a branch and window in the
// place of prompt and kept grids.
TEST(SlidingVideos, DifferFromRecomputedOnesAndPrefillNothing) {
  OwnVideoTask pipeline(options_for("test:clip"));
  Frames slid, anew;
  const GeneratedVideo made = pipeline.run(pipeline.prepare(sliding(40)), slid);
  const GeneratedVideo other =
      pipeline.run(pipeline.prepare(sliding(40, Continuation::kRecompute)), anew);
  const auto a = slid.bytes(), b = anew.bytes();
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 16, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 16, a.end(), b.begin() + 16));
  const PreparedVideo prepared = pipeline.prepare(sliding(40));
  const auto prompts = static_cast<std::int64_t>(prepared.item.prompt.length() +
                                                 prepared.item.unconditional.length());
  EXPECT_EQ(made.windows, 4);
  EXPECT_EQ(other.windows, 4);
  EXPECT_EQ(made.facts.passes, other.facts.passes);
  EXPECT_EQ(made.prefilled, prompts + 3 * 2);
  EXPECT_EQ(other.prefilled, 4 * prompts + 3 * 2 * 2 * 24);
  EXPECT_EQ(pipeline.plan(prepared).kv, pipeline.plan(pipeline.prepare(sliding(16))).kv);
}

// One layer's keys and values know their own token alone: there both continuations are one.
TEST(SlidingVideos, OfOneLayerAreTheRecomputedOnes) {
  const auto generate = [](Continuation how) {
    OwnVideoTask pipeline(options_for("one layer"), video_model(1), "one layer");
    VideoRequest wanted = sliding(48, how);
    wanted.sampling.set(setting::kTemperature, 0);
    Frames frames;
    EXPECT_EQ(pipeline.run(pipeline.prepare(wanted), frames).windows, 5);
    return frames.bytes();
  };
  EXPECT_EQ(generate(Continuation::kSinks), generate(Continuation::kRecompute));
}

TEST(SlidingVideos, GoOnFromFirstFramesWithoutEndAndStop) {
  OwnVideoTask pipeline(options_for("test:clip", "frames"));
  VideoRequest endless = sliding(0);
  endless.endless = true;
  Frames some, again;
  some.stop_at = 100;
  const GeneratedVideo made = pipeline.run(pipeline.prepare(endless), some);
  EXPECT_EQ(made.status, ImageStatus::kStopped);
  EXPECT_EQ(made.frames, 100);
  EXPECT_EQ(made.windows, 12);
  VideoRequest from = sliding(32);
  from.first_frames.assign(some.images.begin(), some.images.begin() + 8);
  EXPECT_EQ(pipeline.run(pipeline.prepare(from), again).frames, 32);
  EXPECT_NE(again.bytes()[31], again.bytes()[23]);
}

TEST(VideoTask, StopKeepsWholeGrids) {
  OwnVideoTask pipeline(options_for("test:clip"));
  Frames whole, some;
  pipeline.run(pipeline.prepare(request()), whole);
  VideoRequest endless = request();
  endless.endless = true;
  some.stop_at = 40;
  const GeneratedVideo made = pipeline.run(pipeline.prepare(endless), some);
  EXPECT_EQ(made.status, ImageStatus::kStopped);
  EXPECT_EQ(made.frames, 40);
  EXPECT_EQ(made.frames % 4, 0);
  EXPECT_TRUE(std::equal(whole.images.begin(), whole.images.end(), some.images.begin(),
                         [](const Image& a, const Image& b) { return a.rgb == b.rgb; }));
}

TEST(VideoTask, FirstFramesBeginTheVideoAndAreRead) {
  OwnVideoTask pipeline(options_for("test:clip")), drafted(options_for("test:clip", "frames"));
  const auto generate = [](OwnVideoTask& with, std::vector<Image> first,
                        GeneratedVideo* out = nullptr) {
    VideoRequest wanted = request();
    wanted.first_frames = std::move(first);
    Frames frames;
    const GeneratedVideo made = with.run(with.prepare(std::move(wanted)), frames);
    EXPECT_EQ(made.frames, 16);
    if (out != nullptr) *out = made;
    return frames.bytes();
  };
  GeneratedVideo made;
  const auto video = generate(pipeline, drawn(8), &made);
  EXPECT_EQ(made.first_frames, 8);
  EXPECT_EQ(made.facts.tokens, 2 * 24);
  const auto other = generate(pipeline, drawn(8, 90));
  EXPECT_NE(std::vector(video.begin() + 8, video.end()), std::vector(other.begin() + 8, other.end()));
  EXPECT_EQ(generate(drafted, drawn(8)), video);
  // Whole grids of the last frames: of 11 the last 8.
  std::vector<Image> eleven = drawn(3, 50);
  for (Image& frame : drawn(8)) eleven.push_back(std::move(frame));
  EXPECT_EQ(generate(pipeline, eleven), video);
  // One image stands for four frames of it.
  EXPECT_EQ(generate(pipeline, drawn(1)), generate(pipeline, std::vector<Image>(4, drawn(1)[0])));
}

// A video of three windows and a part of a grid, stopped after each grid and gone on with from its
// codes: what it becomes is what it would have become.
TEST(VideoTask, GoingOnFromAnyGridWritesTheSameVideo) {
  for (const char* model : {"test:clip", "test:clip-rows"}) {
    for (const char* method : {"plain", "frames", "gumbel", "auto", "gumbel-tree"}) {
      SCOPED_TRACE(std::string(model) + " " + method);
      OwnVideoTask pipeline(options_for(model, method, 1));
      for (const std::size_t first_frames : {0u, 8u}) {
        VideoRequest wanted = request();
        wanted.frames = 30;
        wanted.first_frames = drawn(first_frames);
        const PreparedVideo video = pipeline.prepare(wanted);
        ASSERT_EQ(pipeline.grids_of(video), 8);
        EXPECT_EQ(pipeline.given_grids(video), static_cast<std::int64_t>(first_frames) / 4);
        Grids truth;
        const GeneratedVideo made = pipeline.run(video, truth, {.frames = false});
        ASSERT_EQ(truth.codes.size(), 8 * pipeline.grid_codes());
        EXPECT_EQ(truth.frames, 0);
        EXPECT_EQ(made.frames, 30);
        EXPECT_EQ(made.windows, 3);
        for (std::int64_t grids = pipeline.given_grids(video) + 1; grids < 8; ++grids) {
          SCOPED_TRACE(grids);
          ASSERT_TRUE(pipeline.can_go_on_at(video, grids));
          Grids before, after;
          before.stop_after = grids;
          const GeneratedVideo stopped = pipeline.run(video, before, {.frames = false});
          EXPECT_EQ(stopped.status, ImageStatus::kStopped);
          EXPECT_EQ(before.codes.size(), static_cast<std::size_t>(grids) * 24);
          after.first = grids;
          const GeneratedVideo rest =
              pipeline.run(video, after, {.committed = before.codes, .frames = false});
          EXPECT_EQ(rest.status, ImageStatus::kDone);
          EXPECT_EQ(rest.frames, 30);
          before.codes.insert(before.codes.end(), after.codes.begin(), after.codes.end());
          ASSERT_EQ(before.codes, truth.codes);
          // Each window may end with tokens of its own.
          EXPECT_LE(after.passes.back(), pipeline.tokens_of(8 - grids) + 2 * rest.windows)
              << "only the rest is written";
        }
      }
    }
  }
}

TEST(VideoTask, CodesShowTheFramesThatWereHandedOut) {
  OwnVideoTask pipeline(options_for("test:clip"));
  VideoRequest wanted = request();
  wanted.frames = 22;
  wanted.first_frames = drawn(4);
  const PreparedVideo video = pipeline.prepare(wanted);
  Frames truth, shown, gone_on;
  Grids grids;
  pipeline.run(video, truth);
  pipeline.run(video, grids, {.frames = false});
  ASSERT_EQ(truth.images.size(), 22u);
  OwnVideoTask other(options_for("test:clip"));  // which never wrote a token
  other.show(video, grids.codes, shown);
  EXPECT_EQ(shown.bytes(), truth.bytes());
  const std::vector<std::int32_t> some(grids.codes.begin(), grids.codes.begin() + 3 * 24);
  pipeline.run(video, gone_on, {.committed = some, .frames = true});
  EXPECT_EQ(gone_on.bytes(), truth.bytes());
}

// Where draws depend on what was drafted before them, only the end of a window is such a place.
TEST(VideoTask, OtherMethodsGoOnBetweenWindows) {
  OwnVideoTask pipeline(options_for("test:clip", "frames-coupled", 1));
  VideoRequest wanted = request();
  wanted.frames = 32;
  const PreparedVideo video = pipeline.prepare(wanted);
  Grids truth;
  pipeline.run(video, truth, {.frames = false});
  std::vector<std::int64_t> places;
  for (std::int64_t grids = 1; grids < 8; ++grids) {
    if (!pipeline.can_go_on_at(video, grids)) continue;
    places.push_back(grids);
    Grids after;
    after.first = grids;
    std::vector<std::int32_t> codes(truth.codes.begin(), truth.codes.begin() + grids * 24);
    pipeline.run(video, after, {.committed = codes, .frames = false});
    codes.insert(codes.end(), after.codes.begin(), after.codes.end());
    EXPECT_EQ(codes, truth.codes) << grids;
  }
  EXPECT_EQ(places, (std::vector<std::int64_t>{4, 6}));
}

// What a window keeps of grids that went is in no codes.
TEST(VideoTask, SlidingVideosAreNotGoneOnWith) {
  const OwnVideoTask pipeline(options_for("test:clip"));
  const PreparedVideo slides = pipeline.prepare(sliding(32));
  const PreparedVideo anew = pipeline.prepare(sliding(32, Continuation::kRecompute));
  for (std::int64_t grids = 1; grids < 8; ++grids) {
    EXPECT_FALSE(pipeline.can_go_on_at(slides, grids)) << grids;
    EXPECT_TRUE(pipeline.can_go_on_at(anew, grids)) << grids;
  }
}

TEST(VideoTask, RefusesWhatItCannotDo) {
  expect_refused(options_for("test:tiny"), request(), "E_MODEL_PICTURES");
  expect_refused(options_for("test:clip", "rows"), request(), "E_DECODE_CONFLICT");
  expect_refused(options_for("test:clip", "draft"), request(), "E_DECODE_DRAFT");
  VideoRequest small = request();
  small.first_frames = {Image(8, 8)};
  expect_refused(options_for("test:clip"), small, "E_VIDEO_FIRST");
  VideoRequest none = request();
  none.first_frames = drawn(8);
  none.frames = 8;
  expect_refused(options_for("test:clip"), none, "E_VIDEO_FRAMES");
  VideoRequest empty = request();
  empty.prompt.clear();
  expect_refused(options_for("test:clip"), empty, "E_PROMPT_EMPTY");
  GenerateOptions sized = options_for("test:clip");
  sized.width = 32;
  expect_refused(sized, request(), "E_GEOMETRY");
}

// config.json, model.safetensors and tokenizer.json are all that a model of videos needs.
TEST(VideoTask, AFolderOfThreeFilesIsAModel) {
  const TempFolder folder;
  const OpenedModel made_up = open_model("test:clip");
  std::map<std::string, ConstTensorView> tensors;
  for (const auto& [name, view] : made_up.weights->tensors()) tensors.emplace(name, view);
  write_safetensors(folder / "model.safetensors", tensors);
  put_file(folder / "config.json", test_model_config("clip"));
  put_file(folder / "tokenizer.json", test_clip_tokenizer_json());
  const auto frames_of = [&](const std::string& model) {
    OwnVideoTask pipeline(options_for(model.c_str()));
    Frames frames;
    pipeline.run(pipeline.prepare(request()), frames);
    return frames.bytes();
  };
  const auto plain = frames_of("test:clip");
  EXPECT_EQ(frames_of(folder.path().string()), plain);
  put_file(folder / "generation_config.json", R"({"negative_prompt": "fog"})");
  EXPECT_NE(frames_of(folder.path().string()), plain);
  std::filesystem::remove(folder / "tokenizer.json");
  put_file(folder / "emu3.tiktoken", "x");
  try {
    frames_of(folder.path().string());
    FAIL() << "a model without tokenizer.json generated";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_TOKENIZER_TIKTOKEN");
  }
}

TEST(VideoTask, ImagesAreNoBusinessOfAVideoModel) {
  Runtime runtime;
  GenerateTask task(runtime, options_for("test:clip"));
  try {
    task.prepare({"a red cube", std::nullopt, {}, 1});
    FAIL() << "a video model generated an image";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_MODEL_CLIPS");
  }
}

TEST(VideoTask, ThePlanCoversWhatIsHeld) {
  OwnVideoTask pipeline(options_for("test:clip"));
  const MemoryPlan plain = pipeline.plan(pipeline.prepare(request()));
  EXPECT_GT(plain.kv, 0u);
  VideoRequest given = request();
  given.first_frames = drawn(4);
  EXPECT_GT(pipeline.plan(pipeline.prepare(given)).vq_weights, plain.vq_weights);
}

}  // namespace
}  // namespace tessera::video_test
