// Generating that goes wrong: memory that does not last for a batch, items that fail once, for ever,
// or all alike. The images that come out are the same bytes as without trouble.
#include <cstdio>
#include <new>

#include "tests/support/scarce_memory.h"
#include "tests/unit/jobs/image_run.h"

namespace tessera::image_faults_test {
namespace {

TEST_F(GenerationFaults, WhereMemoryDoesNotLastHalfIsTried) {
  ASSERT_EQ(truth_.size(), 8u);
  Heard heard;
  generate(spoiled([](const auto&, std::size_t at_work) -> std::optional<ErrorInfo> {
          if (at_work > 4) run_out_of_memory();
          if (at_work > 2) throw std::bad_alloc();
          return std::nullopt;
        }),
        heard);
  EXPECT_EQ(heard.fewer, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(heard.done, "abcdefgh");
  EXPECT_EQ(folder_.outputs(), truth_);
  EXPECT_EQ(read_job_report(folder_.out()).shards.front().at_once, 2);
}

// The batch has emitted images when memory ends: only the rest is generated again.
TEST_F(GenerationFaults, WhatWasHandedOutStays) {
  struct After final : GenerateListener {
    GenerateListener* to = nullptr;
    int left = 0;
    Flow on_progress(const GenerateProgress& progress) override {
      return to->on_progress(progress);
    }
    void on_image(GeneratedImage&& image) override {
      if (left-- == 0) throw std::bad_alloc();
      to->on_image(std::move(image));
    }
  };
  ImageTools tools(task_);
  int runs = 0;
  tools.generate = [&](std::unique_ptr<GenerateSource> source, GenerateListener& listener) {
    After after;
    after.to = &listener;
    after.left = ++runs == 1 ? 3 : 100;
    task_.run(std::move(source), after);
  };
  Heard heard;
  generate(tools, heard);
  EXPECT_EQ(heard.done, "abcdefgh") << "each once";
  EXPECT_EQ(heard.fewer, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(runs, 2) << "eight, then the five that are left, four at once";
  EXPECT_EQ(folder_.outputs(), truth_);
}

TEST_F(GenerationFaults, AnItemThatFitsNowhereFailsAlone) {
  Heard heard;
  generate(spoiled([](const auto& request, std::size_t) -> std::optional<ErrorInfo> {
          if (is_item(request, "c")) run_out_of_memory();
          return std::nullopt;
        }),
        heard);
  EXPECT_EQ(heard.failed, "c");
  EXPECT_EQ(heard.codes, (std::vector<std::string>{"E_TEST_MEMORY"}));
  EXPECT_EQ(heard.done, "abdefgh");
  Heard again;
  generate(ImageTools(task_), again, 0, true);
  EXPECT_EQ(again.done, "c");
  EXPECT_EQ(folder_.outputs(), truth_);
}

// Blocks that are really refused, by the allocator, at every size at which it matters.
TEST_F(GenerationFaults, RefusedBlocksCostNoImage) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  // Prompts so long that the cache of a batch is larger than any other block.
  for (SettledItem& item : items_) item.item.prompt += " " + std::string(300, 'a');
  Heard undisturbed;
  generate(ImageTools(task_), undisturbed);
  truth_ = folder_.outputs();
  int halved = 0, whole = 0;
  for (std::size_t bytes = std::size_t{1} << 22; bytes >= 4096; bytes /= 2) {
    folder_.clear();
    Runtime runtime;
    GenerateTask task(runtime, options());
    task.load();
    Heard heard;
    bool ended = false;
    {
      BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
      const std::vector<std::size_t> wanted = store.wanted(false);
      const ImageTools tools(task);
      const ScarceMemory scarce(bytes);
      try {
        generate_images(tools, items_, wanted, store, {.batch_size = 8}, heard);
      } catch (const Error& error) {
        ended = error.info().code == "E_BATCH_FAILING" || error.info().kind == ErrorKind::kMemory;
        EXPECT_TRUE(ended) << error.what();
      }
      if (scarce.refused() > 0 && !ended && heard.failed.empty()) ++halved;
      if (scarce.refused() == 0) ++whole;
    }
    Heard rest;
    generate(ImageTools(task_), rest, 0, true);
    ASSERT_EQ(folder_.outputs(), truth_) << bytes;
    for (const char id : heard.done) ASSERT_EQ(rest.done.find(id), std::string::npos) << bytes;
    if (ended) break;  // nothing fits any more
  }
  std::printf("%d runs went on with fewer at once, %d had memory enough\n", halved, whole);
  EXPECT_GE(halved, 1);
  EXPECT_GE(whole, 1);
}

TEST_F(GenerationFaults, FiveAlikeInARowEndTheRun) {
  Heard heard;
  const ImageTools tools =
      spoiled([](const auto& request, std::size_t at_work) -> std::optional<ErrorInfo> {
        if (at_work > 1) run_out_of_memory();  // so that they come one by one
        if (is_item(request, "a")) return std::nullopt;
        return ErrorInfo{.code = "E_LOGITS", .expected = "numbers", .found = "NaN"};
      });
  try {
    generate(tools, heard);
    FAIL() << "the whole list was marked failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_BATCH_FAILING");
    EXPECT_EQ(error.info().found, "NaN");
    EXPECT_EQ(error.exit_code(), 1);
  }
  EXPECT_EQ(heard.done, "a");
  EXPECT_EQ(heard.failed, "bcdef") << "the rest is pending";
  Heard rest;
  generate(ImageTools(task_), rest);
  EXPECT_EQ(rest.done, "gh");
  Heard retried;
  generate(ImageTools(task_), retried, 0, true);
  EXPECT_EQ(retried.done, "bcdef");
  EXPECT_EQ(folder_.outputs(), truth_);
}

// One by one, each as the letter of its item in `outcomes` says: "." is done, others are their code.
TEST_F(GenerationFaults, WhatIsNoRowOfFive) {
  const auto failed_with = [this](const std::string& outcomes) {
    folder_.clear();
    Heard heard;
    try {
      generate(spoiled([&](const auto& request, std::size_t at_work) -> std::optional<ErrorInfo> {
              if (at_work > 1) run_out_of_memory();
              const auto at = static_cast<std::size_t>(request.facts.prompt.back() - 'a');
              if (outcomes[at] == '.') return std::nullopt;
              return ErrorInfo{.code = std::string("E_") + outcomes[at]};
            }),
            heard);
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_BATCH_FAILING");
      heard.failed += "!";
    }
    return heard.failed;
  };
  EXPECT_EQ(failed_with("AAAA.AAA"), "abcdfgh") << "a success in between";
  EXPECT_EQ(failed_with("ABABABAB"), "abcdefgh") << "two kinds";
  EXPECT_EQ(failed_with("AAAABAAA"), "abcdefgh") << "another kind in between";
  EXPECT_EQ(failed_with("AAABBBBB"), "abcdefgh!");
  EXPECT_EQ(failed_with("BAAAAA.."), "abcdef!");
}

// Files of strangers are no failure of the job: any number of them, nor do they make a row.
TEST_F(GenerationFaults, StrangersFilesAreNotCounted) {
  const auto occupy = [this](const std::string& ids) {
    folder_.clear();
    std::filesystem::create_directories(folder_.out());
    for (const char id : ids) put_file(folder_.out() / (std::string(1, id) + ".png"), "mine");
  };
  occupy("abcdefg");
  Heard seven;
  generate(ImageTools(task_), seven);
  EXPECT_EQ(seven.failed, "abcdefg");
  EXPECT_EQ(seven.codes, std::vector<std::string>(7, "E_OUTPUT_EXISTS"));
  EXPECT_EQ(seven.done, "h");
  // Nor do they end a row: none of it is done.
  occupy("cd");
  Heard row;
  const ImageTools tools =
      spoiled([](const auto& request, std::size_t at_work) -> std::optional<ErrorInfo> {
        if (at_work > 1) run_out_of_memory();
        if (is_item(request, "c") || is_item(request, "d")) return std::nullopt;
        return ErrorInfo{.code = "E_LOGITS"};
      });
  EXPECT_THROW(generate(tools, row), Error);
  EXPECT_EQ(row.failed, "abcdefg") << "the fifth of a, b, e, f, g";
}

// The journal has a record a level, and the next run tries all at once again.
TEST_F(GenerationFaults, FewerAtOnceIsRecordedOnceALevel) {
  std::vector<std::size_t> tried;
  const auto lasts_for = [&](std::size_t images) {
    ImageTools tools = spoiled([images](const auto&, std::size_t at_work) {
      if (at_work > images) run_out_of_memory();
      return std::optional<ErrorInfo>();
    });
    tools.generate = [&tried, run = tools.generate](std::unique_ptr<GenerateSource> source,
                                                    GenerateListener& listener) {
      tried.push_back(static_cast<std::size_t>(source->needs().slots));
      run(std::move(source), listener);
    };
    return tools;
  };
  Heard heard;
  generate(lasts_for(2), heard);
  EXPECT_EQ(tried, (std::vector<std::size_t>{8, 4, 2})) << "two at once for all that is left";
  const std::string journal = get_file(folder_.out() / ".tessera" / "shard-00001-of-00001.jnl");
  const auto count = [&](const std::string& what) {
    std::size_t found = 0;
    for (auto at = journal.find(what); at != std::string::npos; at = journal.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("\"at_once\":4"), 1u);
  EXPECT_EQ(count("\"at_once\":2"), 1u);
  EXPECT_EQ(count("\"at_once\""), 2u);
  for (const char* name : {"a.png", "b.png", "c.png", "d.png"}) {
    std::filesystem::remove(folder_.out() / name);
  }
  tried.clear();
  Heard resumed;
  generate(lasts_for(8), resumed);
  EXPECT_EQ(tried, (std::vector<std::size_t>{4})) << "all that is left at once";
  EXPECT_EQ(folder_.outputs(), truth_);
}

TEST_F(GenerationFaults, ItemsAreTriedAgainAsOftenAsAsked) {
  const auto fails = [this](int times) {
    return spoiled([times, count = std::make_shared<int>(0)](
                       const auto& request, std::size_t) -> std::optional<ErrorInfo> {
      if (!is_item(request, "a") || (*count)++ >= times) return std::nullopt;
      return ErrorInfo{.code = "E_ONCE", .found = "bad luck"};
    });
  };
  Heard twice;
  generate(fails(2), twice, 2);
  EXPECT_EQ(twice.retried, "aa");
  EXPECT_EQ(twice.failed, "");
  EXPECT_EQ(twice.done.size(), 8u);
  EXPECT_EQ(folder_.outputs(), truth_);
  folder_.clear();
  Heard thrice;
  generate(fails(3), thrice, 2);
  EXPECT_EQ(thrice.retried, "aa");
  EXPECT_EQ(thrice.failed, "a");
  folder_.clear();
  Heard never;
  generate(fails(1), never);
  EXPECT_EQ(never.retried, "");
  EXPECT_EQ(never.failed, "a");
  folder_.clear();
  // A stranger's file is there however often it is met.
  std::filesystem::create_directories(folder_.out());
  put_file(folder_.out() / "b.png", "mine");
  Heard stranger;
  generate(ImageTools(task_), stranger, 5);
  EXPECT_EQ(stranger.retried, "");
  EXPECT_EQ(stranger.failed, "b");
}

}  // namespace
}  // namespace tessera::image_faults_test
