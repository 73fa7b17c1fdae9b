// Painting without a window, on the seeded tiny model: order, seeds, stops counted in passes, files
// that hold what is shown, failures that stay their own.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "apps/runtime/metadata.h"
#include "apps/studio/paint_job.h"
#include "apps/studio/settings.h"
#include "engine/core/io.h"
#include "tests/unit/captioning/scarce_memory.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera {
namespace {

TEST(StudioPaint, PicturesComeInOrderAndEqualTheirFiles) {
  StudioRun run;
  ASSERT_TRUE(run.studio.post(PaintCommand{tiny_settings("A red ball", 5), SeedMode::kPlusOne, 3}));
  ASSERT_EQ(run.studio.snapshot().paintings.size(), 3u) << "queued pictures show at once";
  std::vector<std::uint64_t> order;
  run.until([&](const Snapshot& now) {
    for (const Painting& one : now.paintings) {
      if (one.state != PaintState::kDone) continue;
      if (std::find(order.begin(), order.end(), one.number) == order.end()) {
        order.push_back(one.number);
      }
    }
    return order.size() == 3;
  });
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3}));
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const Painting one = *run.studio.snapshot().painting(number);
    EXPECT_EQ(one.settings.seed, 4 + number);
    EXPECT_EQ(one.facts.seed, 4 + number);
    EXPECT_EQ(one.file.filename(), "a-red-ball_" + std::to_string(4 + number) + ".png");
    ASSERT_TRUE(one.image);
    EXPECT_EQ(read_own_png(one.file).rgb, one.image->rgb);
    const PictureMetadata metadata = read_metadata(one.file);
    ASSERT_TRUE(metadata.facts);
    EXPECT_EQ(metadata.facts->seed, one.facts.seed);
    EXPECT_EQ(metadata.facts->tokens, one.facts.tokens);
    ASSERT_TRUE(one.marks && one.committed);
    EXPECT_EQ(static_cast<std::int64_t>(one.marks->size()), one.grid_rows * one.grid_columns);
    EXPECT_EQ(std::accumulate(one.committed->begin(), one.committed->end(), 0),
              static_cast<int>(one.facts.tokens));
    EXPECT_EQ(static_cast<std::int64_t>(one.committed->size()), one.facts.passes);
    EXPECT_EQ(one.rows_done, one.grid_rows);
    EXPECT_EQ(one.image_rows, one.grid_rows);
  }
  const StatusFacts& status = run.studio.snapshot().status;
  EXPECT_NE(status.device.find(", 1 thread"), std::string::npos) << status.device;
  EXPECT_EQ(status.model, "test:tiny");
  EXPECT_GT(status.planned_bytes, 0u);
}

TEST(StudioPaint, FilesAreNeverReplaced) {
  StudioRun run;
  run.studio.post(PaintCommand{tiny_settings("x", 1), SeedMode::kLocked, 3});
  EXPECT_EQ(run.finished(1).file.filename(), "x_1.png");
  EXPECT_EQ(run.finished(2).file.filename(), "x_1_2.png");
  EXPECT_EQ(run.finished(3).file.filename(), "x_1_3.png");
  EXPECT_EQ(get_file(run.finished(1).file), get_file(run.finished(3).file)) << "same seed";
}

// A look at each, no file written beside it.
TEST(StudioPaint, TakenNamesCostLittle) {
  TempFolder folder;
  ImageFacts facts;
  facts.prompt = "x";
  for (int i = 1; i <= 100; ++i) {
    put_file(folder / (i == 1 ? "x_0.png" : "x_0_" + std::to_string(i) + ".png"), "mine");
  }
  const std::uint64_t before = io_call_count();
  EXPECT_EQ(save_painting(folder.path(), Image(2, 2), facts, false).filename(), "x_0_101.png");
  EXPECT_LT(io_call_count() - before, 150u);
  EXPECT_EQ(get_file(folder / "x_0_100.png"), "mine");
}

// What the task alone gives, byte for byte, whatever was painted before.
TEST(StudioPaint, EqualsThePipeline) {
  StudioRun run;
  PaintSettings settings = tiny_settings("one", 9);
  settings.method = decode_method("sjd");
  run.studio.post(PaintCommand{tiny_settings("zero", 1)});
  run.studio.post(PaintCommand{settings});
  const Painting got = run.finished(2);
  GenerateOptions options;
  options.model = "test:tiny";
  options.method = settings.method;
  Runtime runtime;
  GenerateTask task(runtime, options);
  struct Keep : GenerateListener {
    void on_image(GeneratedImage&& picture) override { kept = std::move(picture); }
    GeneratedImage kept;
  } keep;
  task.run(std::vector{task.prepare({.prompt = "one", .seed = 9})}, keep);
  ASSERT_TRUE(got.image);
  EXPECT_EQ(got.image->rgb, keep.kept.image.rgb);
  const PictureTexts texts = picture_texts(keep.kept.facts, RecordFacts::kAll);
  EXPECT_EQ(get_file(got.file), encode_png(keep.kept.image, texts.texts, texts.xmp));
  EXPECT_EQ(got.acceptance, keep.kept.meters.acceptance());
}

TEST(StudioPaint, ARandomSeedIsFilledInAndPaintsAgain) {
  StudioRun run;
  run.studio.post(PaintCommand{tiny_settings("r", 3), SeedMode::kRandom, 2});
  const Painting first = run.finished(1), second = run.finished(2);
  EXPECT_NE(first.settings.seed, second.settings.seed);
  run.studio.post(PaintCommand{first.settings});
  EXPECT_EQ(run.finished(3).image->rgb, first.image->rgb);
}

// A picture that ends at a pass of its own choosing, counted, not timed.
TEST(PaintWatch, AWishIsAnsweredAfterTheRunningPass) {
  GenerateOptions options;
  options.model = "test:tiny";
  options.threads = 1;
  Runtime runtime;
  GenerateTask task(runtime, options);
  const auto requests = std::vector{task.prepare({.prompt = "one", .seed = 3})};
  for (const std::int64_t stop_at : {1, 2, 20, 37}) {
    StopWish wish;
    wish.begin(4);
    Painting painting;
    painting.number = 4;
    std::int64_t told_after_wish = 0;
    bool wished = false;
    std::shared_ptr<const Image> shown;
    PaintWatch watch(painting, wish, task, [&](const Painting& now) {
      if (wished && now.facts.passes > stop_at) ++told_after_wish;
      if (now.facts.passes == stop_at) wished = (wish.wish(0), true);
      shown = now.image;
    });
    task.run(requests, watch);
    const GeneratedImage& picture = watch.picture();
    EXPECT_EQ(picture.status, ImageStatus::kStopped);
    EXPECT_EQ(picture.facts.passes, stop_at) << "the pass in which it was wished was the last";
    EXPECT_EQ(painting.passes_after_stop, 1);
    EXPECT_EQ(told_after_wish, 0);
    const std::int64_t columns = task.spec().model.grid_cols;
    EXPECT_EQ(picture.rows_done, stop_at / columns);
    EXPECT_EQ(picture.image.rgb.empty(), picture.rows_done == 0);
  }
}

// From outside: the partial on show is the partial in the file, and its rows are the whole
// picture's codes so far.
TEST(StudioPaint, AStoppedPictureIsKeptAndSaved) {
  StudioRun run;
  std::uint64_t number = 0;
  Painting partial;
  // The tiny model is quick: the wish may come too late; another picture then.
  for (int attempt = 0; attempt < 500 && partial.state != PaintState::kStopped; ++attempt) {
    run.studio.post(PaintCommand{tiny_settings("stop me", 8)});
    ++number;
    run.until([&](const Snapshot& now) {
      const Painting& one = *now.painting(number);
      return one.rows_done >= 1 || one.state == PaintState::kDone;
    });
    run.studio.post(StopCommand{});
    partial = run.finished(number);
  }
  ASSERT_EQ(partial.state, PaintState::kStopped);
  EXPECT_EQ(partial.passes_after_stop, 1);
  ASSERT_TRUE(partial.image);
  EXPECT_TRUE(partial.file.filename().string().ends_with("_partial.png")) << partial.file;
  EXPECT_EQ(read_own_png(partial.file).rgb, partial.image->rgb);
  EXPECT_EQ(read_metadata(partial.file).facts->tokens, partial.facts.tokens);
  EXPECT_LT(partial.facts.tokens, partial.grid_rows * partial.grid_columns);
  run.studio.post(PaintCommand{tiny_settings("stop me", 8)});
  const Painting whole = run.finished(number + 1);
  EXPECT_EQ(whole.state, PaintState::kDone) << "an old wish ends no other picture";
  for (std::size_t at = 0; at < partial.marks->size(); ++at) {
    if ((*partial.marks)[at].id < 0) continue;
    EXPECT_EQ((*partial.marks)[at].id, (*whole.marks)[at].id) << at;
  }
}

TEST(StudioPaint, AStopEndsNoPictureThatNobodySawRunning) {
  StudioRun run;
  for (std::uint64_t number = 1; number <= 10; ++number) {
    run.studio.post(PaintCommand{tiny_settings("unseen", number)});
    std::this_thread::sleep_for(std::chrono::milliseconds(number));
    run.studio.post(StopCommand{});
    EXPECT_EQ(run.finished(number).state, PaintState::kDone);
  }
}

TEST(StudioPaint, SeedsAreWhatAFileCanSay) {
  StudioRun run;
  const PaintSettings large = tiny_settings("seed", (std::uint64_t{1} << 63) + 5);
  run.studio.post(CompareCommand{large, large});
  run.studio.post(PaintCommand{large});
  for (const Painting& one : run.studio.snapshot().paintings) EXPECT_EQ(one.settings.seed, 5u);
  EXPECT_EQ(run.finished(2).file.filename(), "seed_5_2.png");
}

TEST(StudioPaint, BadRequestsFailAlone) {
  StudioRun run;
  PaintSettings bad = tiny_settings("x", 1);
  bad.width = 12345;
  bad.height = 7;
  run.studio.post(PaintCommand{bad});
  run.studio.post(PaintCommand{tiny_settings(std::string(100000, 'x'), 1)});
  PaintSettings no_model = tiny_settings("x", 1);
  no_model.model = "no-such-model";
  run.studio.post(PaintCommand{no_model});
  run.studio.post(PaintCommand{tiny_settings("good", 1)});
  EXPECT_EQ(run.finished(1).error.code, "E_GEOMETRY");
  EXPECT_EQ(run.finished(2).state, PaintState::kFailed);
  EXPECT_FALSE(run.finished(2).error.code.empty());
  EXPECT_EQ(run.finished(3).error.code, "E_MODEL_MISSING");
  EXPECT_EQ(run.finished(4).state, PaintState::kDone);
  ASSERT_EQ(run.studio.snapshot().problems.size(), 1u) << "the model alone is a problem of all";
  EXPECT_EQ(run.studio.snapshot().problems[0].code, "E_MODEL_MISSING");
}

// Wherever memory ends, the same picture is painted once there is some again.
TEST(StudioPaint, AModelThatWasHalfLoadedIsLoadedAnew) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  StudioRun run;
  const PaintSettings settings = tiny_settings("scarce", 3);
  PaintSettings other = settings;  // so that the model has to be loaded again
  other.storage = DType::kBF16;
  std::uint64_t number = 0;
  std::int64_t failures = 0;
  for (std::int64_t spare = 0;; spare += 1 + spare / 16) {
    run.studio.post(PaintCommand{other});
    ASSERT_EQ(run.finished(++number).state, PaintState::kDone) << spare;
    {
      const ScarceMemory scarce(std::size_t{1} << 15, spare, ScarceMemory::Threads::kOthers);
      run.studio.post(PaintCommand{settings});
      const Painting one = run.finished(++number);
      if (one.state == PaintState::kDone) break;
      ++failures;
    }
    run.studio.post(PaintCommand{settings});
    ASSERT_EQ(run.finished(++number).state, PaintState::kDone) << spare;
  }
  EXPECT_GE(failures, 10);
  std::printf("memory ended in %lld places\n", static_cast<long long>(failures));
}

// Less room than the plan, while its lion's share lies in memory already.
TEST(StudioPaint, ALoadedModelNeedsNoRoomForItsWeights) {
  StudioRun run;
  run.studio.post(PaintCommand{tiny_settings("first", 1)});
  ASSERT_EQ(run.finished(1).state, PaintState::kDone);
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit little = before;
  little.rlim_cur = pages * 4096 + run.studio.snapshot().status.planned_bytes * 3 / 4;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  run.studio.post(PaintCommand{tiny_settings("second", 2)});
  const Painting second = run.finished(2);
  PaintSettings other = tiny_settings("third", 3);
  other.storage = DType::kBF16;
  run.studio.post(PaintCommand{other});
  const Painting third = run.finished(3);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(second.state, PaintState::kDone) << format_error(second.error);
  EXPECT_EQ(third.error.code, "E_MEMORY_PLAN") << "a model that is not loaded is refused";
}

TEST(StudioPaint, AFolderThatCannotBeMadeFailsThePicture) {
  TempFolder other;
  put_file(other / "file", "");
  StudioOptions options;
  options.folder = other / "file" / "below";
  StudioRun run(options);
  run.studio.post(PaintCommand{tiny_settings("x", 1)});
  const Painting failed = run.finished(1);
  EXPECT_EQ(failed.state, PaintState::kFailed);
  EXPECT_EQ(failed.error.kind, ErrorKind::kStorage);
  EXPECT_TRUE(failed.image) << "what was painted is still on show";
}

TEST(StudioPaint, TheQueueIsBoundedAndCanBeThinned) {
  StudioRun run;
  EXPECT_FALSE(run.studio.post(PaintCommand{tiny_settings("x", 1), SeedMode::kLocked, 0}));
  ASSERT_TRUE(run.studio.post(PaintCommand{tiny_settings("x", 1), SeedMode::kLocked, 900}));
  EXPECT_FALSE(run.studio.post(PaintCommand{tiny_settings("x", 1), SeedMode::kLocked, 900}));
  EXPECT_EQ(run.studio.snapshot().paintings.size(), 900u) << "all or nothing";
  for (std::uint64_t number = 3; number <= 900; ++number) {
    EXPECT_TRUE(run.studio.post(DropPaintingCommand{number}));
  }
  run.finished(2);
  for (std::uint64_t number = 899; number <= 900; ++number) {
    EXPECT_EQ(run.studio.snapshot().painting(number), nullptr);
  }
  run.studio.post(PaintCommand{tiny_settings("x", 1)});
  EXPECT_EQ(run.finished(901).state, PaintState::kDone);
  run.studio.post(DropPaintingCommand{901});
  EXPECT_EQ(run.studio.snapshot().painting(901), nullptr);
}

TEST(StudioPaint, ComparesTwoMethodsAtOneSeed) {
  StudioRun run;
  PaintSettings exact = tiny_settings("pair", 2), grouped = exact;
  exact.method = decode_method("sjd");
  grouped.method = decode_method("gsd");
  ASSERT_TRUE(run.studio.post(CompareCommand{exact, grouped}));
  EXPECT_EQ(run.studio.snapshot().compare_left, 1u);
  EXPECT_EQ(run.studio.snapshot().compare_right, 2u);
  EXPECT_TRUE(run.finished(1).facts.preserves_distribution);
  EXPECT_FALSE(run.finished(2).facts.preserves_distribution);
}

// A reader that never comes: the worker gets its pictures done; nothing final is lost.
TEST(StudioPaint, ASlowReaderMissesNoEnd) {
  StudioRun run;
  run.studio.post(PaintCommand{tiny_settings("x", 1), SeedMode::kPlusOne, 8});
  const std::filesystem::path last = run.folder / "pictures" / "x_8.png";
  for (int i = 0; i < 60000 && !file_exists(last); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(file_exists(last)) << "painting does not wait for anybody to look";
  for (std::uint64_t number = 1; number <= 8; ++number) {
    EXPECT_EQ(run.finished(number).state, PaintState::kDone);
  }
}

TEST(StudioPaint, EndsInTheMiddle) {
  StudioRun run;
  run.studio.post(PaintCommand{tiny_settings("x", 1), SeedMode::kPlusOne, 500});
  run.until([](const Snapshot& now) { return now.running() != nullptr; });
}

TEST(StudioPaint, PaintRecallPaintGivesTheSameBytes) {
  StudioRun run;
  PaintSettings settings = tiny_settings("again \xc3\xa9", 12);
  settings.negative_prompt = "not this";
  settings.sampling.set(setting::kGuidance, 2.5);
  settings.sampling.set(setting::kTemperature, 0.9);
  settings.sampling.set(setting::kTopK, 20);
  settings.sampling.set(setting::kTopP, 0.95);
  settings.method = decode_method("gsd");
  settings.method.window = 5;
  settings.storage = DType::kBF16;
  run.studio.post(PaintCommand{settings});
  const Painting first = run.finished(1);
  ASSERT_EQ(first.state, PaintState::kDone) << format_error(first.error);
  const PaintSettings recalled = settings_of(*read_metadata(first.file).facts);
  run.studio.post(PaintCommand{recalled});
  const Painting again = run.finished(2);
  EXPECT_NE(again.file, first.file);
  EXPECT_EQ(get_file(again.file), get_file(first.file));
}

}  // namespace
}  // namespace tessera
