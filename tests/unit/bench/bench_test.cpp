// What the benchmarks read and draw: acceptance traces, refused by key; plots whose marks stand
// where the figures say.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/bench/batch_bench.h"
#include "apps/bench/decode_bench.h"
#include "apps/bench/plot.h"
#include "tests/support/temp_folder.h"

namespace tessera {
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

// The x of every mark of a kind.
std::vector<double> marks(const std::string& svg, const std::string& fill) {
  std::vector<double> out;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos;
       at = svg.find("<circle", at + 1)) {
    const std::string mark = svg.substr(at, svg.find("/>", at) - at);
    if (mark.find("fill=\"" + fill) == std::string::npos) continue;
    out.push_back(std::stod(mark.substr(mark.find("cx=\"") + 4)));
  }
  return out;
}

TEST(Plot, MarksStandInOrderAndNamesAreEscaped) {
  const PlotPoint points[] = {{"a <b> & c", 1, 1, 1, 5, 4, 6, false},
                              {"two", 3, 2, 4, 7, 6, 8, true}};
  const std::string svg = scatter_svg({"x", "y", "title"}, points);
  EXPECT_NE(svg.find("a &lt;b> &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  const auto empty = marks(svg, "white"), filled = marks(svg, "#");
  ASSERT_EQ(empty.size(), 2u) << "one in the plot, one in the legend";
  ASSERT_EQ(filled.size(), 2u);
  EXPECT_LT(empty[0], filled[0]) << "1 stands left of 3";
  EXPECT_EQ(empty[1], filled[1]) << "the legend is one column";
}

TEST(Plot, PointsOfOneNameAreOneSeries) {
  const PlotPoint points[] = {
      {"a", 1, 1, 1, 5, 4, 6, true}, {"b", 2, 2, 2, 6, 6, 6, false}, {"a", 3, 2, 4, 7, 6, 8, true}};
  const std::string svg = scatter_svg({"x", "y", "title"}, points);
  EXPECT_EQ(marks(svg, "#").size(), 3u) << "two in the plot, one in the legend";
  EXPECT_EQ(marks(svg, "white").size(), 2u);
  EXPECT_NE(svg.find("stroke-width=\"1.5\""), std::string::npos) << "they are joined";
}

TEST(Plot, NothingAndASinglePointAreDrawn) {
  EXPECT_NE(scatter_svg({"x", "y", "t"}, {}).find("</svg>"), std::string::npos);
  const PlotPoint one[] = {{"one", 2, 2, 2, 3, 3, 3, true}};
  const std::string svg = scatter_svg({"x", "y", "t"}, one);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
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

}  // namespace
}  // namespace tessera
