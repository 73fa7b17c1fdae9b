// The cost model against the planning table that it was published with: an H200 at 4.3 TB/s and
// 790 Tflop/s, batch 1, two branches, bf16.
#include "apps/lab/bench/cost_model.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/families/open_model.h"

namespace tessera::cost_model_test {
namespace {

constexpr DeviceRates kPlanned{.bytes_per_second = 4.3e12, .flops_per_second = 790e12};

struct Planned {
  const char* name;
  double read_gb, kv_gb;  // a step's bytes: parameters; keys and values of both branches, mean
  std::int64_t layers, codes;
  double floor_ms, first_ms;  // T(1)
  double ratios[4];           // T(32), T(64), T(96), T(128) over T(1)
};

// The table's own figures have two or three digits.
constexpr Planned kTable[] = {
    {"LlamaGen-B 384", 0.20, 0.02, 12, 16384, 0.050, 0.16, {1.04, 1.10, 1.22, 1.37}},
    {"LlamaGen-L 384", 0.65, 0.06, 24, 16384, 0.164, 0.38, {1.02, 1.08, 1.21, 1.38}},
    {"LlamaGen-XL 512", 1.50, 0.23, 36, 16384, 0.404, 0.74, {1.01, 1.07, 1.22, 1.41}},
    {"LlamaGen-3B 384", 6.08, 0.18, 24, 16384, 1.46, 1.82, {1.01, 1.10, 1.33, 1.64}},
    {"Janus-Pro-1B", 2.55, 0.13, 24, 16384, 0.622, 0.89, {1.01, 1.09, 1.29, 1.56}},
    {"Janus-Pro-7B", 12.3, 0.31, 30, 16384, 2.94, 3.52, {1.01, 1.10, 1.34, 1.66}},
    {"Lumina 768", 13.0, 1.3, 32, 8192, 3.33, 3.99, {1.01, 1.09, 1.31, 1.61}},
    {"Lumina 1024", 13.0, 2.25, 32, 8192, 3.55, 4.27, {1.01, 1.08, 1.29, 1.57}},
    {"Emu3 720", 14.2, 1.09, 32, 32768, 3.56, 4.24, {1.01, 1.10, 1.32, 1.64}},
};

StepShape shape_of(const Planned& row) {
  return {.parameters = row.read_gb * 1e9 / 2,
          .bytes_a_parameter = 2,
          .kv_bytes_a_row = row.kv_gb * 1e9 / 2,  // of one sequence, at one "row" that is the mean
          .layers = row.layers,
          .codes = row.codes};
}

StepPass pass_of(std::int64_t window) { return {.window = window, .live_rows = 1}; }

TEST(CostModel, PlanningTableComesOut) {
  for (const Planned& row : kTable) {
    const StepShape shape = shape_of(row);
    const double first = predict_step(kPlanned, shape, pass_of(1)).total();
    // The largest deviation is 1.7 %, LlamaGen-L's.
    EXPECT_NEAR(first * 1e3 / row.first_ms, 1.0, 0.02) << row.name;
    EXPECT_NEAR(floor_seconds(kPlanned, shape, pass_of(1)) * 1e3 / row.floor_ms, 1.0, 0.025)
        << row.name;
    const std::int64_t windows[] = {32, 64, 96, 128};
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(predict_step(kPlanned, shape, pass_of(windows[i])).total() / first, row.ratios[i],
                  0.012)
          << row.name << ", window " << windows[i];
    }
  }
}

// Bytes of a step in the same plan, from the shapes of the families.
TEST(CostModel, ParametersOfAStepComeFromShapes) {
  const auto read_gb = [](const char* name) {
    const StepShape shape = step_shape(open_model(name).spec.model, DType::kBF16, DType::kBF16);
    return shape.parameters * shape.bytes_a_parameter * 1e-9;
  };
  EXPECT_NEAR(read_gb("random:janus-pro:1B"), 2.55, 0.01);
  EXPECT_NEAR(read_gb("random:janus-pro:7B"), 12.3, 0.1);
  EXPECT_NEAR(read_gb("random:llamagen:B"), 0.20, 0.005);
  EXPECT_NEAR(read_gb("random:llamagen:L"), 0.65, 0.01);
  EXPECT_NEAR(read_gb("random:llamagen:XL"), 1.50, 0.01);
  EXPECT_NEAR(read_gb("random:llamagen:3B"), 6.08, 0.03);
  StreamModelConfig emu3;
  emu3.codes = 32768;
  emu3.transformer = {
      .layers = 32, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn_width = 14336};
  const StepShape shape = step_shape(emu3, DType::kBF16, DType::kBF16);
  EXPECT_NEAR(shape.parameters * 2e-9, 14.2, 0.1);
  // 1.09 GB of keys and values for both branches at half of 8,193 tokens.
  EXPECT_NEAR(2 * shape.kv_bytes_a_row * 8193 / 2 * 1e-9, 1.09, 0.03);
}

TEST(CostModel, EachPartGrowsWithWhatItCounts) {
  const StepShape shape = shape_of(kTable[4]);
  const auto time = [&](const StepPass& pass) { return predict_step(kPlanned, shape, pass); };
  const StepTime one = time(pass_of(1)), wide = time(pass_of(64));
  EXPECT_DOUBLE_EQ(one.attention, wide.attention) << "windows share the keys";
  EXPECT_DOUBLE_EQ(one.gaps, wide.gaps);
  EXPECT_GT(wide.linear, one.linear);
  EXPECT_GT(wide.dist, one.dist);
  const StepTime four = time({.images = 4, .window = 1, .live_rows = 1});
  EXPECT_DOUBLE_EQ(four.attention, 4 * one.attention);
  EXPECT_LT(four.linear, 1.01 * one.linear) << "few rows share the weights";
  // Where arithmetic rules, half the rows take half the time.
  EXPECT_NEAR(time(pass_of(4096)).linear / time(pass_of(2048)).linear, 2.0, 1e-3);
}

}  // namespace
}  // namespace tessera::cost_model_test
