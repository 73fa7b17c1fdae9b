// Videos of the studio, on the seeded model of videos: frames show as they are committed, the file
// is that of `tessera video`, a request to stop keeps whole frames.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/runtime/video_facts.h"
#include "apps/studio/video_worker.h"
#include "engine/core/io.h"
#include "tests/support/own_video_task.h"
#include "tests/unit/studio/studio_run.h"
#include "video/frame_reader.h"
#include "video/frame_sink.h"

namespace tessera::video_generate_test {
namespace {

GenerateSettings video_settings(const std::string& prompt, std::uint64_t seed, std::int64_t frames) {
  GenerateSettings settings = tiny_settings(prompt, seed);
  settings.model = "test:clip";
  settings.frames = frames;
  return settings;
}

std::vector<std::vector<std::uint8_t>> frames_of(const std::filesystem::path& file) {
  FrameReader reader(file, {});
  std::vector<std::vector<std::uint8_t>> frames;
  while (auto frame = reader.next()) frames.push_back(std::move(frame->rgb));
  return frames;
}

// What the task alone writes into the file that the command opens.
std::string file_of_the_command(const std::filesystem::path& path, const GenerateSettings& settings) {
  GenerateOptions options;
  options.model = settings.model;
  options.method = settings.method;
  OwnVideoTask task(options);
  const PreparedVideo video =
      task.prepare({.prompt = settings.prompt, .seed = settings.seed, .frames = settings.frames});
  const VideoTexts texts = video_texts(video.facts, {{"fps", task.rate()}}, RecordFacts::kAll);
  const auto sink = open_frame_sink(path, {.width = video.facts.width,
                                           .height = video.facts.height,
                                           .tick = {1, task.rate()},
                                           .comment = texts.comment});
  struct ToSink : VideoListener {
    void on_frame(std::int64_t index, const Image& frame) override { to->put(frame.rgb, index); }
    FrameSink* to = nullptr;
  } listener;
  listener.to = sink.get();
  task.run(video, listener);
  sink->finish(video.frames);
  return get_file(path);
}

TEST(StudioVideo, FramesShowAndTheFileIsTheCommands) {
  StudioRun run;
  GenerateSettings settings = video_settings("A red ball", 5, 24);
  settings.method = decode_method("frames");
  ASSERT_TRUE(run.studio.post(GenerateCommand{settings}));
  ASSERT_TRUE(run.studio.post(GenerateCommand{tiny_settings("x", 1)}));
  ASSERT_TRUE(run.studio.post(GenerateCommand{settings}));
  const Generation one = run.finished(1);
  ASSERT_EQ(one.state, GenerateState::kDone) << one.error.code << one.error.found;
  EXPECT_EQ(one.file.filename(), "a-red-ball_5.mkv");
  EXPECT_EQ(one.frames, 24);
  EXPECT_EQ(one.frames_done, 24);
  EXPECT_EQ(one.rows_done, one.grid_rows);
  EXPECT_EQ(one.facts.tokens, 6 * 24);
  const auto frames = frames_of(one.file);
  ASSERT_EQ(frames.size(), 24u);
  ASSERT_TRUE(one.image);
  EXPECT_EQ(one.image->rgb, frames.back());
  EXPECT_EQ(get_file(one.file), file_of_the_command(run.folder / "truth.mkv", settings));
  EXPECT_EQ(run.finished(2).state, GenerateState::kDone) << "an image in between";
  const Generation again = run.finished(3);
  EXPECT_EQ(again.file.filename(), "a-red-ball_5_2.mkv");
  EXPECT_EQ(get_file(again.file), get_file(one.file));
  EXPECT_EQ(run.studio.snapshot().status.model, "test:clip");
}

TEST(StudioVideo, AStopRequestToStopKeepsWholeFrames) {
  StudioRun run;
  ASSERT_TRUE(run.studio.post(GenerateCommand{video_settings("long", 2, 100000)}));
  ASSERT_TRUE(run.studio.post(GenerateCommand{video_settings("next", 3, 4)}));
  std::int64_t seen = 0;
  run.until([&](const Snapshot& now) {
    const Generation* one = now.generation(1);
    if (one != nullptr && one->image != nullptr) seen = std::max(seen, one->frames_done);
    return seen >= 8;
  });
  ASSERT_TRUE(run.studio.post(StopCommand{}));
  const Generation stopped = run.finished(1);
  ASSERT_EQ(stopped.state, GenerateState::kStopped) << stopped.error.code;
  // None where that pass read a prompt.
  EXPECT_GE(stopped.passes_after_stop, 0);
  EXPECT_LE(stopped.passes_after_stop, 1);
  EXPECT_GE(stopped.frames_done, 8);
  EXPECT_EQ(stopped.frames_done % 4, 0);
  const auto frames = frames_of(stopped.file);
  EXPECT_EQ(static_cast<std::int64_t>(frames.size()), stopped.frames_done);
  EXPECT_EQ(frames.back(), stopped.image->rgb);
  EXPECT_EQ(run.finished(2).state, GenerateState::kDone);
}

// A grid's rows on their way, counted in passes.
TEST(VideoWatch, ShowsTheGridThatComesAndFramesThatAreThere) {
  const TempFolder folder;
  GenerateOptions options;
  options.model = "test:clip";
  options.threads = 1;
  OwnVideoTask task(options);
  const PreparedVideo video = task.prepare({.prompt = "x", .seed = 3, .frames = 8});
  Generation generation;
  generation.facts = video.facts;
  generation.frames = 8;
  generation.grid_rows = 4;
  StopRequest stop_request;
  std::vector<std::int64_t> frames, rows;
  std::int64_t previews = 0;
  {
    VideoWatch watch(generation, stop_request, task, (folder / "x.mkv").string(), {},
                     [&](const Generation& now) {
                       frames.push_back(now.frames_done);
                       rows.push_back(now.rows_done);
                       previews += now.image != nullptr && now.image_rows < 4 ? 1 : 0;
                     });
    task.run(video, watch);
  }
  EXPECT_TRUE(std::is_sorted(frames.begin(), frames.end()));
  EXPECT_EQ(frames.back(), 8);
  EXPECT_GT(previews, 0);
  EXPECT_NE(std::find(rows.begin(), rows.end(), 2), rows.end());
  EXPECT_EQ(frames_of(folder / "x.mkv").size(), 8u);
}

TEST(StudioVideo, OneThatFailsIsItsOwn) {
  StudioRun run;
  GenerateSettings wrong = video_settings("x", 1, 4);
  wrong.width = 48;
  wrong.height = 48;
  run.studio.post(GenerateCommand{wrong});
  run.studio.post(GenerateCommand{video_settings("x", 1, 4)});
  EXPECT_EQ(run.finished(1).error.code, "E_GEOMETRY");
  EXPECT_EQ(run.finished(1).state, GenerateState::kFailed);
  EXPECT_EQ(run.finished(2).state, GenerateState::kDone);
}

}  // namespace
}  // namespace tessera::video_generate_test
