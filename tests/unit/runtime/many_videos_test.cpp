// Several videos in the slots of one loop, of one submission and of several: each is what it is
// alone.
#include <gtest/gtest.h>

#include "tests/support/video_listeners.h"

namespace tessera::many_videos_test {
namespace {

// Short and long videos, sliding and not, with first frames and without, guided and not; one is
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

TEST(ManyVideos, EachIsWhatItIsAlone) {
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
      std::vector<PreparedVideo> videos;
      std::vector<Frames> frames(truth.size());
      frames[kStopped].stop_at = 8;
      for (const VideoRequest& one : many_requests()) videos.push_back(pipeline.prepare(one));
      std::vector<VideoOrder> orders;
      for (std::size_t i = 0; i < videos.size(); ++i) orders.push_back({videos[i], &frames[i]});
      pipeline.runtime().finish(pipeline.submit(std::move(orders)));
      for (std::size_t i = 0; i < videos.size(); ++i) {
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
TEST(ManyVideos, OfSeveralSubmissionsAreWhatTheyAreAlone) {
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

// Of a submission that fails, each video that was begun hears the error, in a slot or not.
TEST(ManyVideos, AllHearTheErrorOfTheirSubmission) {
  struct Hearing final : Frames {
    void on_frame(std::int64_t index, const Image& frame) override {
      if (index == throw_at) throw Error({.kind = ErrorKind::kStorage, .code = "E_IO_WRITE"});
      Frames::on_frame(index, frame);
    }
    void on_error(const ErrorInfo& error) override { codes.push_back(error.code); }
    std::int64_t throw_at = -1;
    std::vector<std::string> codes;
  };
  GenerateOptions options = options_for("test:clip-rows", "plain", 1);
  options.batch_size = 2;
  Runtime runtime;
  VideoTask task(runtime, options);
  // The first is between two windows when the second throws; the third never begins.
  Hearing heard[3];
  heard[1].throw_at = 8;
  std::vector<VideoOrder> orders;
  for (Hearing& one : heard) {
    VideoRequest wanted = sliding(30, Continuation::kRecompute);
    orders.push_back({task.prepare(wanted), &one});
  }
  const Ticket ticket = task.submit(std::move(orders));
  EXPECT_THROW(runtime.finish(ticket), Error);
  for (const Hearing& one : {heard[0], heard[1]}) {
    EXPECT_EQ(one.codes, (std::vector<std::string>{"E_IO_WRITE"}));
    EXPECT_EQ(one.over, 0);
  }
  EXPECT_TRUE(heard[2].codes.empty());
  EXPECT_EQ(heard[2].over, 0);
  EXPECT_FALSE(runtime.step());
}

// The listener of generate_video() may go when it is left, also with another's error.
TEST(ManyVideos, AnErrorOfAnotherSubmissionLeavesNothingAfter) {
  struct Broken final : VideoListener {
    Flow on_progress(const VideoProgress& progress) override {
      if (progress.passes == 3) throw std::runtime_error("a full disk");
      return Flow::kContinue;
    }
  } broken;
  Runtime runtime;
  VideoTask task(runtime, options_for("test:clip")), other(runtime, options_for("test:clip"));
  std::vector<VideoOrder> orders;
  orders.push_back({other.prepare(request(9)), &broken});
  other.submit(std::move(orders));
  {
    Frames own;
    EXPECT_THROW(generate_video(task, task.prepare(request()), own), std::runtime_error);
    EXPECT_EQ(own.made.status, ImageStatus::kStopped);
  }
  EXPECT_FALSE(runtime.step());
  OwnVideoTask single(options_for("test:clip"));
  Frames truth, again;
  single.run(single.prepare(request()), truth);
  generate_video(task, task.prepare(request()), again);
  EXPECT_EQ(again.bytes(), truth.bytes());
}

// Whoever throws ends its own submission.
TEST(ManyVideos, AListenerThatThrowsEndsItsOwnSubmission) {
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

}  // namespace
}  // namespace tessera::many_videos_test
