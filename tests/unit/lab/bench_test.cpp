// What the benchmarks read: acceptance traces, refused by key.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/lab/bench/batch_bench.h"
#include "apps/lab/bench/decode_bench.h"
#include "apps/lab/bench/text_bench.h"
#include "tests/support/temp_folder.h"

namespace tessera::bench_test {
namespace {

std::string place_of(const std::filesystem::path& path) {
  try {
    read_accept_trace(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.info().where;
  }
  return "accepted";
}

TEST(AcceptTrace, IsReadFromMetersOrFromTheImageThatHoldsThem) {
  TempFolder folder;
  const auto path = folder / "trace.json";
  put_file(path, R"({"tested_by_depth": [10, 4], "accepted_by_depth": [5]})");
  EXPECT_EQ(read_accept_trace(path), (std::vector<double>{0.5, 0.0}));
  put_file(path, R"({"meters": {"tested_by_depth": [8], "accepted_by_depth": [8]}, "x": 1})");
  EXPECT_EQ(read_accept_trace(path), std::vector<double>{1.0});
}

TEST(AcceptTrace, LinesAreATraceEachAndABadOneIsNamed) {
  TempFolder folder;
  const auto path = folder / "traces.jsonl";
  const std::string good = R"({"tested_by_depth": [10], "accepted_by_depth": [5]})";
  put_file(path, good + "\n\n" + R"({"tested_by_depth": [4], "accepted_by_depth": [4]})" + "\n");
  EXPECT_EQ(read_accept_traces(path), (std::vector<std::vector<double>>{{0.5}, {1.0}}));
  put_file(path, good + "\n{}\n");
  try {
    read_accept_traces(path);
    ADD_FAILURE() << "a line without meters";
  } catch (const Error& error) {
    EXPECT_NE(error.info().file.find(":2"), std::string::npos) << error.info().file;
  }
  put_file(path, "\n");
  EXPECT_THROW(read_accept_traces(path), Error);
}

TEST(AcceptTrace, IsRefusedByKey) {
  TempFolder folder;
  const auto path = folder / "trace.json";
  put_file(path, R"({"accepted_by_depth": [5]})");
  EXPECT_NE(place_of(path).find("tested_by_depth"), std::string::npos);
  put_file(path, R"({"tested_by_depth": [0], "accepted_by_depth": [0]})");
  EXPECT_NE(place_of(path).find("tested_by_depth"), std::string::npos);
  put_file(path, R"({"tested_by_depth": [], "accepted_by_depth": []})");
  EXPECT_NE(place_of(path), "accepted");
  put_file(path, "not JSON");
  EXPECT_NE(place_of(path), "accepted");
  EXPECT_NE(place_of(folder / "none.json"), "accepted");
}

// Phases of every group are there, and both batch sizes generated the same images.
TEST(BatchBench, GeneratesTheSameImagesAtEveryBatchSize) {
  BatchBenchOptions options;
  options.pipeline.model = "test:tiny";
  options.pipeline.threads = 1;
  options.batch_sizes = {1, 3};
  options.prompts = 7;  // groups of 3, 3 and 1
  const auto backend = make_backend("cpu", {.threads = 1});
  std::vector<nlohmann::ordered_json> lines;
  BenchReport report({}, *backend, [&](const auto& object) { lines.push_back(object); });
  run_batch_bench(options, report);
  ASSERT_EQ(lines.size(), 2u);
  for (const auto& line : lines) {
    EXPECT_EQ(line["pictures"], 7);
    EXPECT_EQ(line["same_tokens"], 7);
    EXPECT_EQ(line["decode_ratio"]["asked"], 3) << "one ratio a group";
    for (const char* phase : {"prefill_seconds", "decode_seconds", "pixel_seconds"}) {
      EXPECT_GT(line[phase], 0.0) << phase;
    }
    EXPECT_LE(line["judge_seconds"], line["decode_seconds"]);
  }
  EXPECT_EQ(lines[0]["decode_ratio"]["mean"], 1.0);
}

// Every prompt length with every number of sequences; more cached rows are more bytes of a pass.
TEST(TextBench, TimesPromptsAndPassesOfEachCase) {
  const auto backend = make_backend("cpu", {.threads = 1});
  std::vector<nlohmann::ordered_json> lines;
  BenchReport report({}, *backend, [&](const auto& object) { lines.push_back(object); });
  run_text_bench({.size = "B",
                  .storage = DType::kQ8,
                  .rows = {3, 7},
                  .batch_sizes = {1, 2},
                  .tokens = 2,
                  .runs = 1},
                 *backend, report);
  ASSERT_EQ(lines.size(), 4u);
  constexpr int kRowBytes = 2 * 12 * 768 * 2;  // keys and values of all layers, bf16
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& line = lines[i];
    EXPECT_EQ(line["shape"]["S"], i < 2 ? 3 : 7);
    EXPECT_EQ(line["shape"]["b"], i % 2 + 1);
    EXPECT_EQ(line["reps"], 2);
    EXPECT_GT(line["prefill_s"], 0.0);
    EXPECT_GT(line["prefill_cpu_s"], 0.0);
    EXPECT_GT(line["t_us"]["median"], 0.0);
  }
  const auto bytes = [&](std::size_t i) { return lines[i]["bytes"].get<std::int64_t>(); };
  EXPECT_EQ(bytes(1) - bytes(0), 4 * kRowBytes);
  EXPECT_EQ(bytes(2) - bytes(0), 4 * kRowBytes);
  EXPECT_EQ(bytes(3) - bytes(2), 8 * kRowBytes);
}

TEST(TextBench, ASizeThatIsNotPublishedIsRefusedByFlag) {
  const auto backend = make_backend("cpu", {.threads = 1});
  BenchReport report({}, *backend, [](const auto&) {});
  try {
    run_text_bench({.size = "Q"}, *backend, report);
    ADD_FAILURE() << "a size of nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().where, "--random llamagen:Q");
    EXPECT_EQ(error.exit_code(), 2);
  }
}

}  // namespace
}  // namespace tessera::bench_test
