// Ops that a device may do in one go against their parts, and the maps that a GroupNorm becomes
// against their definitions in double precision.
#include <algorithm>
#include <numeric>

#include "engine/ops/ops.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::fused_ops_test {
namespace {

class FusedOps : public AtPlaceAlone {};

struct Heads {
  std::int64_t heads, kv_heads, dim;
  bool normed;
  RopePairing pairing;
  DType storage;
};

constexpr std::int64_t kRows = 5, kCapacity = 9;

// What qkv_rope leaves after: queries, and the caches as f32.
struct Turned {
  std::vector<float> q, keys, values;
};

Turned run_qkv_rope(Backend& backend, const Heads& h, bool in_parts) {
  const std::int64_t half = h.dim / 2, stride = (h.heads + 2 * h.kv_heads) * h.dim;
  const auto many = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  std::vector<float> cos = normal(many(kRows * half), 4), sin = normal(many(kRows * half), 5);
  std::fill_n(cos.begin(), half, 0.0f);  // a row that LlamaGen blanks
  std::fill_n(sin.begin(), half, 0.0f);
  const std::vector<std::int64_t> slots = {7, 0, 3, 8, 2};
  std::vector<std::int64_t> identity(kRows);
  std::iota(identity.begin(), identity.end(), 0);
  const Shape cache{kCapacity, h.kv_heads, h.dim};
  const auto size = many(cache.elements());
  Turned out;
  out.q.assign(many(kRows * h.heads * h.dim), NAN);
  std::vector<float> scratch(many(kRows * h.kv_heads * h.dim), NAN);
  out.keys.assign(size, -1.0f);
  out.values.assign(size, -2.0f);
  std::vector<std::uint16_t> keys16 = to_bf16(out.keys), values16 = to_bf16(out.values);
  const bool bf16 = h.storage == DType::kBF16;
  DeviceIo io(backend);
  const std::vector<float> norm = normal(many(h.dim), 2), other = normal(many(h.dim), 3);
  const QkvRopeArgs args{
      .qkv = io.in(view_of(normal(many(kRows * stride), 1), {kRows, stride})),
      .q_norm = h.normed ? io.in(view_of(norm, {h.dim})) : ConstTensorView{},
      .k_norm = h.normed ? io.in(view_of(other, {h.dim})) : ConstTensorView{},
      .eps = 1e-5f,
      .cos = io.in(view_of(cos, {kRows, half})),
      .sin = io.in(view_of(sin, {kRows, half})),
      .pairing = h.pairing,
      .slots = slots,
      .identity = identity,
      .q = io.out(view_of(out.q, {kRows, h.heads, h.dim})),
      .k = io.out(view_of(scratch, {kRows, h.kv_heads, h.dim})),
      .keys = bf16 ? io.out(view_of(keys16, cache)) : io.out(view_of(out.keys, cache)),
      .values = bf16 ? io.out(view_of(values16, cache)) : io.out(view_of(out.values, cache))};
  if (in_parts) {
    args.in_parts(backend);
  } else {
    ops::qkv_rope(backend, args);
  }
  io.fetch();
  if (bf16) {
    std::transform(keys16.begin(), keys16.end(), out.keys.begin(), bf16_to_float);
    std::transform(values16.begin(), values16.end(), out.values.begin(), bf16_to_float);
  }
  return out;
}

// The parts on the CPU are the meaning; on the device itself parts and whole have the same bits.
TEST_P(FusedOps, QkvRopeEqualsItsParts) {
  const auto cpu = backend_of(Isa::kReference, 1);
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    for (const bool normed : {false, true}) {
      for (const RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
        for (const auto& [heads, kv_heads, dim] :
             {std::array<std::int64_t, 3>{4, 2, 16}, {3, 1, 72}, {2, 2, 128}, {1, 1, 6}}) {
          const Heads h{heads, kv_heads, dim, normed, pairing, storage};
          const Turned want = run_qkv_rope(*cpu, h, true);
          const Turned got = run_qkv_rope(*backend_, h, false);
          const Turned parts = run_qkv_rope(*backend_, h, true);
          EXPECT_TRUE(same_bits(got.q, parts.q)) << dim;
          EXPECT_TRUE(same_bits(got.keys, parts.keys)) << dim;
          EXPECT_TRUE(same_bits(got.values, parts.values)) << dim;
          EXPECT_TRUE(same_bits(got.values, want.values)) << dim;
          // Numbers of size 10; rounding to bf16 may fall to either side.
          const double rounding = storage == DType::kBF16 ? 1.0 / 256 : 0.0;
          for (std::size_t i = 0; i < got.q.size(); ++i) ASSERT_NEAR(got.q[i], want.q[i], 1e-5);
          for (std::size_t i = 0; i < got.keys.size(); ++i) {
            ASSERT_NEAR(got.keys[i], want.keys[i],
                        1e-5 + rounding * std::abs(static_cast<double>(want.keys[i])))
                << i;
          }
        }
      }
    }
  }
}

TEST_P(FusedOps, GroupNormCoefficients) {
  struct Map {
    std::int64_t height, width, channels;
    int groups;
  };
  for (const Map& map : {Map{1, 1, 8, 2}, Map{9, 7, 12, 3}, Map{40, 33, 32, 32}, Map{5, 4, 600, 4},
                         Map{3, 3, 256, 32}, Map{6, 50, 300, 1}}) {
    const auto channels = static_cast<std::size_t>(map.channels);
    std::vector<float> x =
        normal(static_cast<std::size_t>(map.height * map.width) * channels, 1, 2.0f);
    for (float& value : x) value += 3.0f;
    const std::vector<float> gamma = normal(channels, 2), beta = normal(channels, 3);
    std::vector<float> scale(channels, NAN), shift(channels, NAN);
    DeviceIo io(*backend_);
    ops::group_norm_coefficients(
        *backend_, io.in(view_of(x, {map.height, map.width, map.channels})), map.groups, 1e-6f,
        io.in(view_of(gamma, {map.channels})), io.in(view_of(beta, {map.channels})),
        io.out(view_of(scale, {map.channels})), io.out(view_of(shift, {map.channels})));
    io.fetch();
    const std::size_t width = channels / static_cast<std::size_t>(map.groups);
    for (std::size_t c = 0; c < channels; ++c) {
      const std::size_t begin = c / width * width;
      double sum = 0, squares = 0, count = 0;
      for (std::size_t pixel = 0; pixel < x.size() / channels; ++pixel) {
        for (std::size_t i = begin; i < begin + width; ++i) {
          const double value = x[pixel * channels + i];
          sum += value;
          squares += value * value;
          ++count;
        }
      }
      const double mean = sum / count;
      const double slope = gamma[c] / std::sqrt(squares / count - mean * mean + 1e-6f);
      const double size = std::abs(slope);
      ASSERT_NEAR(scale[c], slope, 2 * kEpsilon * size + 1e-9) << map.channels << " " << c;
      ASSERT_NEAR(shift[c], beta[c] - mean * slope,
                  2 * kEpsilon * (std::abs(beta[c]) + std::abs(mean) * size) + 1e-8)
          << map.channels << " " << c;
    }
  }
}

TEST_P(FusedOps, AffineChannels) {
  const std::int64_t channels = 37;
  const std::vector<float> x = normal(300 * 37, 1), scale = normal(37, 2), shift = normal(37, 3);
  std::vector<float> out(x.size(), NAN);
  DeviceIo io(*backend_);
  ops::affine_channels(*backend_, io.in(view_of(x, {20, 15, channels})),
                       io.in(view_of(scale, {channels})), io.in(view_of(shift, {channels})),
                       io.out(view_of(out, {20, 15, channels})));
  io.fetch();
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(out[i], std::fma(scale[i % 37], x[i], shift[i % 37])) << i;
  }
}

TEST_P(FusedOps, Modulate) {
  const std::int64_t h = 3, w = 2, across = 5, down = 4, channels = 19;
  const Shape map{h * down, w * across, channels}, coarse{h, w, channels};
  const auto count = static_cast<std::size_t>(map.elements());
  const std::vector<float> x = normal(count, 1), scale = normal(19, 2), shift = normal(19, 3);
  const std::vector<float> gain = normal(static_cast<std::size_t>(coarse.elements()), 4);
  const std::vector<float> bias = normal(static_cast<std::size_t>(coarse.elements()), 5);
  for (const bool swish : {false, true}) {
    std::vector<float> out = x;  // in place
    DeviceIo io(*backend_);
    const TensorView both = io.out(view_of(out, map));
    ops::modulate(*backend_, {.in = both,
                              .scale = io.in(view_of(scale, {channels})),
                              .shift = io.in(view_of(shift, {channels})),
                              .gain = io.in(view_of(gain, coarse)),
                              .bias = io.in(view_of(bias, coarse)),
                              .swish = swish,
                              .out = both});
    io.fetch();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t c = i % 19, column = i / 19 % 10, row = i / 190;
      const std::size_t place = (row / 4 * 2 + column / 5) * 19 + c;
      double want = (static_cast<double>(scale[c]) * x[i] + shift[c]) * gain[place] + bias[place];
      const double size = (std::abs(scale[c] * x[i]) + std::abs(shift[c])) * std::abs(gain[place]) +
                          std::abs(bias[place]);
      if (swish) want = want / (1 + std::exp(-want));
      ASSERT_NEAR(out[i], want, 8 * kEpsilon * (static_cast<double>(size) + std::abs(want))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedOps, ::testing::ValuesIn(places_of_kernels()),
                         name_of_place);

}  // namespace
}  // namespace tessera::testing::fused_ops_test
