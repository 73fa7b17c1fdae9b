// The video pipeline on the seeded clip models: frames depend on the request alone, whatever the
// method; they leave in order, as soon as they stand; a clip goes on from first frames and beyond
// the model's own length.
#include "apps/pipeline/video_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/families/test_models.h"
#include "tests/support/clip_model.h"
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

// --- windows that slide -------------------------------------------------------------------------

ClipRequest sliding(std::int64_t frames, Continuation how = Continuation::kSinks) {
  ClipRequest out = request();
  out.frames = frames;
  out.continuation = how;
  return out;
}

TEST(SlidingClips, EveryMethodThatKeepsThePlainClipKeepsItThere) {
  for (const char* model : {"test:clip", "test:clip-rows"}) {
    VideoPipeline plain(options_for(model));
    Frames truth;
    const GeneratedClip made = plain.run(plain.prepare(sliding(38)), truth);
    EXPECT_EQ(made.frames, 38);
    EXPECT_EQ(made.windows, 4);
    for (const char* method : {"frames", "gumbel", "auto", "gumbel-tree"}) {
      VideoPipeline other(options_for(model, method, 1));
      Frames frames;
      other.run(other.prepare(sliding(38)), frames);
      EXPECT_EQ(frames.bytes(), truth.bytes()) << model << ' ' << method;
    }
  }
}

// The first window is the same; from there on another clip, with one row a branch and window in the
// place of prompt and kept grids.
TEST(SlidingClips, DifferFromRecomputedOnesAndPrefillNothing) {
  VideoPipeline pipeline(options_for("test:clip"));
  Frames slid, anew;
  const GeneratedClip made = pipeline.run(pipeline.prepare(sliding(40)), slid);
  const GeneratedClip other =
      pipeline.run(pipeline.prepare(sliding(40, Continuation::kRecompute)), anew);
  const auto a = slid.bytes(), b = anew.bytes();
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 16, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 16, a.end(), b.begin() + 16));
  const PreparedClip prepared = pipeline.prepare(sliding(40));
  const auto prompts =
      static_cast<std::int64_t>(prepared.item.prompt.size() + prepared.item.unconditional.size());
  EXPECT_EQ(made.windows, 4);
  EXPECT_EQ(other.windows, 4);
  EXPECT_EQ(made.facts.passes, other.facts.passes);
  EXPECT_EQ(made.prefilled, prompts + 3 * 2);
  EXPECT_EQ(other.prefilled, 4 * prompts + 3 * 2 * 2 * 24);
  EXPECT_EQ(pipeline.memory_plan(prepared).kv,
            pipeline.memory_plan(pipeline.prepare(sliding(16))).kv);
}

// One layer's keys and values know their own token alone: there both continuations are one.
TEST(SlidingClips, OfOneLayerAreTheRecomputedOnes) {
  const auto paint = [](Continuation how) {
    VideoPipeline pipeline(options_for("one layer"), clip_model(1), "one layer");
    ClipRequest wanted = sliding(48, how);
    wanted.sampling.temperature = 0.0;
    Frames frames;
    EXPECT_EQ(pipeline.run(pipeline.prepare(wanted), frames).windows, 5);
    return frames.bytes();
  };
  EXPECT_EQ(paint(Continuation::kSinks), paint(Continuation::kRecompute));
}

TEST(SlidingClips, GoOnFromFirstFramesWithoutEndAndStop) {
  VideoPipeline pipeline(options_for("test:clip", "frames"));
  ClipRequest endless = sliding(0);
  endless.endless = true;
  Frames some, again;
  some.stop_at = 100;
  const GeneratedClip made = pipeline.run(pipeline.prepare(endless), some);
  EXPECT_EQ(made.status, PictureStatus::kStopped);
  EXPECT_EQ(made.frames, 100);
  EXPECT_EQ(made.windows, 12);
  ClipRequest from = sliding(32);
  from.first_frames.assign(some.images.begin(), some.images.begin() + 8);
  EXPECT_EQ(pipeline.run(pipeline.prepare(from), again).frames, 32);
  EXPECT_NE(again.bytes()[31], again.bytes()[23]);
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

// --- models that write blocks -------------------------------------------------------------------

TEST(BlockClips, AreWrittenABlockAPass) {
  VideoPipeline pipeline(options_for("test:nbp")), other(options_for("test:nbp", "plain", 1));
  Frames frames, same, longer;
  const GeneratedClip made = pipeline.run(pipeline.prepare(request()), frames);
  EXPECT_EQ(made.status, PictureStatus::kDone);
  EXPECT_EQ(made.frames, 16);
  EXPECT_EQ(made.facts.tokens, 4 * 24);
  // A block is a row of six codes; the first one comes code by code.
  EXPECT_EQ(made.facts.passes, 6 + (4 * 24 - 6) / 6);
  EXPECT_EQ(frames.first_at, 6 + (24 - 6) / 6);
  other.run(other.prepare(request()), same);
  EXPECT_EQ(same.bytes(), frames.bytes());
  ClipRequest more = request();
  more.frames = 24;
  const GeneratedClip on = pipeline.run(pipeline.prepare(more), longer);
  EXPECT_EQ(on.windows, 2);
  EXPECT_EQ(on.facts.passes, made.facts.passes + 2 * 24 / 6);
  const auto all = longer.bytes(), first = frames.bytes();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
}

TEST(BlockClips, GoOnFromFirstFramesWithoutAPrompt) {
  VideoPipeline pipeline(options_for("test:nbp-frames"));
  EXPECT_FALSE(pipeline.takes_prompts());
  const auto paint = [&](int shift) {
    ClipRequest wanted{.prompt = "", .seed = 5, .first_frames = drawn(8, shift)};
    Frames frames;
    const GeneratedClip made = pipeline.run(pipeline.prepare(wanted), frames);
    EXPECT_EQ(made.frames, 16);
    EXPECT_EQ(made.facts.passes, 2 * 24 / 6);
    return frames.bytes();
  };
  const auto clip = paint(0);
  EXPECT_EQ(paint(0), clip);
  const auto other = paint(90);
  EXPECT_NE(std::vector(clip.begin() + 8, clip.end()), std::vector(other.begin() + 8, other.end()));
}

TEST(BlockClips, RefuseWhatBlocksDoNot) {
  expect_refused(options_for("test:nbp", "frames"), request(), "E_DECODE_CONFLICT");
  expect_refused(options_for("test:nbp"), sliding(40), "E_VIDEO_CONTINUE");
  ClipRequest guided = request();
  guided.sampling.guidance = 3.0;
  expect_refused(options_for("test:nbp"), guided, "E_GUIDANCE");
  expect_refused(options_for("test:nbp-frames"), request(), "E_VIDEO_FIRST");
  ClipRequest text = request();
  text.first_frames = drawn(4);
  expect_refused(options_for("test:nbp-frames"), text, "E_PROMPT_TEXT");
}

// The published models' own clip tokenizer is not read.
TEST(BlockClips, WithoutAClipTokenizerAreRefused) {
  OpenedModel model = open_model("test:nbp");
  model.spec.movq.reset();
  try {
    VideoPipeline pipeline(options_for("nbp"), std::move(model), "nbp");
    FAIL() << "clips without pixels";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_NBP_TOKENIZER");
    EXPECT_EQ(error.exit_code(), 4);
  }
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
