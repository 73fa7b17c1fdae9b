// Attention against a softmax in double precision, and its row contract: a row's bits depend
// neither on the window it came in, nor on other sequences, later keys, threads or instruction set.
#include <algorithm>

#include "engine/ops/ops.h"
#include "tests/unit/ops/device_io.h"

namespace tessera::testing::attention_test {
namespace {

struct Layout {
  std::int64_t heads, kv_heads, dim;
};

// A cache of `capacity` positions and queries for each of them.
struct Sequence {
  Layout layout;
  std::int64_t capacity;
  DType storage;
  std::vector<float> q, k, v;
  std::shared_ptr<const Tensor> key_table, value_table;

  Sequence(Layout l, std::int64_t positions, DType s, std::uint64_t stream)
      : layout(l), capacity(positions), storage(s) {
    const auto kv = static_cast<std::size_t>(positions * l.kv_heads * l.dim);
    q = normal(static_cast<std::size_t>(positions * l.heads * l.dim), stream);
    k = normal(kv, stream + 1);
    v = normal(kv, stream + 2);
    refresh();
  }
  // Keys and values as they are kept.
  void refresh() {
    key_table = kept(k);
    value_table = kept(v);
  }
  std::shared_ptr<const Tensor> kept(std::vector<float>& numbers) const {
    const Shape shape{capacity, layout.kv_heads, layout.dim};
    auto out = std::make_shared<const Tensor>(cache_table(storage, numbers, shape));
    numbers = cached_numbers(out->view());
    return out;
  }
  ConstTensorView keys() const { return key_table->view(); }
  ConstTensorView values() const { return value_table->view(); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(layout.dim)); }
};

// Rows [first, first + rows) of one sequence, keys before `first` already cached.
std::vector<float> attend(Backend& backend, const Sequence& s, std::int64_t first,
                          std::int64_t rows, bool causal = true) {
  const std::int64_t width = s.layout.heads * s.layout.dim;
  std::vector<float> out(static_cast<std::size_t>(rows * width), NAN);
  const Shape shape{rows, s.layout.heads, s.layout.dim};
  DeviceIo io(backend);
  const AttentionSegment segment{
      io.in(s.keys()), io.in(s.values()), 0, rows, causal ? first : s.capacity, causal};
  ops::attention(backend, {.q = io.in({DType::kF32, shape, s.q.data() + first * width, {}}),
                           .out = io.out(view_of(out, shape)),
                           .segments = {&segment, 1},
                           .scale = s.scale()});
  io.fetch();
  return out;
}

// The same in double. Scores of size ~1 carry `dim` roundings, weights and sums as many more; the
// values have unit variance, so a tolerance of 40 roundings is far below any wrong key or head.
void compare(const Sequence& s, const std::vector<float>& got, std::int64_t first,
             std::int64_t rows, bool causal) {
  const auto [heads, kv_heads, dim] = s.layout;
  std::vector<double> want, tolerance;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t seen = causal ? first + row + 1 : s.capacity;
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t kv = head / (heads / kv_heads);
      const float* q = s.q.data() + ((first + row) * heads + head) * dim;
      std::vector<double> score;
      for (std::int64_t key = 0; key < seen; ++key) {
        double sum = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          sum += static_cast<double>(q[d]) *
                 s.k[static_cast<std::size_t>((key * kv_heads + kv) * dim + d)];
        }
        score.push_back(sum * static_cast<double>(s.scale()));
      }
      const double peak = *std::max_element(score.begin(), score.end());
      double total = 0;
      for (double& value : score) total += value = std::exp(value - peak);
      for (std::int64_t d = 0; d < dim; ++d) {
        double sum = 0, size = 0;
        for (std::int64_t key = 0; key < seen; ++key) {
          const double value = s.v[static_cast<std::size_t>((key * kv_heads + kv) * dim + d)];
          sum += score[static_cast<std::size_t>(key)] / total * value;
          size += score[static_cast<std::size_t>(key)] / total * std::abs(value);
        }
        want.push_back(sum);
        tolerance.push_back(40 * kEpsilon * (size + 1));
      }
    }
  }
  EXPECT_TRUE(close(got, want, tolerance)) << "first " << first << ", rows " << rows;
}

class Attention : public AtPlaceWithCache {};

// Scales that are powers of two change no rounding: over such a cache every bit is that of a cache
// of f32 with the same numbers, in order and listed, in each instruction set.
TEST(AttentionOverEightBits, WithScalesOfPowersOfTwoIsThatOverF32) {
  for (const Layout layout : {Layout{4, 2, 20}, Layout{3, 3, 64}, Layout{2, 1, 128}}) {
    Sequence eight({layout.heads, layout.kv_heads, layout.dim}, 150, DType::kQ8, 90);
    for (std::vector<float>* numbers : {&eight.k, &eight.v}) {
      for (std::size_t i = 0; i < numbers->size(); ++i) {
        const std::size_t head = i / static_cast<std::size_t>(layout.dim);
        const float unit = std::ldexp(1.0f, -6 - static_cast<int>(head % 5));
        const float whole = std::nearbyint(std::clamp((*numbers)[i] * 40, -127.0f, 127.0f));
        (*numbers)[i] = unit * (i % static_cast<std::size_t>(layout.dim) == 3 ? -127 : whole);
      }
    }
    const std::vector<float> given = eight.k;
    eight.refresh();
    ASSERT_EQ(eight.k, given) << "kept exactly";
    Sequence plain = eight;
    plain.storage = DType::kF32;
    plain.refresh();
    for (const Isa isa : isas_here()) {
      const auto backend = backend_of(isa);
      for (const auto& [first, rows] : {std::pair{0, 1}, {63, 1}, {120, 3}, {100, 50}}) {
        EXPECT_TRUE(
            same_bits(attend(*backend, eight, first, rows), attend(*backend, plain, first, rows)))
            << isa_name(isa) << ", rows " << rows << ", hd " << layout.dim;
      }
    }
  }
}

// A head with a number that is none has none at all; the others keep theirs.
TEST(AttentionOverEightBits, WhatIsNoNumberShows) {
  const auto backend = backend_of(Isa::kAuto);
  Sequence s({4, 2, 16}, 20, DType::kQ8, 95);
  const std::vector<float> before = attend(*backend, s, 10, 8);
  s.v[12 * 32 + 16 + 5] = std::numeric_limits<float>::infinity();
  s.refresh();
  const std::vector<float> after = attend(*backend, s, 10, 8);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const bool sees = i / 64 >= 2 && i % 64 >= 32;
    EXPECT_EQ(std::isnan(after[i]), sees) << i;
    if (!sees) {
      EXPECT_EQ(after[i], before[i]) << i;
    }
  }
}

TEST_P(Attention, EqualsDoublePrecision) {
  for (const Layout layout :
       {Layout{2, 2, 16}, Layout{3, 1, 20}, Layout{4, 2, 64}, Layout{2, 2, 100}, Layout{2, 1, 128},
        Layout{1, 1, 512}, Layout{2, 1, 600}, Layout{7, 1, 8}}) {
    const Sequence s(layout, 200, storage(), 10);
    for (const auto& [first, rows] :
         {std::pair{0, 1}, {0, 5}, {63, 1}, {64, 1}, {60, 9}, {120, 80}}) {
      compare(s, attend(*backend_, s, first, rows), first, rows, true);
    }
    compare(s, attend(*backend_, s, 3, 7, false), 3, 7, false);
  }
}

TEST_P(Attention, ToleranceCatchesOneKeyTooFew) {
  const Sequence s({1, 1, 16}, 100, storage(), 10);
  const std::vector<float> right = attend(*backend_, s, 90, 1);
  Sequence moved = s;  // the row asks as if it stood one position earlier
  std::copy_n(s.q.begin() + 90 * 16, 16, moved.q.begin() + 89 * 16);
  const std::vector<float> wrong = attend(*backend_, moved, 89, 1);
  std::vector<double> want(right.begin(), right.end());
  EXPECT_GE(first_difference(wrong, want, std::vector<double>(16, 80 * kEpsilon)), 0);
}

TEST_P(Attention, WindowsChunksAndThreadsChangeNothing) {
  for (const Layout layout : {Layout{4, 2, 20}, Layout{3, 3, 128}}) {
    const std::int64_t width = layout.heads * layout.dim;
    const Sequence s(layout, 150, storage(), 20);
    const std::vector<float> whole = attend(*open(1), s, 0, 150);
    for (const int threads : thread_counts({1, 2, 3, 7})) {
      const auto backend = open(threads);
      for (const std::int64_t window : {1, 2, 3, 5, 16, 63, 64, 65, 150}) {
        if (!on_cpu() && window < 5) continue;  // row_contract_test has rows alone
        for (std::int64_t first = 0; first < 150; first += window) {
          const std::int64_t rows = std::min<std::int64_t>(window, 150 - first);
          const std::vector<float> part = attend(*backend, s, first, rows);
          ASSERT_TRUE(same_bits(part.data(), whole.data() + first * width,
                                static_cast<std::size_t>(rows * width)))
              << "window " << window << " at " << first << ", " << threads << " threads";
        }
      }
    }
  }
}

TEST_P(Attention, LaterKeysAreNotSeen) {
  Sequence s({4, 2, 20}, 150, storage(), 30);
  const std::vector<float> before = attend(*backend_, s, 70, 10);
  std::fill(s.k.begin() + 80 * 40, s.k.end(), NAN);
  std::fill(s.v.begin() + 80 * 40, s.v.end(), NAN);
  s.refresh();
  EXPECT_TRUE(same_bits(attend(*backend_, s, 70, 10), before));
  // Within a window too: a row does not see the keys of the rows after it.
  std::fill(s.k.begin() + 75 * 40, s.k.end(), NAN);
  std::fill(s.v.begin() + 75 * 40, s.v.end(), NAN);
  s.refresh();
  const std::vector<float> after = attend(*backend_, s, 70, 10);
  EXPECT_TRUE(same_bits(after.data(), before.data(), 5 * 80));
  for (std::size_t i = 5 * 80; i < after.size(); ++i) ASSERT_TRUE(std::isnan(after[i])) << i;
}

TEST_P(Attention, SegmentsAreIndependent) {
  const auto backend = open(3);
  const Layout layout{4, 2, 24};
  const std::int64_t width = layout.heads * layout.dim;
  const Sequence a(layout, 90, storage(), 40);
  const Sequence b(layout, 130, storage(), 50);
  const std::vector<float> alone_a = attend(*backend, a, 80, 10);
  const std::vector<float> alone_b = attend(*backend, b, 127, 3);
  std::vector<float> q(static_cast<std::size_t>(13 * width));
  std::copy_n(a.q.begin() + 80 * width, 10 * width, q.begin());
  std::copy_n(b.q.begin() + 127 * width, 3 * width, q.begin() + 10 * width);
  std::vector<float> out(q.size());
  DeviceIo io(*backend);
  const AttentionSegment segments[] = {{io.in(a.keys()), io.in(a.values()), 0, 10, 80, true},
                                       {io.in(b.keys()), io.in(b.values()), 10, 3, 127, true}};
  ops::attention(*backend, {.q = io.in(view_of(q, {13, 4, 24})),
                            .out = io.out(view_of(out, {13, 4, 24})),
                            .segments = segments,
                            .scale = a.scale()});
  io.fetch();
  EXPECT_TRUE(same_bits(out.data(), alone_a.data(), alone_a.size()));
  EXPECT_TRUE(same_bits(out.data() + 10 * width, alone_b.data(), alone_b.size()));
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  Sequence s({1, 1, 16}, 70, storage(), 60);
  for (float& value : s.q) value *= 400.0f;
  const std::vector<float> out = attend(*backend_, s, 60, 10);
  for (const float value : out) ASSERT_TRUE(std::isfinite(value));
  s.q[60 * 16] = std::numeric_limits<float>::infinity();
  const std::vector<float> bad = attend(*backend_, s, 60, 10);
  EXPECT_TRUE(std::isnan(bad[0])) << "inf - inf shows";
  EXPECT_TRUE(same_bits(bad.data() + 16, out.data() + 16, 9 * 16));
}

INSTANTIATE_TEST_SUITE_P(Devices, Attention, with_cached_types(places_of_kernels()), place_name);

TEST(AttentionIsas, AgreeBitForBit) {
  for (const DType storage : {DType::kF32, DType::kBF16, DType::kQ8}) {
    for (const Layout layout : {Layout{4, 2, 20}, Layout{2, 2, 128}, Layout{1, 1, 512}}) {
      const Sequence s(layout, 140, storage, 70);
      std::vector<float> first;
      for (const Isa isa : isas_here()) {
        const std::vector<float> out = attend(*backend_of(isa), s, 100, 37);
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(out, first)) << isa_name(isa) << ", hd " << layout.dim;
      }
    }
  }
}

TEST(AttentionChecks, KeysPastTheCacheEndTheProgram) {
  const auto backend = backend_of(Isa::kReference, 1);
  const Sequence s({2, 1, 8}, 10, DType::kF32, 80);
  EXPECT_DEATH(attend(*backend, s, 9, 2), "in the cache");
}

}  // namespace
}  // namespace tessera::testing::attention_test
