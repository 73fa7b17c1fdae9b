// The video task on the seeded clip models: frames depend on the request alone, whatever the
// method; they leave in order, as soon as they stand; a clip goes on from first frames and beyond
// the model's own length.
#include "tests/support/own_video_task.h"

#include "apps/runtime/generate_task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/families/test_models.h"
#include "tests/support/clip_model.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

class Frames : public VideoListener {
 public:
  Flow on_progress(const VideoProgress& progress) override {
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
  void on_over(GeneratedVideo&& video) override {
    ++over;
    made = std::move(video);
  }
  std::vector<std::vector<std::uint8_t>> bytes() const {
    std::vector<std::vector<std::uint8_t>> out;
    for (const Image& image : images) out.push_back(image.rgb);
    return out;
  }

  std::vector<Image> images;
  std::int64_t passes = 0, first_at = 0, stop_at = 0, over = 0;
  GeneratedVideo made;
};

GenerateOptions options_for(const char* model, const char* method = "plain", int threads = 2) {
  GenerateOptions options;
  options.model = model;
  options.threads = threads;
  options.method = decode_method(method);
  return options;
}

VideoRequest request(std::uint64_t seed = 3) { return {.prompt = "a red cube", .seed = seed}; }

class VideoModels : public testing::TestWithParam<const char*> {};

TEST_P(VideoModels, MethodsAndThreadsGiveOneClip) {
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

INSTANTIATE_TEST_SUITE_P(All, VideoModels, testing::Values("test:clip", "test:clip-rows"),
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

TEST(VideoTask, LongerClipsGoOnInWindows) {
  OwnVideoTask plain(options_for("test:clip")), guessed(options_for("test:clip", "frames"));
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
  guessed.run(guessed.prepare(long_request), same);
  EXPECT_EQ(same.bytes(), all);
}

// --- windows that slide -------------------------------------------------------------------------

VideoRequest sliding(std::int64_t frames, Continuation how = Continuation::kSinks) {
  VideoRequest out = request();
  out.frames = frames;
  out.continuation = how;
  return out;
}

TEST(SlidingClips, EveryMethodThatKeepsThePlainClipKeepsItThere) {
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

// The first window is the same; from there on another clip, with one row a branch and window in the
// place of prompt and kept grids.
TEST(SlidingClips, DifferFromRecomputedOnesAndPrefillNothing) {
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
TEST(SlidingClips, OfOneLayerAreTheRecomputedOnes) {
  const auto paint = [](Continuation how) {
    OwnVideoTask pipeline(options_for("one layer"), clip_model(1), "one layer");
    VideoRequest wanted = sliding(48, how);
    wanted.sampling.set(setting::kTemperature, 0);
    Frames frames;
    EXPECT_EQ(pipeline.run(pipeline.prepare(wanted), frames).windows, 5);
    return frames.bytes();
  };
  EXPECT_EQ(paint(Continuation::kSinks), paint(Continuation::kRecompute));
}

TEST(SlidingClips, GoOnFromFirstFramesWithoutEndAndStop) {
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

TEST(VideoTask, FirstFramesBeginTheClipAndAreRead) {
  OwnVideoTask pipeline(options_for("test:clip")), guessed(options_for("test:clip", "frames"));
  const auto paint = [](OwnVideoTask& with, std::vector<Image> first,
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
class Grids : public VideoListener {
 public:
  Flow on_grid(const VideoGrid& grid) override {
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
TEST(VideoTask, GoingOnFromAnyGridWritesTheSameClip) {
  for (const char* model : {"test:clip", "test:clip-rows"}) {
    for (const char* method : {"plain", "frames", "gumbel", "auto", "gumbel-tree"}) {
      SCOPED_TRACE(std::string(model) + " " + method);
      OwnVideoTask pipeline(options_for(model, method, 1));
      for (const std::size_t first_frames : {0u, 8u}) {
        VideoRequest wanted = request();
        wanted.frames = 30;
        wanted.first_frames = drawn(first_frames);
        const PreparedVideo clip = pipeline.prepare(wanted);
        ASSERT_EQ(pipeline.grids_of(clip), 8);
        EXPECT_EQ(pipeline.given_grids(clip), static_cast<std::int64_t>(first_frames) / 4);
        Grids truth;
        const GeneratedVideo made = pipeline.run(clip, truth, {.frames = false});
        ASSERT_EQ(truth.codes.size(), 8 * pipeline.grid_codes());
        EXPECT_EQ(truth.frames, 0);
        EXPECT_EQ(made.frames, 30);
        EXPECT_EQ(made.windows, 3);
        for (std::int64_t grids = pipeline.given_grids(clip) + 1; grids < 8; ++grids) {
          SCOPED_TRACE(grids);
          ASSERT_TRUE(pipeline.can_go_on_at(clip, grids));
          Grids before, behind;
          before.stop_behind = grids;
          const GeneratedVideo stopped = pipeline.run(clip, before, {.frames = false});
          EXPECT_EQ(stopped.status, ImageStatus::kStopped);
          EXPECT_EQ(before.codes.size(), static_cast<std::size_t>(grids) * 24);
          behind.first = grids;
          const GeneratedVideo rest =
              pipeline.run(clip, behind, {.committed = before.codes, .frames = false});
          EXPECT_EQ(rest.status, ImageStatus::kDone);
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

// --- several at once ----------------------------------------------------------------------------

// Short and long clips, sliding and not, with first frames and without, guided and not; one is
// stopped in its middle.
std::vector<VideoRequest> many_requests() {
  std::vector<VideoRequest> out;
  const std::int64_t lengths[] = {6, 16, 38, 30, 9, 16, 22};
  for (std::size_t i = 0; i < std::size(lengths); ++i) {
    VideoRequest one{.prompt = std::string("a red cube") + std::string(i % 3, '!'), .seed = 3 + i};
    one.frames = lengths[i];
    if (i == 2 || i == 6) one.continuation = Continuation::kSinks;
    if (i % 2 == 1) one.sampling.set(setting::kGuidance, 1);
    if (i == 4)
      one.first_frames.assign(4, Image{24, 16, std::vector<std::uint8_t>(24 * 16 * 3, 90)});
    out.push_back(std::move(one));
  }
  return out;
}

TEST(ManyClips, EachIsWhatItIsAlone) {
  constexpr std::size_t kStopped = 3;
  for (const char* method : {"plain", "frames-coupled", "tree"}) {
    std::vector<GeneratedVideo> alone;
    std::vector<Frames> truth(many_requests().size());
    OwnVideoTask single(options_for("test:clip-rows", method));
    for (std::size_t i = 0; i < truth.size(); ++i) {
      if (i == kStopped) truth[i].stop_at = 8;
      alone.push_back(single.run(single.prepare(many_requests()[i]), truth[i]));
    }
    for (const std::int64_t batch : {2, 3, 8}) {
      GenerateOptions options = options_for("test:clip-rows", method, 1);
      options.batch_size = batch;
      OwnVideoTask pipeline(options);
      std::vector<PreparedVideo> clips;
      std::vector<Frames> frames(truth.size());
      frames[kStopped].stop_at = 8;
      for (const VideoRequest& one : many_requests()) clips.push_back(pipeline.prepare(one));
      std::vector<VideoOrder> orders;
      for (std::size_t i = 0; i < clips.size(); ++i) orders.push_back({clips[i], &frames[i]});
      pipeline.runtime().finish(pipeline.submit(std::move(orders)));
      for (std::size_t i = 0; i < clips.size(); ++i) {
        ASSERT_EQ(frames[i].bytes(), truth[i].bytes()) << method << " " << batch << " " << i;
        EXPECT_EQ(frames[i].made.status, alone[i].status) << i;
        EXPECT_EQ(frames[i].made.status == ImageStatus::kStopped, i == kStopped) << i;
        EXPECT_EQ(frames[i].made.facts.passes, alone[i].facts.passes) << i;
        EXPECT_EQ(frames[i].made.facts.tokens, alone[i].facts.tokens) << i;
        EXPECT_EQ(frames[i].made.prefilled, alone[i].prefilled) << i;
        EXPECT_EQ(frames[i].made.windows, alone[i].windows) << i;
        EXPECT_EQ(frames[i].over, 1) << i;
      }
    }
  }
}

// Two tasks and three submissions in one runtime: a cancelled one keeps whole grids of what was in
// a slot, and nothing of what waited.
TEST(ManyClips, OfSeveralSubmissionsAreWhatTheyAreAlone) {
  Runtime runtime;
  GenerateOptions options = options_for("test:clip-rows", "plain", 1);
  options.batch_size = 2;
  VideoTask task(runtime, options), blocks(runtime, options_for("test:nbp"));
  OwnVideoTask single(options_for("test:clip-rows")), single_blocks(options_for("test:nbp"));
  Frames truth, truth_of_blocks, first, cancelled, waiting, of_blocks;
  const VideoRequest other = request(5);
  single.run(single.prepare(sliding(30)), truth);
  single_blocks.run(single_blocks.prepare(request()), truth_of_blocks);
  const auto submit = [](VideoTask& to, std::vector<std::pair<VideoRequest, Frames*>> wanted) {
    std::vector<VideoOrder> orders;
    for (auto& [one, heard] : wanted) orders.push_back({to.prepare(one), heard});
    return to.submit(std::move(orders));
  };
  const Ticket a = submit(task, {{sliding(30), &first}});
  const Ticket b = submit(task, {{other, &cancelled}, {other, &waiting}});
  const Ticket c = submit(blocks, {{request(), &of_blocks}});
  while (cancelled.images.size() < 8) ASSERT_TRUE(runtime.step());
  EXPECT_EQ(waiting.passes, 0);
  runtime.cancel(b);
  runtime.finish(b);
  EXPECT_FALSE(runtime.over(a));
  EXPECT_EQ(cancelled.made.status, ImageStatus::kStopped);
  EXPECT_EQ(cancelled.made.frames, 8);
  EXPECT_EQ(waiting.over, 0) << "it never began";
  runtime.finish(a);
  runtime.finish(c);
  EXPECT_EQ(first.bytes(), truth.bytes());
  EXPECT_EQ(of_blocks.bytes(), truth_of_blocks.bytes());
  EXPECT_FALSE(runtime.step());
}

// Whoever throws ends its own submission.
TEST(ManyClips, AListenerThatThrowsEndsItsOwnSubmission) {
  class Broken final : public VideoListener {
    void on_frame(std::int64_t index, const Image&) override {
      if (index == 5) throw Error({.kind = ErrorKind::kStorage, .code = "E_IO_WRITE"});
    }
  } broken;
  GenerateOptions options = options_for("test:clip", "frames", 1);
  options.batch_size = 2;
  Runtime runtime;
  VideoTask task(runtime, options);
  OwnVideoTask single(options);
  Frames truth, heard;
  single.run(single.prepare(request()), truth);
  std::vector<VideoOrder> good, bad;
  good.push_back({task.prepare(request()), &heard});
  bad.push_back({task.prepare(request(9)), &broken});
  const Ticket one = task.submit(std::move(good)), other = task.submit(std::move(bad));
  int thrown = 0;
  for (bool on = true; on;) {
    try {
      on = runtime.step();
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_IO_WRITE");
      ++thrown;
      EXPECT_TRUE(runtime.over(other));
    }
  }
  EXPECT_EQ(thrown, 1);
  EXPECT_TRUE(runtime.over(one));
  EXPECT_EQ(heard.bytes(), truth.bytes());
}

TEST(VideoTask, CodesShowTheFramesThatWereHandedOut) {
  OwnVideoTask pipeline(options_for("test:clip"));
  VideoRequest wanted = request();
  wanted.frames = 22;
  wanted.first_frames = drawn(4);
  const PreparedVideo clip = pipeline.prepare(wanted);
  Frames truth, shown, gone_on;
  Grids grids;
  pipeline.run(clip, truth);
  pipeline.run(clip, grids, {.frames = false});
  ASSERT_EQ(truth.images.size(), 22u);
  OwnVideoTask other(options_for("test:clip"));  // which never wrote a token
  other.show(clip, grids.codes, shown);
  EXPECT_EQ(shown.bytes(), truth.bytes());
  const std::vector<std::int32_t> some(grids.codes.begin(), grids.codes.begin() + 3 * 24);
  pipeline.run(clip, gone_on, {.committed = some, .frames = true});
  EXPECT_EQ(gone_on.bytes(), truth.bytes());
}

// Where draws depend on what was guessed before them, only the end of a window is such a place.
TEST(VideoTask, OtherMethodsGoOnBetweenWindows) {
  OwnVideoTask pipeline(options_for("test:clip", "frames-coupled", 1));
  VideoRequest wanted = request();
  wanted.frames = 32;
  const PreparedVideo clip = pipeline.prepare(wanted);
  Grids truth;
  pipeline.run(clip, truth, {.frames = false});
  std::vector<std::int64_t> places;
  for (std::int64_t grids = 1; grids < 8; ++grids) {
    if (!pipeline.can_go_on_at(clip, grids)) continue;
    places.push_back(grids);
    Grids behind;
    behind.first = grids;
    std::vector<std::int32_t> codes(truth.codes.begin(), truth.codes.begin() + grids * 24);
    pipeline.run(clip, behind, {.committed = codes, .frames = false});
    codes.insert(codes.end(), behind.codes.begin(), behind.codes.end());
    EXPECT_EQ(codes, truth.codes) << grids;
  }
  EXPECT_EQ(places, (std::vector<std::int64_t>{4, 6}));
}

// What a window keeps of grids that went is in no codes.
TEST(VideoTask, SlidingClipsAreNotGoneOnWith) {
  const OwnVideoTask pipeline(options_for("test:clip"));
  const PreparedVideo slides = pipeline.prepare(sliding(32));
  const PreparedVideo anew = pipeline.prepare(sliding(32, Continuation::kRecompute));
  for (std::int64_t grids = 1; grids < 8; ++grids) {
    EXPECT_FALSE(pipeline.can_go_on_at(slides, grids)) << grids;
    EXPECT_TRUE(pipeline.can_go_on_at(anew, grids)) << grids;
  }
}

void expect_refused(const GenerateOptions& options, VideoRequest wanted, const char* code) {
  try {
    OwnVideoTask pipeline(options);
    pipeline.prepare(std::move(wanted));
    ADD_FAILURE() << "not refused with " << code;
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, code);
    EXPECT_EQ(error.exit_code(), 2);
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

// --- models that write blocks -------------------------------------------------------------------

TEST(BlockClips, AreWrittenABlockAPass) {
  OwnVideoTask pipeline(options_for("test:nbp")), other(options_for("test:nbp", "plain", 1));
  Frames frames, same, longer;
  const GeneratedVideo made = pipeline.run(pipeline.prepare(request()), frames);
  EXPECT_EQ(made.status, ImageStatus::kDone);
  EXPECT_EQ(made.frames, 16);
  EXPECT_EQ(made.facts.tokens, 4 * 24);
  // A block is a row of six codes; the first one comes code by code.
  EXPECT_EQ(made.facts.passes, 6 + (4 * 24 - 6) / 6);
  EXPECT_EQ(frames.first_at, 6 + (24 - 6) / 6);
  other.run(other.prepare(request()), same);
  EXPECT_EQ(same.bytes(), frames.bytes());
  VideoRequest more = request();
  more.frames = 24;
  const GeneratedVideo on = pipeline.run(pipeline.prepare(more), longer);
  EXPECT_EQ(on.windows, 2);
  EXPECT_EQ(on.facts.passes, made.facts.passes + 2 * 24 / 6);
  const auto all = longer.bytes(), first = frames.bytes();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
}

TEST(BlockClips, GoOnFromFirstFramesWithoutAPrompt) {
  OwnVideoTask pipeline(options_for("test:nbp-frames"));
  EXPECT_FALSE(pipeline.takes_prompts());
  const auto paint = [&](int shift) {
    VideoRequest wanted{.prompt = "", .seed = 5, .first_frames = drawn(8, shift)};
    Frames frames;
    const GeneratedVideo made = pipeline.run(pipeline.prepare(wanted), frames);
    EXPECT_EQ(made.frames, 16);
    EXPECT_EQ(made.facts.passes, 2 * 24 / 6);
    return frames.bytes();
  };
  const auto clip = paint(0);
  EXPECT_EQ(paint(0), clip);
  const auto other = paint(90);
  EXPECT_NE(std::vector(clip.begin() + 8, clip.end()), std::vector(other.begin() + 8, other.end()));
}

// What stands is given to a window in whole grids, of which each is whole blocks.
TEST(BlockClips, GoOnBehindAnyGridAsTheyWouldHave) {
  for (const char* model : {"test:nbp", "test:nbp-frames"}) {
    OwnVideoTask pipeline(options_for(model));
    for (const std::size_t first_frames : {0u, 8u}) {
      if (first_frames == 0 && !pipeline.takes_prompts()) continue;
      VideoRequest wanted = request();
      wanted.frames = 30;
      wanted.first_frames = drawn(first_frames);
      if (!pipeline.takes_prompts()) wanted.prompt.clear();
      const PreparedVideo clip = pipeline.prepare(wanted);
      Grids truth;
      EXPECT_EQ(pipeline.run(clip, truth, {.frames = false}).windows, 3);
      ASSERT_EQ(truth.codes.size(), 8 * pipeline.grid_codes());
      for (std::int64_t grids = pipeline.given_grids(clip) + 1; grids < 8; ++grids) {
        SCOPED_TRACE(std::string(model) + " " + std::to_string(grids));
        ASSERT_TRUE(pipeline.can_go_on_at(clip, grids));
        Grids behind;
        behind.first = grids;
        std::vector<std::int32_t> codes(truth.codes.begin(), truth.codes.begin() + grids * 24);
        pipeline.run(clip, behind, {.committed = codes, .frames = false});
        codes.insert(codes.end(), behind.codes.begin(), behind.codes.end());
        ASSERT_EQ(codes, truth.codes);
        EXPECT_EQ(behind.passes.back(), (8 - grids) * 24 / 6) << "only the rest is written";
      }
    }
  }
}

TEST(BlockClips, RefuseWhatBlocksDoNot) {
  expect_refused(options_for("test:nbp", "frames"), request(), "E_DECODE_CONFLICT");
  expect_refused(options_for("test:nbp"), sliding(40), "E_VIDEO_CONTINUE");
  VideoRequest guided = request();
  guided.sampling.set(setting::kGuidance, 3);
  expect_refused(options_for("test:nbp"), guided, "E_GUIDANCE");
  expect_refused(options_for("test:nbp-frames"), request(), "E_VIDEO_FIRST");
  VideoRequest text = request();
  text.first_frames = drawn(4);
  expect_refused(options_for("test:nbp-frames"), text, "E_PROMPT_TEXT");
}

// The published models' own clip tokenizer is not read.
TEST(BlockClips, WithoutAClipTokenizerAreRefused) {
  OpenedModel model = open_model("test:nbp");
  model.spec.movq.reset();
  try {
    OwnVideoTask pipeline(options_for("nbp"), std::move(model), "nbp");
    FAIL() << "clips without pixels";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_NBP_TOKENIZER");
    EXPECT_EQ(error.exit_code(), 4);
  }
}

// config.json, model.safetensors and tokenizer.json are all that a model of clips needs.
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
    FAIL() << "a model without tokenizer.json painted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_TOKENIZER_TIKTOKEN");
  }
}

TEST(VideoTask, PicturesAreNoBusinessOfAClipModel) {
  Runtime runtime;
  GenerateTask task(runtime, options_for("test:clip"));
  try {
    task.prepare({"a red cube", std::nullopt, {}, 1});
    FAIL() << "a clip model painted a picture";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_MODEL_CLIPS");
  }
}

// --- models that go on with frames alone: test:cosmos
// ----------------------------------------------

std::vector<Image> wide_frames(std::size_t count, int shift = 0) {
  std::vector<Image> out;
  for (std::size_t i = 0; i < count; ++i) {
    Image image(48, 32);
    for (std::size_t at = 0; at < image.rgb.size(); ++at) {
      image.rgb[at] =
          static_cast<std::uint8_t>((at * at / 5 + i * 37 + static_cast<std::size_t>(shift)) % 253);
    }
    out.push_back(std::move(image));
  }
  return out;
}

VideoRequest going_on(std::size_t first, int shift = 0) {
  VideoRequest out;
  out.seed = 3;
  out.first_frames = wide_frames(first, shift);
  return out;
}

// A file of features: `rows` of width 24.
std::string write_features(const TempFolder& folder, std::int64_t rows, float factor = 1.0f,
                           std::int64_t width = 24) {
  Tensor text = Tensor::host(DType::kF32, {1, rows, width});
  for (std::int64_t i = 0; i < rows * width; ++i) {
    text.f32()[i] = factor * static_cast<float>(i % 11 - 5);
  }
  const std::filesystem::path path =
      folder / ("text" + std::to_string(rows) + "x" + std::to_string(width) + "_" +
                std::to_string(factor) + ".safetensors");
  write_safetensors(path, {{"context", std::as_const(text).view()}});
  return path.string();
}

GeneratedVideo paint(OwnVideoTask& with, VideoRequest wanted, Frames& frames) {
  return with.run(with.prepare(std::move(wanted)), frames);
}

TEST(VideoFromFrames, OneGridIsOneFrameAndEachFurtherOneEight) {
  OwnVideoTask plain(options_for("test:cosmos"));
  EXPECT_EQ(plain.own_frames(), 17);
  EXPECT_EQ(plain.max_first_frames(), 9);
  EXPECT_EQ(plain.rate(), 25);
  Frames nine;
  const GeneratedVideo made = paint(plain, going_on(9), nine);
  EXPECT_EQ(made.status, ImageStatus::kDone);
  EXPECT_EQ(made.frames, 17);
  EXPECT_EQ(made.first_frames, 9);
  EXPECT_EQ(made.facts.tokens, 6);
  EXPECT_EQ(made.windows, 1);
  EXPECT_EQ(nine.images[0].width, 48);
  EXPECT_EQ(nine.images[16].height, 32);
  Frames one;
  EXPECT_EQ(paint(plain, going_on(1), one).first_frames, 1);
  ASSERT_EQ(one.images.size(), 17u);
  EXPECT_EQ(one.bytes()[0], nine.bytes()[0]) << "nothing looks ahead";
  EXPECT_NE(one.bytes()[16], nine.bytes()[16]);
  // Of 12 frames the last 9 are whole grids.
  std::vector<Image> twelve = wide_frames(3, 40);
  for (Image& frame : wide_frames(9)) twelve.push_back(std::move(frame));
  VideoRequest more = going_on(0);
  more.first_frames = twelve;
  Frames same;
  paint(plain, more, same);
  EXPECT_EQ(same.bytes(), nine.bytes());
}

TEST(VideoFromFrames, MethodsAndThreadsGiveOneClip) {
  OwnVideoTask plain(options_for("test:cosmos"));
  Frames truth, another;
  paint(plain, going_on(1), truth);
  paint(plain, going_on(1, 77), another);
  EXPECT_NE(truth.bytes(), another.bytes());
  for (const char* method : {"frames", "gumbel", "auto", "gumbel-tree"}) {
    OwnVideoTask other(options_for("test:cosmos", method, 1));
    Frames frames;
    paint(other, going_on(1), frames);
    EXPECT_EQ(frames.bytes(), truth.bytes()) << method;
  }
}

TEST(VideoFromFrames, AFewFramesAreTheFirstOnes) {
  OwnVideoTask plain(options_for("test:cosmos"));
  Frames whole, some;
  paint(plain, going_on(1), whole);
  VideoRequest shorter = going_on(1);
  shorter.frames = 5;
  EXPECT_EQ(paint(plain, shorter, some).frames, 5);
  const auto all = whole.bytes(), few = some.bytes();
  ASSERT_EQ(few.size(), 5u);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin()));
}

TEST(VideoFromFrames, RowsOfATextLeadTheClip) {
  const TempFolder folder;
  OwnVideoTask pipeline(options_for("test:cosmos-text"));
  const auto with = [&](const std::string& file) {
    VideoRequest wanted = going_on(1);
    wanted.text_features = file;
    Frames frames;
    EXPECT_EQ(paint(pipeline, wanted, frames).frames, 17);
    return frames.bytes();
  };
  const auto first = with(write_features(folder, 400));
  EXPECT_EQ(with(write_features(folder, 400)), first);
  EXPECT_NE(with(write_features(folder, 400, -1.0f)), first);
}

TEST(VideoFromFrames, RefusesWhatItCannotDo) {
  const TempFolder folder;
  const auto cosmos = options_for("test:cosmos"), text = options_for("test:cosmos-text");
  expect_refused(cosmos, going_on(0), "E_VIDEO_FIRST");
  VideoRequest spoken = going_on(1);
  spoken.prompt = "a red cube";
  expect_refused(cosmos, spoken, "E_PROMPT_TEXT");
  VideoRequest guided = going_on(1);
  guided.sampling.set(setting::kGuidance, 3);
  expect_refused(cosmos, guided, "E_NEGATIVE_PROMPT");
  VideoRequest longer = going_on(1);
  longer.frames = 18;
  expect_refused(cosmos, longer, "E_VIDEO_FRAMES");
  VideoRequest endless = going_on(1);
  endless.endless = true;
  expect_refused(cosmos, endless, "E_VIDEO_FRAMES");
  VideoRequest slides = going_on(1);
  slides.continuation = Continuation::kSinks;
  expect_refused(cosmos, slides, "E_VIDEO_CONTINUE");
  VideoRequest read = going_on(1);
  read.text_features = write_features(folder, 4);
  expect_refused(cosmos, read, "E_VIDEO_TEXT");
  expect_refused(text, going_on(1), "E_VIDEO_TEXT");
  for (const auto& [rows, width] : {std::pair(513, 24), std::pair(4, 25)}) {
    OwnVideoTask pipeline(text);
    VideoRequest wrong = going_on(1);
    wrong.text_features = write_features(folder, rows, 1.0f, width);
    try {
      pipeline.prepare(wrong);
      ADD_FAILURE() << rows << " rows of " << width << " were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_VIDEO_TEXT");
      EXPECT_EQ(error.exit_code(), 4);
    }
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
}  // namespace tessera
