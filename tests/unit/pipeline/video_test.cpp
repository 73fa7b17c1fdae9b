// The video pipeline on the seeded clip models: frames depend on the request alone, whatever the
// method; they leave in order, as soon as they stand; a clip goes on from first frames and beyond
// the model's own length.
#include "apps/pipeline/video_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/families/test_models.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

class Frames : public ClipListener {
 public:
  Flow on_progress(const ClipProgress& progress) override {
    ++passes;
    EXPECT_EQ(progress.frames_done, static_cast<std::int64_t>(images.size()));
    if (!images.empty() && first_at == 0) first_at = passes;
    return stop_at > 0 && static_cast<std::int64_t>(images.size()) >= stop_at ? Flow::kStop
                                                                              : Flow::kContinue;
  }
  void on_frame(std::int64_t index, const Image& frame) override {
    EXPECT_EQ(index, static_cast<std::int64_t>(images.size()));
    images.push_back(frame);
  }
  std::vector<std::vector<std::uint8_t>> bytes() const {
    std::vector<std::vector<std::uint8_t>> out;
    for (const Image& image : images) out.push_back(image.rgb);
    return out;
  }

  std::vector<Image> images;
  std::int64_t passes = 0, first_at = 0, stop_at = 0;
};

PipelineOptions options_for(const char* model, const char* method = "plain", int threads = 2) {
  PipelineOptions options;
  options.model = model;
  options.threads = threads;
  options.method = decode_method(method);
  return options;
}

ClipRequest request(std::uint64_t seed = 3) { return {.prompt = "a red cube", .seed = seed}; }

class VideoModels : public testing::TestWithParam<const char*> {};

TEST_P(VideoModels, MethodsAndThreadsGiveOneClip) {
  VideoPipeline plain(options_for(GetParam()));
  EXPECT_EQ(plain.own_frames(), 16);
  EXPECT_EQ(plain.most_first_frames(), 12);
  Frames truth;
  const GeneratedClip made = plain.run(plain.prepare(request()), truth);
  EXPECT_EQ(made.status, PictureStatus::kDone);
  EXPECT_EQ(made.frames, 16);
  EXPECT_EQ(made.windows, 1);
  ASSERT_EQ(truth.images.size(), 16u);
  EXPECT_EQ(truth.images[0].width, 24);
  EXPECT_EQ(truth.images[0].height, 16);
  EXPECT_NE(truth.bytes()[0], truth.bytes()[15]);
  for (const char* method : {"frames", "gumbel", "auto", "gumbel-tree"}) {
    VideoPipeline other(options_for(GetParam(), method, 1));
    Frames frames;
    const GeneratedClip same = other.run(other.prepare(request()), frames);
    EXPECT_EQ(frames.bytes(), truth.bytes()) << method;
    EXPECT_LE(same.facts.passes, made.facts.passes) << method;
  }
  Frames another;
  plain.run(plain.prepare(request(4)), another);
  EXPECT_NE(another.bytes(), truth.bytes());
}

INSTANTIATE_TEST_SUITE_P(All, VideoModels, testing::Values("test:clip", "test:clip-rows"),
                         [](const auto& one) {
                           return std::string(one.param) == "test:clip" ? "Plain" : "Rows";
                         });

TEST(VideoPipeline, FramesLeaveAsSoonAsTheirGridStands) {
  VideoPipeline pipeline(options_for("test:clip"));
  Frames frames;
  pipeline.run(pipeline.prepare(request()), frames);
  EXPECT_EQ(frames.first_at, 24);  // plain: a code a pass, 4x6 codes a grid
  EXPECT_EQ(frames.passes, 4 * 24);
}

TEST(VideoPipeline, FewerFramesAreTheFirstOnes) {
  VideoPipeline pipeline(options_for("test:clip", "frames"));
  Frames whole, some;
  pipeline.run(pipeline.prepare(request()), whole);
  ClipRequest shorter = request();
  shorter.frames = 6;
  const GeneratedClip made = pipeline.run(pipeline.prepare(shorter), some);
  EXPECT_EQ(made.status, PictureStatus::kDone);
  ASSERT_EQ(some.images.size(), 6u);
  const auto all = whole.bytes(), first = some.bytes();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  EXPECT_LT(some.passes, whole.passes);
}

TEST(VideoPipeline, LongerClipsGoOnInWindows) {
  VideoPipeline plain(options_for("test:clip")), guessed(options_for("test:clip", "frames"));
  Frames whole, longer, same;
  plain.run(plain.prepare(request()), whole);
  ClipRequest long_request = request();
  long_request.frames = 30;
  const GeneratedClip made = plain.run(plain.prepare(long_request), longer);
  EXPECT_EQ(made.frames, 30);
  EXPECT_EQ(made.windows, 3);  // 16, then 8 more each
  EXPECT_EQ(made.facts.tokens, 4 * 24 + 4 * 24);
  const auto all = longer.bytes(), first = whole.bytes();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  EXPECT_NE(all[16], all[24]) << "windows have noise of their own";
  guessed.run(guessed.prepare(long_request), same);
  EXPECT_EQ(same.bytes(), all);
}

TEST(VideoPipeline, StopKeepsWholeGrids) {
  VideoPipeline pipeline(options_for("test:clip"));
  Frames whole, some;
  pipeline.run(pipeline.prepare(request()), whole);
  ClipRequest endless = request();
  endless.endless = true;
  some.stop_at = 40;
  const GeneratedClip made = pipeline.run(pipeline.prepare(endless), some);
  EXPECT_EQ(made.status, PictureStatus::kStopped);
  EXPECT_EQ(made.frames, 40);
  EXPECT_EQ(made.frames % 4, 0);
  EXPECT_TRUE(std::equal(whole.images.begin(), whole.images.end(), some.images.begin(),
                         [](const Image& a, const Image& b) { return a.rgb == b.rgb; }));
}

std::vector<Image> drawn(std::size_t count, int shift = 0) {
  std::vector<Image> out;
  for (std::size_t i = 0; i < count; ++i) {
    Image image(24, 16);
    for (std::size_t at = 0; at < image.rgb.size(); ++at) {
      image.rgb[at] =
          static_cast<std::uint8_t>((at * 7 + i * 31 + static_cast<std::size_t>(shift)) % 251);
    }
    out.push_back(std::move(image));
  }
  return out;
}

TEST(VideoPipeline, FirstFramesBeginTheClipAndAreRead) {
  VideoPipeline pipeline(options_for("test:clip")), guessed(options_for("test:clip", "frames"));
  const auto paint = [](VideoPipeline& with, std::vector<Image> first,
                        GeneratedClip* out = nullptr) {
    ClipRequest wanted = request();
    wanted.first_frames = std::move(first);
    Frames frames;
    const GeneratedClip made = with.run(with.prepare(std::move(wanted)), frames);
    EXPECT_EQ(made.frames, 16);
    if (out != nullptr) *out = made;
    return frames.bytes();
  };
  GeneratedClip made;
  const auto clip = paint(pipeline, drawn(8), &made);
  EXPECT_EQ(made.first_frames, 8);
  EXPECT_EQ(made.facts.tokens, 2 * 24);
  const auto other = paint(pipeline, drawn(8, 90));
  EXPECT_NE(std::vector(clip.begin() + 8, clip.end()), std::vector(other.begin() + 8, other.end()));
  EXPECT_EQ(paint(guessed, drawn(8)), clip);
  // Whole grids of the last frames: of 11 the last 8.
  std::vector<Image> eleven = drawn(3, 50);
  for (Image& frame : drawn(8)) eleven.push_back(std::move(frame));
  EXPECT_EQ(paint(pipeline, eleven), clip);
  // One picture stands for four frames of it.
  EXPECT_EQ(paint(pipeline, drawn(1)), paint(pipeline, std::vector<Image>(4, drawn(1)[0])));
}

// Codes of a clip as they come to stand; stops behind a number of grids.
class Grids : public ClipListener {
 public:
  Flow on_grid(const ClipGrid& grid) override {
    EXPECT_EQ(grid.index, first + static_cast<std::int64_t>(passes.size()));
    EXPECT_EQ(grid.codes.size(), 24u);
    codes.insert(codes.end(), grid.codes.begin(), grid.codes.end());
    passes.push_back(grid.passes);
    return grid.index + 1 == stop_behind ? Flow::kStop : Flow::kContinue;
  }
  void on_frame(std::int64_t, const Image&) override { ++frames; }

  std::int64_t first = 0, stop_behind = 0, frames = 0;
  std::vector<std::int32_t> codes;
  std::vector<std::int64_t> passes;
};

// A clip of three windows and a part of a grid, stopped behind each grid and gone on with from its
// codes: what it becomes is what it would have become.
TEST(VideoPipeline, GoingOnFromAnyGridWritesTheSameClip) {
  for (const char* model : {"test:clip", "test:clip-rows"}) {
    for (const char* method : {"plain", "frames", "gumbel", "auto", "gumbel-tree"}) {
      SCOPED_TRACE(std::string(model) + " " + method);
      VideoPipeline pipeline(options_for(model, method, 1));
      for (const std::size_t first_frames : {0u, 8u}) {
        ClipRequest wanted = request();
        wanted.frames = 30;
        wanted.first_frames = drawn(first_frames);
        const PreparedClip clip = pipeline.prepare(wanted);
        ASSERT_EQ(pipeline.grids_of(clip), 8);
        EXPECT_EQ(pipeline.given_grids(clip), static_cast<std::int64_t>(first_frames) / 4);
        Grids truth;
        const GeneratedClip made = pipeline.run(clip, truth, {.frames = false});
        ASSERT_EQ(truth.codes.size(), 8 * pipeline.grid_codes());
        EXPECT_EQ(truth.frames, 0);
        EXPECT_EQ(made.frames, 30);
        EXPECT_EQ(made.windows, 3);
        for (std::int64_t grids = pipeline.given_grids(clip) + 1; grids < 8; ++grids) {
          SCOPED_TRACE(grids);
          ASSERT_TRUE(pipeline.can_go_on_at(grids));
          Grids before, behind;
          before.stop_behind = grids;
          const GeneratedClip stopped = pipeline.run(clip, before, {.frames = false});
          EXPECT_EQ(stopped.status, PictureStatus::kStopped);
          EXPECT_EQ(before.codes.size(), static_cast<std::size_t>(grids) * 24);
          behind.first = grids;
          const GeneratedClip rest =
              pipeline.run(clip, behind, {.standing = before.codes, .frames = false});
          EXPECT_EQ(rest.status, PictureStatus::kDone);
          EXPECT_EQ(rest.frames, 30);
          before.codes.insert(before.codes.end(), behind.codes.begin(), behind.codes.end());
          ASSERT_EQ(before.codes, truth.codes);
          // Each window may end with tokens of its own.
          EXPECT_LE(behind.passes.back(), pipeline.tokens_of(8 - grids) + 2 * rest.windows)
              << "only the rest is written";
        }
      }
    }
  }
}

TEST(VideoPipeline, CodesShowTheFramesThatWereHandedOut) {
  VideoPipeline pipeline(options_for("test:clip"));
  ClipRequest wanted = request();
  wanted.frames = 22;
  wanted.first_frames = drawn(4);
  const PreparedClip clip = pipeline.prepare(wanted);
  Frames truth, shown, gone_on;
  Grids grids;
  pipeline.run(clip, truth);
  pipeline.run(clip, grids, {.frames = false});
  ASSERT_EQ(truth.images.size(), 22u);
  VideoPipeline other(options_for("test:clip"));  // which never wrote a token
  other.show(clip, grids.codes, shown);
  EXPECT_EQ(shown.bytes(), truth.bytes());
  const std::vector<std::int32_t> some(grids.codes.begin(), grids.codes.begin() + 3 * 24);
  pipeline.run(clip, gone_on, {.standing = some, .frames = true});
  EXPECT_EQ(gone_on.bytes(), truth.bytes());
}

// Where draws depend on what was guessed before them, only the end of a window is such a place.
TEST(VideoPipeline, OtherMethodsGoOnBetweenWindows) {
  VideoPipeline pipeline(options_for("test:clip", "frames-coupled", 1));
  ClipRequest wanted = request();
  wanted.frames = 32;
  const PreparedClip clip = pipeline.prepare(wanted);
  Grids truth;
  pipeline.run(clip, truth, {.frames = false});
  std::vector<std::int64_t> places;
  for (std::int64_t grids = 1; grids < 8; ++grids) {
    if (!pipeline.can_go_on_at(grids)) continue;
    places.push_back(grids);
    Grids behind;
    behind.first = grids;
    std::vector<std::int32_t> codes(truth.codes.begin(), truth.codes.begin() + grids * 24);
    pipeline.run(clip, behind, {.standing = codes, .frames = false});
    codes.insert(codes.end(), behind.codes.begin(), behind.codes.end());
    EXPECT_EQ(codes, truth.codes) << grids;
  }
  EXPECT_EQ(places, (std::vector<std::int64_t>{4, 6}));
}

void expect_refused(const PipelineOptions& options, ClipRequest wanted, const char* code) {
  try {
    VideoPipeline pipeline(options);
    pipeline.prepare(std::move(wanted));
    ADD_FAILURE() << "not refused with " << code;
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, code);
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST(VideoPipeline, RefusesWhatItCannotDo) {
  expect_refused(options_for("test:tiny"), request(), "E_MODEL_PICTURES");
  expect_refused(options_for("test:clip", "rows"), request(), "E_DECODE_CONFLICT");
  expect_refused(options_for("test:clip", "draft"), request(), "E_DECODE_DRAFT");
  ClipRequest small = request();
  small.first_frames = {Image(8, 8)};
  expect_refused(options_for("test:clip"), small, "E_VIDEO_FIRST");
  ClipRequest none = request();
  none.first_frames = drawn(8);
  none.frames = 8;
  expect_refused(options_for("test:clip"), none, "E_VIDEO_FRAMES");
  ClipRequest empty = request();
  empty.prompt.clear();
  expect_refused(options_for("test:clip"), empty, "E_PROMPT_EMPTY");
  PipelineOptions sized = options_for("test:clip");
  sized.width = 32;
  expect_refused(sized, request(), "E_GEOMETRY");
}

// config.json, model.safetensors and tokenizer.json are all that a model of clips needs.
TEST(VideoPipeline, AFolderOfThreeFilesIsAModel) {
  const TempFolder folder;
  const OpenedModel made_up = open_model("test:clip");
  std::map<std::string, ConstTensorView> tensors;
  for (const auto& [name, view] : made_up.weights->tensors()) tensors.emplace(name, view);
  write_safetensors(folder / "model.safetensors", tensors);
  put_file(folder / "config.json", test_model_config("clip"));
  put_file(folder / "tokenizer.json", test_clip_tokenizer_json());
  const auto frames_of = [&](const std::string& model) {
    VideoPipeline pipeline(options_for(model.c_str()));
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
    FAIL() << "a model without tokenizer.json painted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_TOKENIZER_TIKTOKEN");
  }
}

TEST(VideoPipeline, PicturesAreNoBusinessOfAClipModel) {
  GeneratePipeline pipeline(options_for("test:clip"));
  try {
    pipeline.prepare({"a red cube", std::nullopt, {}, 1});
    FAIL() << "a clip model painted a picture";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_MODEL_CLIPS");
  }
}

TEST(VideoPipeline, ThePlanCoversWhatIsHeld) {
  VideoPipeline pipeline(options_for("test:clip"));
  const MemoryPlan plain = pipeline.memory_plan(pipeline.prepare(request()));
  EXPECT_GT(plain.kv, 0u);
  ClipRequest given = request();
  given.first_frames = drawn(4);
  EXPECT_GT(pipeline.memory_plan(pipeline.prepare(given)).vq_weights, plain.vq_weights);
}

}  // namespace
}  // namespace tessera
