// Norms, activations, rotations, lookups and copies against their definitions in double precision.
#include <algorithm>

#include "engine/ops/ops.h"
#include "engine/ops/relu.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::elementwise_test {
namespace {

class Elementwise : public AtPlaceAlone {};

TEST_P(Elementwise, RmsNorm) {
  for (const std::int64_t width : {1, 7, 16, 100, 2048}) {
    const std::vector<float> x = normal(static_cast<std::size_t>(3 * width), 1, 2.0f);
    const std::vector<float> weight = normal(static_cast<std::size_t>(width), 2);
    std::vector<float> out(x.size());
    DeviceIo io(*backend_);
    ops::rms_norm(*backend_, io.in(view_of(x, {3, width})), io.in(view_of(weight, {width})), 1e-6f,
                  io.out(view_of(out, {3, width})));
    io.fetch();
    std::vector<double> want, tolerance;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(width);
      double squares = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        squares +=
            std::pow(x[row * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)], 2);
      }
      want.push_back(x[i] / std::sqrt(squares / static_cast<double>(width) + 1e-6) *
                     weight[i % static_cast<std::size_t>(width)]);
      tolerance.push_back(8 * kEpsilon * std::abs(want.back()));
    }
    EXPECT_TRUE(close(out, want, tolerance)) << width;
  }
}

TEST_P(Elementwise, RmsNormCarriesNan) {
  std::vector<float> x = normal(2 * 40, 1);
  x[45] = NAN;
  const std::vector<float> weight(40, 1.0f);
  std::vector<float> out(80);
  DeviceIo io(*backend_);
  ops::rms_norm(*backend_, io.in(view_of(x, {2, 40})), io.in(view_of(weight, {40})), 1e-6f,
                io.out(view_of(out, {2, 40})));
  io.fetch();
  for (std::size_t i = 0; i < 80; ++i) EXPECT_EQ(std::isnan(out[i]), i >= 40);
}

// Every float of a dense grid over the whole range, so that range ends and signs are covered.
std::vector<float> grid() {
  std::vector<float> x;
  for (int i = -200000; i <= 200000; ++i) x.push_back(static_cast<float>(i) * 0.0005f);
  for (int e = -140; e < 127; ++e) {
    for (const float mantissa : {1.0f, 1.3f, 1.999f}) {
      x.push_back(std::ldexp(mantissa, e));
      x.push_back(-std::ldexp(mantissa, e));
    }
  }
  return x;
}

// silu(x) = x / (1 + e^-x): within 4 ulp, or below what a result that small may be off by when
// e^-x leaves the range of floats.
TEST_P(Elementwise, SiluMul) {
  const std::vector<float> gate = grid();
  const auto width = static_cast<std::int64_t>(gate.size());
  std::vector<float> both = gate;
  both.insert(both.end(), gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  DeviceIo io(*backend_);
  ops::silu_mul(*backend_, io.in(view_of(both, {1, 2 * width})), io.out(view_of(out, {1, width})));
  io.fetch();
  std::vector<double> want, tolerance;
  for (const float x : gate) {
    want.push_back(x / (1.0 + std::exp(-static_cast<double>(x))));
    tolerance.push_back(8 * kEpsilon * std::abs(want.back()) + 2e-36);
  }
  EXPECT_TRUE(close(out, want, tolerance));
}

// The gate's own numbers, checked by its own test, times the other half.
TEST_P(Elementwise, GeluTanhMul) {
  const std::vector<float> gate = grid();
  const auto width = static_cast<std::int64_t>(gate.size());
  std::vector<float> both = gate, up(gate.size()), gelu(gate.size()), out(gate.size());
  for (std::size_t i = 0; i < up.size(); ++i) up[i] = 0.25f * static_cast<float>(i % 13) - 1.0f;
  both.insert(both.end(), up.begin(), up.end());
  DeviceIo io(*backend_);
  ops::gelu_tanh(*backend_, io.in(view_of(gate, {width})), io.out(view_of(gelu, {width})));
  ops::gelu_tanh_mul(*backend_, io.in(view_of(both, {1, 2 * width})),
                     io.out(view_of(out, {1, width})));
  io.fetch();
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], gelu[i] * up[i]) << gate[i] << " " << up[i];
  }
}

TEST_P(Elementwise, Gelu) {
  const std::vector<float> x = grid();
  const auto width = static_cast<std::int64_t>(x.size());
  std::vector<float> out(x.size());
  DeviceIo io(*backend_);
  ops::gelu(*backend_, io.in(view_of(x, {width})), io.out(view_of(out, {width})));
  io.fetch();
  std::vector<double> want, tolerance;
  for (const float value : x) {
    const double v = value;
    want.push_back(0.5 * v * std::erfc(-v / std::sqrt(2.0)));
    // The negative side is e^(-x^2/2) small and carries the rounding of its exponent.
    const double exponent = v < 0 ? v * v / 2 : 0;
    tolerance.push_back((10 + 4 * exponent) * kEpsilon * std::abs(want.back()) + 1e-37);
  }
  EXPECT_TRUE(close(out, want, tolerance));
}

TEST_P(Elementwise, ActivationsKeepNanAndEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const float negative_nan = -std::numeric_limits<float>::quiet_NaN();
  std::vector<float> both = {NAN, negative_nan, inf, -200.0f, 200.0f, 0.0f, 1, 1, 1, 1, 1, 1};
  std::vector<float> out(6);
  DeviceIo io(*backend_);
  ops::silu_mul(*backend_, io.in(view_of(both, {1, 12})), io.out(view_of(out, {1, 6})));
  io.fetch();
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  EXPECT_EQ(out[2], inf);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[4], 200.0f);
  EXPECT_EQ(out[5], 0.0f);
  both.resize(6);
  ops::gelu(*backend_, io.in(view_of(both, {6})), io.out(view_of(out, {6})));
  io.fetch();
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  EXPECT_EQ(out[2], inf);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[4], 200.0f);
}

TEST_P(Elementwise, ReluKeepsWhatIsNotNegative) {
  std::vector<float> x = normal(1003, 1, 3.0f);
  x[7] = NAN;
  x[8] = 0.0f;
  x[9] = std::numeric_limits<float>::infinity();
  std::vector<float> out(x.size());
  DeviceIo io(*backend_);
  ops::relu(*backend_, io.in(view_of(x, {1003})), io.out(view_of(out, {1003})));
  io.fetch();
  EXPECT_TRUE(std::isnan(out[7]));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i == 7) continue;
    ASSERT_EQ(out[i], std::max(x[i], 0.0f)) << i;
  }
}

// A value does not depend on where in a row it stands: tails are computed like the rest.
TEST_P(Elementwise, PlaceInARowChangesNothing) {
  const std::vector<float> x = normal(77, 1, 3.0f);
  std::vector<float> whole(77);
  DeviceIo io(*backend_);
  ops::gelu(*backend_, io.in(view_of(x, {77})), io.out(view_of(whole, {77})));
  io.fetch();
  for (std::size_t i = 0; i < 77; ++i) {
    std::vector<float> one(1);
    ops::gelu(*backend_, io.in({DType::kF32, {1}, &x[i], {}}), io.out(view_of(one, {1})));
    io.fetch();
    ASSERT_TRUE(same_bits(one.data(), &whole[i], 1)) << i;
  }
}

TEST_P(Elementwise, Rope) {
  for (const RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
    for (const std::int64_t dim : {2, 16, 20, 100}) {
      const std::int64_t rows = 3, heads = 2, half = dim / 2;
      const std::vector<float> x = normal(static_cast<std::size_t>(rows * heads * dim), 1);
      std::vector<float> cos, sin;
      for (std::int64_t i = 0; i < rows * half; ++i) {
        const bool condition = i < half;  // the first row is one that LlamaGen blanks
        cos.push_back(condition ? 0.0f
                                : static_cast<float>(std::cos(0.1 * static_cast<double>(i))));
        sin.push_back(condition ? 0.0f
                                : static_cast<float>(std::sin(0.1 * static_cast<double>(i))));
      }
      std::vector<float> out = x;
      DeviceIo io(*backend_);
      ops::rope(*backend_, io.out(view_of(out, {rows, heads, dim})),
                io.in(view_of(cos, {rows, half})), io.in(view_of(sin, {rows, half})), pairing);
      io.fetch();
      std::vector<double> want(x.size()), tolerance(x.size());
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < heads; ++head) {
          for (std::int64_t i = 0; i < half; ++i) {
            const auto base = static_cast<std::size_t>((row * heads + head) * dim);
            const bool split = pairing == RopePairing::kHalfSplit;
            const std::size_t a = base + static_cast<std::size_t>(split ? i : 2 * i);
            const std::size_t b = base + static_cast<std::size_t>(split ? i + half : 2 * i + 1);
            const double c = cos[static_cast<std::size_t>(row * half + i)];
            const double s = sin[static_cast<std::size_t>(row * half + i)];
            want[a] = x[a] * c - x[b] * s;
            want[b] = x[b] * c + x[a] * s;
            tolerance[a] = tolerance[b] = 3 * kEpsilon * (std::abs(x[a]) + std::abs(x[b]));
          }
        }
      }
      EXPECT_TRUE(close(out, want, tolerance)) << dim;
      for (std::size_t i = 0; i < static_cast<std::size_t>(heads * dim); ++i)
        EXPECT_EQ(out[i], 0.0f);
    }
  }
}

TEST_P(Elementwise, EmbeddingAddAndStoreRows) {
  const std::vector<float> table = normal(10 * 6, 1);
  const std::vector<std::uint16_t> table16 = to_bf16(table);
  const std::int32_t ids[] = {9, 0, 3, 3};
  std::vector<float> out(24), out16(24), sum(24);
  DeviceIo io(*backend_);
  ops::embedding(*backend_, io.in(view_of(table, {10, 6})), ids, io.out(view_of(out, {4, 6})));
  io.fetch();
  ops::embedding(*backend_, io.in(view_of(table16, {10, 6})), ids, io.out(view_of(out16, {4, 6})));
  io.fetch();
  for (std::size_t i = 0; i < 24; ++i) {
    const std::size_t at = static_cast<std::size_t>(ids[i / 6]) * 6 + i % 6;
    EXPECT_EQ(out[i], table[at]);
    EXPECT_EQ(out16[i], bf16_to_float(table16[at]));
  }
  ops::add(*backend_, io.in(view_of(out, {4, 6})), io.in(view_of(out16, {4, 6})),
           io.out(view_of(sum, {4, 6})));
  io.fetch();
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(sum[i], out[i] + out16[i]);

  // Rows of 6 that stand 8 apart, as keys stand inside a row of queries, keys and values.
  const std::vector<float> rows = normal(3 * 8, 2);
  const std::int64_t slots[] = {4, 0, 2};
  std::vector<float> cache(5 * 6, -1.0f);
  std::vector<std::uint16_t> cache16(5 * 6, 7);
  ops::store_rows(*backend_, io.in(view_of(rows, {3, 8})).f32(), 8, slots,
                  io.out(view_of(cache, {5, 2, 3})));
  io.fetch();
  ops::store_rows(*backend_, io.in(view_of(rows, {3, 8})).f32(), 8, slots,
                  io.out(view_of(cache16, {5, 2, 3})));
  io.fetch();
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 6; ++j) {
      const std::size_t at = static_cast<std::size_t>(slots[i]) * 6 + j;
      EXPECT_EQ(cache[at], rows[i * 8 + j]);
      EXPECT_EQ(cache16[at], float_to_bf16(rows[i * 8 + j]));
    }
  }
  for (const std::size_t untouched : {1, 3}) {
    EXPECT_EQ(cache[untouched * 6], -1.0f);
    EXPECT_EQ(cache16[untouched * 6 + 5], 7);
  }
  const std::int32_t wanted[] = {2, 4, 2};
  std::vector<float> loaded(18), loaded16(18);
  ops::load_rows(*backend_, io.in(view_of(cache, {5, 2, 3})), wanted,
                 io.out(view_of(loaded, {3, 6})));
  ops::load_rows(*backend_, io.in(view_of(cache16, {5, 2, 3})), wanted,
                 io.out(view_of(loaded16, {3, 6})));
  io.fetch();
  for (std::size_t i = 0; i < 18; ++i) {
    const std::size_t at = static_cast<std::size_t>(wanted[i / 6]) * 6 + i % 6;
    EXPECT_EQ(loaded[i], cache[at]);
    EXPECT_EQ(loaded16[i], bf16_to_float(cache16[at]));
  }
}

TEST_P(Elementwise, NearestCodeTakesTheLowestIndexOfATie) {
  std::vector<float> codebook = normal(50 * 8, 1);
  const std::vector<float> z = normal(30 * 8, 2);
  std::copy_n(codebook.begin() + 7 * 8, 8, codebook.begin() + 20 * 8);
  std::vector<float> queries = z;
  queries.insert(queries.end(), codebook.begin() + 7 * 8, codebook.begin() + 8 * 8);
  std::vector<std::int32_t> ids(31);
  DeviceIo io(*backend_);
  ops::nearest_code(*backend_, io.in(view_of(queries, {31, 8})), io.in(view_of(codebook, {50, 8})),
                    ids);
  EXPECT_EQ(ids[30], 7);
  for (std::size_t row = 0; row < 30; ++row) {
    double best = 1e300;
    std::int32_t index = -1;
    for (std::int32_t code = 0; code < 50; ++code) {
      double distance = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        const double e = codebook[static_cast<std::size_t>(code) * 8 + i];
        distance +=
            z[row * 8 + i] * static_cast<double>(z[row * 8 + i]) + e * e - 2.0 * z[row * 8 + i] * e;
      }
      if (distance < best) {
        best = distance;
        index = code;
      }
    }
    EXPECT_EQ(ids[row], index);
  }
}

TEST_P(Elementwise, L2Normalize) {
  std::vector<float> x = normal(4 * 9, 1);
  std::fill(x.begin() + 9, x.begin() + 18, 0.0f);
  x[20] = NAN;
  std::vector<float> out(36);
  DeviceIo io(*backend_);
  ops::l2_normalize(*backend_, io.in(view_of(x, {4, 9})), 1e-12f, io.out(view_of(out, {4, 9})));
  io.fetch();
  double squares = 0;
  for (std::size_t i = 0; i < 9; ++i) squares += static_cast<double>(x[i]) * x[i];
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_FLOAT_EQ(out[i], static_cast<float>(x[i] / std::sqrt(squares)));
  for (std::size_t i = 9; i < 18; ++i) EXPECT_EQ(out[i], 0.0f);
  for (std::size_t i = 18; i < 27; ++i) EXPECT_TRUE(std::isnan(out[i]));
}

INSTANTIATE_TEST_SUITE_P(Devices, Elementwise, ::testing::ValuesIn(places_of_kernels()),
                         name_of_place);

TEST(ElementwiseIsas, AgreeBitForBit) {
  const std::vector<float> x = grid();
  const auto width = static_cast<std::int64_t>(x.size());
  const std::int64_t half = width / 2;
  std::vector<float> weight = normal(x.size(), 1);
  std::vector<float> moderate = normal(x.size(), 2);
  std::vector<std::vector<float>> first;
  for (const Isa isa : isas_here()) {
    const auto backend = backend_of(isa);
    std::vector<float> gelu(x.size()), norm(x.size()), silu(static_cast<std::size_t>(half));
    ops::gelu(*backend, view_of(x, {width}), view_of(gelu, {width}));
    const ConstTensorView gate_up{DType::kF32, {1, 2 * half}, x.data(), {}};
    ops::silu_mul(*backend, gate_up, view_of(silu, {1, half}));
    ops::rms_norm(*backend, view_of(moderate, {1, width}), view_of(weight, {width}), 1e-6f,
                  view_of(norm, {1, width}));
    if (first.empty()) first = {gelu, silu, norm};
    EXPECT_TRUE(same_bits(gelu, first[0])) << isa_name(isa);
    EXPECT_TRUE(same_bits(silu, first[1])) << isa_name(isa);
    EXPECT_TRUE(same_bits(norm, first[2])) << isa_name(isa);
  }
}

TEST(Devices, ListAndRefusal) {
  const std::vector<DeviceInfo> devices = list_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].name, "cpu");
  EXPECT_NE(make_backend("auto"), nullptr);
  try {
    make_backend("gpu:9");
    FAIL() << "an unknown device was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_NE(std::string(error.what()).find("cpu"), std::string::npos) << error.what();
  }
}

TEST(OpChecks, MismatchesEndTheProgram) {
  const auto backend = backend_of(Isa::kReference, 1);
  std::vector<float> a(12), b(8);
  const std::int32_t bad[] = {4};
  EXPECT_DEATH(ops::add(*backend, view_of(a, {12}), view_of(b, {8}), view_of(a, {12})),
               "equal shapes");
  std::vector<float> row(3);
  EXPECT_DEATH(ops::embedding(*backend, view_of(a, {4, 3}), bad, view_of(row, {1, 3})),
               "in the table");
  EXPECT_DEATH(
      ops::rms_norm(*backend, view_of(a, {4, 3}), view_of(b, {8}), 1e-6f, view_of(a, {4, 3})),
      "weight is");
  EXPECT_DEATH(ops::silu_mul(*backend, view_of(a, {2, 6}), view_of(b, {2, 4})), "2F");
}

}  // namespace
}  // namespace tessera::testing::elementwise_test
