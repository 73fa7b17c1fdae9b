// Generating without a window, on the seeded tiny model: order, seeds, stops counted in passes,
// files that hold what is shown, failures that stay their own.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "apps/runtime/metadata.h"
#include "apps/studio/generate_job.h"
#include "apps/studio/settings.h"
#include "engine/core/io.h"
#include "tests/support/fault_scope.h"
#include "tests/support/scarce_memory.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::generate_test {
namespace {

TEST(StudioGenerate, ImagesComeInOrderAndEqualTheirFiles) {
  StudioRun run;
  ASSERT_TRUE(run.studio.post(GenerateCommand{tiny_settings("A red ball", 5), SeedMode::kPlusOne, 3}));
  ASSERT_EQ(run.studio.snapshot().generations.size(), 3u) << "queued images show at once";
  std::vector<std::uint64_t> order;
  run.until([&](const Snapshot& now) {
    for (const Generation& one : now.generations) {
      if (one.state != GenerateState::kDone) continue;
      if (std::find(order.begin(), order.end(), one.number) == order.end()) {
        order.push_back(one.number);
      }
    }
    return order.size() == 3;
  });
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3}));
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const Generation one = *run.studio.snapshot().generation(number);
    EXPECT_EQ(one.settings.seed, 4 + number);
    EXPECT_EQ(one.facts.seed, 4 + number);
    EXPECT_EQ(one.file.filename(), "a-red-ball_" + std::to_string(4 + number) + ".png");
    ASSERT_TRUE(one.image);
    EXPECT_EQ(read_own_png(one.file).rgb, one.image->rgb);
    const ImageMetadata metadata = read_metadata(one.file);
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

TEST(StudioGenerate, FilesAreNeverReplaced) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("x", 1), SeedMode::kLocked, 3});
  EXPECT_EQ(run.finished(1).file.filename(), "x_1.png");
  EXPECT_EQ(run.finished(2).file.filename(), "x_1_2.png");
  EXPECT_EQ(run.finished(3).file.filename(), "x_1_3.png");
  EXPECT_EQ(get_file(run.finished(1).file), get_file(run.finished(3).file)) << "same seed";
}

// A look at each, no file written next to it.
TEST(StudioGenerate, TakenNamesCostLittle) {
  TempFolder folder;
  ImageFacts facts;
  facts.prompt = "x";
  for (int i = 1; i <= 100; ++i) {
    put_file(folder / (i == 1 ? "x_0.png" : "x_0_" + std::to_string(i) + ".png"), "mine");
  }
  const CallCounter calls;
  EXPECT_EQ(save_generation(folder.path(), Image(2, 2), facts, false).filename(), "x_0_101.png");
  EXPECT_LT(calls.count(), 150u);
  EXPECT_EQ(get_file(folder / "x_0_100.png"), "mine");
}

// What the task alone gives, byte for byte, whatever was generated before.
TEST(StudioGenerate, EqualsThePipeline) {
  StudioRun run;
  GenerateSettings settings = tiny_settings("one", 9);
  settings.method = decode_method("sjd");
  run.studio.post(GenerateCommand{tiny_settings("zero", 1)});
  run.studio.post(GenerateCommand{settings});
  const Generation got = run.finished(2);
  GenerateOptions options;
  options.model = "test:tiny";
  options.method = settings.method;
  Runtime runtime;
  GenerateTask task(runtime, options);
  struct Keep : GenerateListener {
    void on_image(GeneratedImage&& image) override { kept = std::move(image); }
    GeneratedImage kept;
  } keep;
  task.run(std::vector{task.prepare({.prompt = "one", .seed = 9})}, keep);
  ASSERT_TRUE(got.image);
  EXPECT_EQ(got.image->rgb, keep.kept.image.rgb);
  const ImageTexts texts = image_texts(keep.kept.facts, RecordFacts::kAll);
  EXPECT_EQ(get_file(got.file), encode_png(keep.kept.image, texts.texts, texts.xmp));
  EXPECT_EQ(got.acceptance, keep.kept.meters.acceptance());
}

TEST(StudioGenerate, ARandomSeedIsFilledInAndGeneratesAgain) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("r", 3), SeedMode::kRandom, 2});
  const Generation first = run.finished(1), second = run.finished(2);
  EXPECT_NE(first.settings.seed, second.settings.seed);
  run.studio.post(GenerateCommand{first.settings});
  EXPECT_EQ(run.finished(3).image->rgb, first.image->rgb);
}

// An image that ends at a pass of its own choosing, counted, not timed.
TEST(GenerateWatch, AStopRequestIsAnsweredAfterTheRunningPass) {
  GenerateOptions options;
  options.model = "test:tiny";
  options.threads = 1;
  Runtime runtime;
  GenerateTask task(runtime, options);
  const auto requests = std::vector{task.prepare({.prompt = "one", .seed = 3})};
  for (const std::int64_t stop_at : {1, 2, 20, 37}) {
    StopRequest stop_request;
    stop_request.begin(4);
    Generation generation;
    generation.number = 4;
    std::int64_t heard_after_stop_request = 0;
    bool requested = false;
    std::shared_ptr<const Image> shown;
    GenerateWatch watch(generation, stop_request, task, [&](const Generation& now) {
      if (requested && now.facts.passes > stop_at) ++heard_after_stop_request;
      if (now.facts.passes == stop_at) requested = (stop_request.stop_request(0), true);
      shown = now.image;
    });
    task.run(requests, watch);
    const GeneratedImage& image = watch.image();
    EXPECT_EQ(image.status, ImageStatus::kStopped);
    EXPECT_EQ(image.facts.passes, stop_at) << "the pass in which it was wished was the last";
    EXPECT_EQ(generation.passes_after_stop, 1);
    EXPECT_EQ(heard_after_stop_request, 0);
    const std::int64_t columns = task.spec().model.grid_cols;
    EXPECT_EQ(image.rows_done, stop_at / columns);
    EXPECT_EQ(image.image.rgb.empty(), image.rows_done == 0);
  }
}

// From outside: the partial on show is the partial in the file, and its rows are the whole
// image's codes so far.
TEST(StudioGenerate, AStoppedImageIsKeptAndSaved) {
  StudioRun run;
  std::uint64_t number = 0;
  Generation partial;
  // The tiny model is quick: the request may come too late; another image then.
  for (int attempt = 0; attempt < 500 && partial.state != GenerateState::kStopped; ++attempt) {
    run.studio.post(GenerateCommand{tiny_settings("stop me", 8)});
    ++number;
    run.until([&](const Snapshot& now) {
      const Generation& one = *now.generation(number);
      return one.rows_done >= 1 || one.state == GenerateState::kDone;
    });
    run.studio.post(StopCommand{});
    partial = run.finished(number);
  }
  ASSERT_EQ(partial.state, GenerateState::kStopped);
  EXPECT_EQ(partial.passes_after_stop, 1);
  ASSERT_TRUE(partial.image);
  EXPECT_TRUE(partial.file.filename().string().ends_with("_partial.png")) << partial.file;
  EXPECT_EQ(read_own_png(partial.file).rgb, partial.image->rgb);
  EXPECT_EQ(read_metadata(partial.file).facts->tokens, partial.facts.tokens);
  EXPECT_LT(partial.facts.tokens, partial.grid_rows * partial.grid_columns);
  run.studio.post(GenerateCommand{tiny_settings("stop me", 8)});
  const Generation whole = run.finished(number + 1);
  EXPECT_EQ(whole.state, GenerateState::kDone) << "an old wish ends no other image";
  for (std::size_t at = 0; at < partial.marks->size(); ++at) {
    if ((*partial.marks)[at].id < 0) continue;
    EXPECT_EQ((*partial.marks)[at].id, (*whole.marks)[at].id) << at;
  }
}

TEST(StudioGenerate, AStopEndsNoImageThatNobodySawRunning) {
  StudioRun run;
  for (std::uint64_t number = 1; number <= 10; ++number) {
    run.studio.post(GenerateCommand{tiny_settings("unseen", number)});
    std::this_thread::sleep_for(std::chrono::milliseconds(number));
    run.studio.post(StopCommand{});
    EXPECT_EQ(run.finished(number).state, GenerateState::kDone);
  }
}

TEST(StudioGenerate, SeedsAreWhatAFileCanSay) {
  StudioRun run;
  const GenerateSettings large = tiny_settings("seed", (std::uint64_t{1} << 63) + 5);
  run.studio.post(CompareCommand{large, large});
  run.studio.post(GenerateCommand{large});
  for (const Generation& one : run.studio.snapshot().generations) EXPECT_EQ(one.settings.seed, 5u);
  EXPECT_EQ(run.finished(2).file.filename(), "seed_5_2.png");
}

TEST(StudioGenerate, BadRequestsFailAlone) {
  StudioRun run;
  GenerateSettings bad = tiny_settings("x", 1);
  bad.width = 12345;
  bad.height = 7;
  run.studio.post(GenerateCommand{bad});
  run.studio.post(GenerateCommand{tiny_settings(std::string(100000, 'x'), 1)});
  GenerateSettings no_model = tiny_settings("x", 1);
  no_model.model = "no-such-model";
  run.studio.post(GenerateCommand{no_model});
  run.studio.post(GenerateCommand{tiny_settings("good", 1)});
  EXPECT_EQ(run.finished(1).error.code, "E_GEOMETRY");
  EXPECT_EQ(run.finished(2).state, GenerateState::kFailed);
  EXPECT_FALSE(run.finished(2).error.code.empty());
  EXPECT_EQ(run.finished(3).error.code, "E_MODEL_MISSING");
  EXPECT_EQ(run.finished(4).state, GenerateState::kDone);
  ASSERT_EQ(run.studio.snapshot().problems.size(), 1u) << "the model alone is a problem of all";
  EXPECT_EQ(run.studio.snapshot().problems[0].code, "E_MODEL_MISSING");
}

// Wherever memory ends, the same image is generated once there is some again.
TEST(StudioGenerate, AModelThatWasHalfLoadedIsLoadedAnew) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  StudioRun run;
  const GenerateSettings settings = tiny_settings("scarce", 3);
  GenerateSettings other = settings;  // so that the model has to be loaded again
  other.storage = DType::kBF16;
  std::uint64_t number = 0;
  std::int64_t failures = 0;
  for (std::int64_t spare = 0;; spare += 1 + spare / 16) {
    run.studio.post(GenerateCommand{other});
    ASSERT_EQ(run.finished(++number).state, GenerateState::kDone) << spare;
    {
      const ScarceMemory scarce(std::size_t{1} << 15, spare, ScarceMemory::Threads::kOthers);
      run.studio.post(GenerateCommand{settings});
      const Generation one = run.finished(++number);
      if (one.state == GenerateState::kDone) break;
      ++failures;
    }
    run.studio.post(GenerateCommand{settings});
    ASSERT_EQ(run.finished(++number).state, GenerateState::kDone) << spare;
  }
  EXPECT_GE(failures, 10);
  std::printf("memory ended in %lld places\n", static_cast<long long>(failures));
}

// Less room than the plan, while its lion's share lies in memory already.
TEST(StudioGenerate, ALoadedModelNeedsNoRoomForItsWeights) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("first", 1)});
  ASSERT_EQ(run.finished(1).state, GenerateState::kDone);
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit little = before;
  little.rlim_cur = pages * 4096 + run.studio.snapshot().status.planned_bytes * 3 / 4;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  run.studio.post(GenerateCommand{tiny_settings("second", 2)});
  const Generation second = run.finished(2);
  GenerateSettings other = tiny_settings("third", 3);
  other.storage = DType::kBF16;
  run.studio.post(GenerateCommand{other});
  const Generation third = run.finished(3);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(second.state, GenerateState::kDone) << format_error(second.error);
  EXPECT_EQ(third.error.code, "E_MEMORY_PLAN") << "a model that is not loaded is refused";
}

TEST(StudioGenerate, AFolderThatCannotBeMadeFailsTheImage) {
  TempFolder other;
  put_file(other / "file", "");
  StudioOptions options;
  options.folder = other / "file" / "below";
  StudioRun run(options);
  run.studio.post(GenerateCommand{tiny_settings("x", 1)});
  const Generation failed = run.finished(1);
  EXPECT_EQ(failed.state, GenerateState::kFailed);
  EXPECT_EQ(failed.error.kind, ErrorKind::kStorage);
  EXPECT_TRUE(failed.image) << "what was generated is still on show";
}

TEST(StudioGenerate, TheQueueIsBoundedAndCanBeThinned) {
  StudioRun run;
  EXPECT_FALSE(run.studio.post(GenerateCommand{tiny_settings("x", 1), SeedMode::kLocked, 0}));
  ASSERT_TRUE(run.studio.post(GenerateCommand{tiny_settings("x", 1), SeedMode::kLocked, 900}));
  EXPECT_FALSE(run.studio.post(GenerateCommand{tiny_settings("x", 1), SeedMode::kLocked, 900}));
  EXPECT_EQ(run.studio.snapshot().generations.size(), 900u) << "all or nothing";
  for (std::uint64_t number = 3; number <= 900; ++number) {
    EXPECT_TRUE(run.studio.post(DropGenerationCommand{number}));
  }
  run.finished(2);
  for (std::uint64_t number = 899; number <= 900; ++number) {
    EXPECT_EQ(run.studio.snapshot().generation(number), nullptr);
  }
  run.studio.post(GenerateCommand{tiny_settings("x", 1)});
  EXPECT_EQ(run.finished(901).state, GenerateState::kDone);
  run.studio.post(DropGenerationCommand{901});
  EXPECT_EQ(run.studio.snapshot().generation(901), nullptr);
}

TEST(StudioGenerate, ComparesTwoMethodsAtOneSeed) {
  StudioRun run;
  GenerateSettings exact = tiny_settings("pair", 2), grouped = exact;
  exact.method = decode_method("sjd");
  grouped.method = decode_method("gsd");
  ASSERT_TRUE(run.studio.post(CompareCommand{exact, grouped}));
  EXPECT_EQ(run.studio.snapshot().compare_left, 1u);
  EXPECT_EQ(run.studio.snapshot().compare_right, 2u);
  EXPECT_TRUE(run.finished(1).facts.preserves_distribution);
  EXPECT_FALSE(run.finished(2).facts.preserves_distribution);
}

// A reader that never comes: the worker gets its images done; nothing final is lost.
TEST(StudioGenerate, ASlowReaderMissesNoEnd) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("x", 1), SeedMode::kPlusOne, 8});
  const std::filesystem::path last = run.folder / "pictures" / "x_8.png";
  for (int i = 0; i < 60000 && !file_exists(last); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(file_exists(last)) << "generating does not wait for anybody to look";
  for (std::uint64_t number = 1; number <= 8; ++number) {
    EXPECT_EQ(run.finished(number).state, GenerateState::kDone);
  }
}

TEST(StudioGenerate, EndsInTheMiddle) {
  StudioRun run;
  run.studio.post(GenerateCommand{tiny_settings("x", 1), SeedMode::kPlusOne, 500});
  run.until([](const Snapshot& now) { return now.running() != nullptr; });
}

TEST(StudioGenerate, GenerateRecallGenerateGivesTheSameBytes) {
  StudioRun run;
  GenerateSettings settings = tiny_settings("again \xc3\xa9", 12);
  settings.negative_prompt = "not this";
  settings.sampling.set(setting::kGuidance, 2.5);
  settings.sampling.set(setting::kTemperature, 0.9);
  settings.sampling.set(setting::kTopK, 20);
  settings.sampling.set(setting::kTopP, 0.95);
  settings.method = decode_method("gsd");
  settings.method.window = 5;
  settings.storage = DType::kBF16;
  run.studio.post(GenerateCommand{settings});
  const Generation first = run.finished(1);
  ASSERT_EQ(first.state, GenerateState::kDone) << format_error(first.error);
  const GenerateSettings recalled = settings_of(*read_metadata(first.file).facts);
  run.studio.post(GenerateCommand{recalled});
  const Generation again = run.finished(2);
  EXPECT_NE(again.file, first.file);
  EXPECT_EQ(get_file(again.file), get_file(first.file));
}

}  // namespace
}  // namespace tessera::generate_test
