// What types of weights cost along a text: more with fewer bits, nothing as f32.
#include "apps/lab/bench/quality_bench.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/backend/factories.h"
#include "tests/support/temp_folder.h"

namespace tessera::quality_bench_test {
namespace {

const std::string kModel =
    std::string(TESSERA_SOURCE_DIR) + "/tests/golden/gguf_text/qwen2_f16.gguf";

TEST(TextQuality, FewerBitsCostMore) {
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "A cube of " + std::to_string(i * i) + " stones. ";
  put_file(folder / "text.txt", text);
  const auto backend = make_cpu_backend({.threads = 2});
  std::map<std::string, nlohmann::ordered_json> lines;
  BenchReport report({}, *backend, [&](const nlohmann::ordered_json& line) {
    lines.emplace(line.at("name").get<std::string>(), line);
  });
  run_text_quality({.model = kModel,
                    .text = (folder / "text.txt").string(),
                    .kept = kept_models(*backend),
                    .pieces = 3},
                   *backend, report);
  ASSERT_EQ(lines.size(), 9u);
  const auto kl = [&](const char* type) {
    return lines.at(std::string("quality.") + type).at("kl").at("mean").get<double>();
  };
  EXPECT_EQ(lines.at("quality.f32").at("tokens"), 3 * 127);
  EXPECT_EQ(kl("f32"), 0);
  EXPECT_GT(kl("bf16"), 0);
  EXPECT_GT(kl("q8"), kl("bf16"));
  EXPECT_GT(kl("q4"), 2 * kl("q8"));
  // What inputs of 8 bits add; the weights' own share stays.
  EXPECT_LT(kl("q8.precise"), kl("q8"));
  EXPECT_LT(kl("q4.precise"), kl("q4"));
  EXPECT_GT(kl("q4.precise"), kl("q8.precise"));
  // A cache alone costs less than weights and a cache.
  EXPECT_GT(kl("f32.kv-bf16"), 0);
  EXPECT_LT(kl("f32.kv-bf16"), kl("bf16"));
  EXPECT_GT(kl("f32.kv-q8"), kl("f32.kv-bf16"));
  EXPECT_LT(kl("f32.kv-q8"), kl("q4"));
  const auto row_bytes = [&](const char* name) {
    return lines.at(name).at("cached_row_bytes").get<std::size_t>();
  };
  EXPECT_EQ(row_bytes("quality.f32.kv-bf16") * 2, row_bytes("quality.f32"));
  EXPECT_LT(row_bytes("quality.f32.kv-q8"), row_bytes("quality.f32.kv-bf16"));
  EXPECT_GT(lines.at("quality.f32").at("perplexity"), 1);
  EXPECT_EQ(lines.at("quality.f32").at("same_top1"), 1);
}

TEST(TextQuality, EmptyTextIsRefused) {
  TempFolder folder;
  put_file(folder / "text.txt", "");
  const auto backend = make_cpu_backend({.threads = 1});
  BenchReport report({}, *backend, {});
  EXPECT_THROW(
      run_text_quality(
          {.model = kModel, .text = (folder / "text.txt").string(), .kept = {}, .pieces = 3},
          *backend, report),
      Error);
}

}  // namespace
}  // namespace tessera::quality_bench_test
