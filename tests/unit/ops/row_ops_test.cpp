// The ops of an image encoder against their definitions in double precision: two GELUs, LayerNorm,
// softmax, merged rows. Same bits on every instruction set.
#include <algorithm>

#include "engine/ops/ops.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::row_ops_test {
namespace {

class RowOps : public AtPlaceAlone {};

std::vector<float> dense_grid() {
  std::vector<float> x;
  for (int i = -40000; i <= 40000; ++i) x.push_back(static_cast<float>(i) * 0.0025f);
  return x;
}

// The exponent carries its own rounding into the small side.
TEST_P(RowOps, QuickGelu) {
  const std::vector<float> x = dense_grid();
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> out(x.size());
  DeviceIo io(*backend_);
  ops::quick_gelu(*backend_, io.in(view_of(x, {n})), io.out(view_of(out, {n})));
  io.fetch();
  std::vector<double> want, tolerance;
  for (const float value : x) {
    const double v = value;
    want.push_back(v / (1.0 + std::exp(-1.702 * v)));
    tolerance.push_back((8 + 2 * std::abs(v)) * kEpsilon * std::abs(want.back()) + 2e-36);
  }
  EXPECT_TRUE(close(out, want, tolerance));
}

TEST_P(RowOps, GeluTanh) {
  const std::vector<float> x = dense_grid();
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> out(x.size());
  DeviceIo io(*backend_);
  ops::gelu_tanh(*backend_, io.in(view_of(x, {n})), io.out(view_of(out, {n})));
  io.fetch();
  std::vector<double> want, tolerance;
  for (const float value : x) {
    const double v = value;
    const double twice = 2.0 * std::sqrt(2.0 / 3.14159265358979323846) * (v + 0.044715 * v * v * v);
    want.push_back(v / (1.0 + std::exp(-twice)));
    tolerance.push_back((8 + 4 * std::abs(twice)) * kEpsilon * std::abs(want.back()) + 2e-36);
  }
  EXPECT_TRUE(close(out, want, tolerance));
}

TEST_P(RowOps, ActivationsKeepNan) {
  std::vector<float> x = {NAN, 1e30f, -1e30f, 0.0f};
  std::vector<float> out(4);
  DeviceIo io(*backend_);
  ops::gelu_tanh(*backend_, io.in(view_of(x, {4})), io.out(view_of(out, {4})));
  io.fetch();
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 1e30f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 0.0f);
  ops::quick_gelu(*backend_, io.in(view_of(x, {4})), io.out(view_of(out, {4})));
  io.fetch();
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 1e30f);
  EXPECT_EQ(out[2], 0.0f);
}

// A large common offset must not cost digits beyond those that the input has lost already.
TEST_P(RowOps, LayerNorm) {
  for (const float offset : {0.0f, 30.0f}) {
    for (const std::int64_t width : {1, 7, 16, 100, 1152}) {
      std::vector<float> x = normal(static_cast<std::size_t>(3 * width), 1, 2.0f);
      for (float& value : x) value += offset;
      const std::vector<float> weight = normal(static_cast<std::size_t>(width), 2);
      const std::vector<float> bias = normal(static_cast<std::size_t>(width), 3);
      std::vector<float> out(x.size());
      DeviceIo io(*backend_);
      ops::layer_norm(*backend_, io.in(view_of(x, {3, width})), io.in(view_of(weight, {width})),
                      io.in(view_of(bias, {width})), 1e-5f, io.out(view_of(out, {3, width})));
      io.fetch();
      std::vector<double> want, tolerance;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i % static_cast<std::size_t>(width);
        double mean = 0, squares = 0, largest = 0;
        for (std::size_t k = i - c; k < i - c + static_cast<std::size_t>(width); ++k) mean += x[k];
        mean /= static_cast<double>(width);
        for (std::size_t k = i - c; k < i - c + static_cast<std::size_t>(width); ++k) {
          squares += (x[k] - mean) * (x[k] - mean);
          largest = std::max(largest, std::abs(static_cast<double>(x[k])));
        }
        const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
        want.push_back((x[i] - mean) * factor * weight[c] + bias[c]);
        tolerance.push_back(kEpsilon * (8 * std::abs(want.back()) + 4 * std::abs(bias[c]) +
                                        12 * largest * factor * std::abs(weight[c])));
      }
      EXPECT_TRUE(close(out, want, tolerance)) << width << " offset " << offset;
    }
  }
}

// Each head by itself and with its own numbers; what stands after the heads stays.
TEST_P(RowOps, HeadNorm) {
  constexpr std::size_t kRows = 3, kHeads = 5, kRest = 9;
  for (const std::size_t dim : {2u, 16u, 72u, 128u}) {
    const std::size_t width = kHeads * dim + kRest;
    const auto side = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    const std::vector<float> before = normal(kRows * width, 1, 3.0f);
    const std::vector<float> weight = normal(kHeads * dim, 2), bias = normal(kHeads * dim, 3);
    std::vector<float> x = before;
    DeviceIo io(*backend_);
    ops::head_norm(*backend_, io.out(view_of(x, {side(kRows), side(width)})),
                   io.in(view_of(weight, {side(kHeads), side(dim)})),
                   io.in(view_of(bias, {side(kHeads), side(dim)})), 1e-5f);
    io.fetch();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t column = i % width;
      if (column >= kHeads * dim) {
        EXPECT_EQ(x[i], before[i]);
        continue;
      }
      const std::size_t first = i - column % dim;
      double mean = 0, squares = 0;
      for (std::size_t c = 0; c < dim; ++c) mean += before[first + c] / static_cast<double>(dim);
      for (std::size_t c = 0; c < dim; ++c) {
        squares += (before[first + c] - mean) * (before[first + c] - mean);
      }
      const double factor = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-5);
      const double want = (before[i] - mean) * factor * weight[column] + bias[column];
      const double size = std::abs(want) + std::abs(bias[column]) +
                          12 * factor * std::abs(weight[column]);
      ASSERT_NEAR(x[i], want, 12 * kEpsilon * size) << dim << " " << i;
    }
  }
}

TEST_P(RowOps, SoftmaxRows) {
  std::vector<float> x = normal(4 * 37, 1, 5.0f);
  x[40] = 300.0f;  // row 1 would overflow without the shift
  x[80] = NAN;     // row 2
  std::vector<float> out(x.size());
  DeviceIo io(*backend_);
  ops::softmax_rows(*backend_, io.in(view_of(x, {4, 37})), io.out(view_of(out, {4, 37})));
  io.fetch();
  for (std::size_t row : {0, 1, 3}) {
    double total = 0, sum = 0;
    for (std::size_t i = 0; i < 37; ++i) total += std::exp(static_cast<double>(x[row * 37 + i]));
    for (std::size_t i = 0; i < 37; ++i) {
      const double want = std::exp(static_cast<double>(x[row * 37 + i])) / total;
      EXPECT_NEAR(out[row * 37 + i], want, 2 * kEpsilon * want + 1e-44);
      sum += out[row * 37 + i];
    }
    EXPECT_NEAR(sum, 1.0, 1e-6);
  }
  for (std::size_t i = 74; i < 111; ++i) EXPECT_TRUE(std::isnan(out[i]));
}

TEST_P(RowOps, CombineRows) {
  const std::vector<float> x = normal(5 * 3, 1);
  const std::int32_t to[] = {2, 0, 2, 0, 2};
  const float weight[] = {0.5f, 1.0f, 0.25f, 2.0f, -1.0f};
  std::vector<float> out(4 * 3, 9.0f);
  DeviceIo io(*backend_);
  ops::combine_rows(*backend_, io.in(view_of(x, {5, 3})), to, weight, io.out(view_of(out, {4, 3})));
  io.fetch();
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_FLOAT_EQ(out[c], x[3 + c] + 2.0f * x[9 + c]);
    EXPECT_FLOAT_EQ(out[6 + c], 0.5f * x[c] + 0.25f * x[6 + c] - x[12 + c]);
    EXPECT_EQ(out[3 + c], 0.0f);
    EXPECT_EQ(out[9 + c], 0.0f);
  }
  if (!GetParam().is_cpu()) return;  // the check stands in front of every device
  const std::int32_t beyond[] = {2, 0, 4, 0, 2};
  const auto alone = GetParam().open(1);  // no threads where a death test forks
  backend_.reset();
  EXPECT_DEATH(ops::combine_rows(*alone, view_of(x, {5, 3}), beyond, weight, view_of(out, {4, 3})),
               "destination");
}

INSTANTIATE_TEST_SUITE_P(Devices, RowOps, ::testing::ValuesIn(places_of_kernels()), name_of_place);

TEST(RowOpsIsas, AgreeBitForBit) {
  const std::vector<float> x = normal(3 * 1001, 1, 3.0f);
  const std::vector<float> weight = normal(1001, 2);
  const std::vector<float> bias = normal(1001, 3);
  std::vector<std::vector<float>> first;
  for (const Isa isa : isas_here()) {
    const auto backend = backend_of(isa);
    std::vector<float> quick(x.size()), tanh(x.size()), norm(x.size());
    ops::quick_gelu(*backend, view_of(x, {3003}), view_of(quick, {3003}));
    ops::gelu_tanh(*backend, view_of(x, {3003}), view_of(tanh, {3003}));
    ops::layer_norm(*backend, view_of(x, {3, 1001}), view_of(weight, {1001}), view_of(bias, {1001}),
                    1e-6f, view_of(norm, {3, 1001}));
    if (first.empty()) first = {quick, tanh, norm};
    EXPECT_TRUE(same_bits(quick, first[0])) << isa_name(isa);
    EXPECT_TRUE(same_bits(tanh, first[1])) << isa_name(isa);
    EXPECT_TRUE(same_bits(norm, first[2])) << isa_name(isa);
  }
}

}  // namespace
}  // namespace tessera::testing::row_ops_test
