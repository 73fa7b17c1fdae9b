// The table of a check: what meets a target, what misses it, what was not measured.
#include "apps/lab/bench/device_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::device_table_test {
namespace {

using Json = nlohmann::json;

Json sweep(const char* dims, int window, double eff, double over_first, double miss) {
  return {{"name", "step.sweep"},
          {"quick", false},
          {"model", {{"dims", dims}}},
          {"shape", {{"w", window}}},
          {"eff", eff},
          {"t_over_t1", over_first},
          {"miss_percent", miss},
          {"summary", std::string("step.sweep, ") + dims}};
}

Json image(const char* name, const char* impl, double us) {
  return {{"name", name},
          {"quick", false},
          {"impl", impl},
          {"model", {{"dims", "24x2048"}}},
          {"t_us", {{"median", us}}}};
}

std::string line_with(const std::vector<Json>& objects, const std::string& what) {
  const auto lines = device_table(objects);
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find(what) != std::string::npos;
  });
  return found == lines.end() ? "" : *found;
}

TEST(DeviceTable, WhatWasNotMeasuredMeetsNothing) {
  const auto lines = device_table({{{"name", "mem.read"}, {"summary", "mem.read: 1 GB/s"}}});
  EXPECT_EQ(lines.front(), "mem.read: 1 GB/s");
  const auto targets = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("target: ") &&
           line.find(": not measured (wanted: ") != std::string::npos;
  });
  EXPECT_EQ(targets, static_cast<std::ptrdiff_t>(lines.size()) - 1);
  EXPECT_GE(targets, 10);
}

TEST(DeviceTable, FiguresStandNextToTheirTargets) {
  const std::vector<Json> objects = {
      sweep("30x4096", 1, 0.86, 1, 3), sweep("30x4096", 32, 0.8, 1.06, -4),
      sweep("30x4096", 64, 0.7, 1.15, 15), sweep("24x2048", 1, 0.7499, 1, 0)};
  EXPECT_EQ(line_with(objects, "at 7B, of read"),
            "target: plain pass at 7B, of read bandwidth: 86.0 % (wanted: at least 85.0 %): met");
  EXPECT_TRUE(line_with(objects, "T(32)").ends_with("missed"));
  EXPECT_TRUE(line_with(objects, "T(64)").ends_with("met"));
  EXPECT_TRUE(line_with(objects, "at 1B, of read").ends_with("missed"));
  EXPECT_TRUE(line_with(objects, "worst miss").ends_with("met"));
  EXPECT_EQ(line_with(objects, "!!"), "");
}

TEST(DeviceTable, PredictionsThatMissAreFlagged) {
  const std::vector<Json> objects = {sweep("30x4096", 96, 0.5, 1.2, -18)};
  EXPECT_EQ(line_with(objects, "!!"),
            "!! step.sweep, 30x4096, window 96: the model is off by -18 %");
  EXPECT_TRUE(line_with(objects, "worst miss").ends_with("missed"));
}

TEST(DeviceTable, OtherBuildsAndCardsAreNotCompared) {
  const auto of = [](Json object, const char* git, const char* card) {
    object["git"] = git;
    object["device"] = {{"name", "cuda:0"}, {"model", card}};
    return object;
  };
  const Json old = of(sweep("30x4096", 96, 0.5, 1.2, 40), "old", "H200");
  const Json card = of(sweep("30x4096", 96, 0.5, 1.2, -30), "new", "H100");
  const Json own = of(sweep("30x4096", 96, 0.5, 1.2, 3), "new", "H200");
  EXPECT_EQ(line_with({old, card, own}, "!!"), "");
  EXPECT_TRUE(line_with({old, card, own}, "worst miss").find("3 %") != std::string::npos);
  EXPECT_NE(line_with({own, card}, "!!"), "") << "the last one counts";
}

TEST(DeviceTable, PeersAreComparedAtTheSameDimensions) {
  std::vector<Json> objects = {image("image.plain", "cuda:0", 1e6),
                               image("image.peer", "transformers eager", 9e6),
                               image("image.peer", "torch compiled", 1.6e6)};
  EXPECT_TRUE(line_with(objects, "transformers eager").ends_with("missed"));
  EXPECT_TRUE(line_with(objects, "compiled PyTorch").ends_with("met"));
  objects[0]["quick"] = true;
  EXPECT_NE(line_with(objects, "compiled PyTorch").find("not measured"), std::string::npos);
  EXPECT_EQ(device_table(objects).front(), "quick run: tiny shapes, whose figures mean nothing");
}

TEST(DeviceTable, TheLastFigureCountsAndThirtyLinesAreTheMost) {
  std::vector<Json> objects(50, sweep("30x4096", 1, 0.5, 1, 30));
  objects.push_back(sweep("30x4096", 1, 0.9, 1, 0));
  EXPECT_TRUE(line_with(objects, "at 7B, of read").ends_with("met"));
  EXPECT_EQ(device_table(objects).size(), kTableLines);
}

}  // namespace
}  // namespace tessera::device_table_test
