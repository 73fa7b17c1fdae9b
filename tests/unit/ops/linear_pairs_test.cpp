// Products with inputs rounded to bf16 and weights of bf16: against sums made one step at a time in
// the order that is promised, and the row contract. The bits are those of every instruction set.
#include <algorithm>
#include <bit>

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/core/index.h"
#include "engine/ops/ops.h"
#include "tests/unit/ops/ops_testing.h"

namespace tessera::testing::linear_pairs_test {
namespace {

using Inputs = CpuOptions::Inputs;

std::unique_ptr<Backend> open(Isa isa, int threads = 2, Inputs inputs = Inputs::kBF16) {
  return make_backend("cpu", {.threads = threads, .isa = isa, .inputs = inputs});
}

float zero_if_tiny(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// x * w + sum rounded to 24 bits of any exponent: below 2^-126 it is a zero.
float step(float x, float w, float sum) {
  // Scaled, so that nothing is below the normal numbers; exact, since 2^64 is far from overflow there.
  if (std::abs(sum) < 0x1p-100f && std::abs(x * w) < 0x1p-100f) {
    const float large = std::fma(x * 0x1p32f, w * 0x1p32f, sum * 0x1p64f);
    return std::abs(large) < 0x1p-62f ? std::copysign(0.0f, large) : large * 0x1p-64f;
  }
  return std::fma(x, w, sum);
}

float rounded(float x) { return zero_if_tiny(bf16_to_float(float_to_bf16(x))); }

struct Problem {
  std::int64_t n, k;
  std::vector<float> w, x, bias;
  Problem(std::int64_t outputs, std::int64_t inputs, std::int64_t rows, float scale = 1)
      : n(outputs),
        k(inputs),
        w(normal(to_size(n * k), 1, scale)),
        x(normal(to_size(rows * k), 2, scale)),
        bias(normal(to_size(n), 3, scale * scale)) {}

  std::int64_t rows() const { return to_index(x.size()) / k; }
  LinearWeight pack(Backend& backend, DType storage = DType::kBF16) const {
    const ConstTensorView matrix = view_of(w, {n, k});
    return backend.pack_linear({&matrix, 1}, storage);
  }
  std::vector<float> run(Backend& backend, const LinearWeight& weight, std::int64_t first,
                         std::int64_t count) const {
    std::vector<float> out(to_size(count * n), NAN);
    const ConstTensorView rows{DType::kF32, {count, k}, x.data() + first * k, {}};
    ops::linear(backend, rows, weight, view_of(bias, {n}), view_of(out, {count, n}));
    return out;
  }
  std::vector<float> run(Backend& backend, std::int64_t count) const {
    return run(backend, pack(backend), 0, count);
  }

  // Pair by pair, the second input of each first; blocks of 256 inputs in order.
  float output(std::int64_t row, std::int64_t column) const {
    const float* const from = x.data() + row * k;
    const float* const weight = w.data() + column * k;
    float total = 0;
    for (std::int64_t begin = 0; begin < k; begin += 256) {
      const std::int64_t end = std::min<std::int64_t>(begin + 256, k);
      float sum = 0;
      for (std::int64_t i = begin; i < end; i += 2) {
        const bool pair = i + 1 < end;
        sum = step(pair ? rounded(from[i + 1]) : 0.0f, pair ? rounded(weight[i + 1]) : 0.0f, sum);
        sum = step(rounded(from[i]), rounded(weight[i]), sum);
      }
      total = begin == 0 ? sum : zero_if_tiny(total + sum);
    }
    return zero_if_tiny(total + zero_if_tiny(nth(bias, column)));
  }
  std::vector<float> expected(std::int64_t count) const {
    std::vector<float> out;
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t column = 0; column < n; ++column) out.push_back(output(row, column));
    }
    return out;
  }
};

TEST(LinearPairs, SumsAreInThePromisedOrder) {
  for (const auto& [n, k] : {std::pair{1, 1}, {1, 2}, {16, 256}, {17, 255}, {33, 513}, {70, 7},
                             {150, 1030}, {16, 2048}}) {
    const Problem problem(n, k, 40);
    const std::vector<float> want = problem.expected(40);
    for (const Isa isa : isas_here()) {
      const auto backend = open(isa);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 11, 12, 13, 23, 25, 40}) {
        const std::vector<float> got = problem.run(*backend, rows);
        EXPECT_TRUE(same_bits(got.data(), want.data(), got.size()))
            << isa_name(isa) << ", " << rows << " rows, n " << n << ", k " << k;
      }
    }
  }
}

// The order shows: with the first input of a pair before the second the bits are others.
TEST(LinearPairs, TheOrderWithinAPairShows) {
  Problem problem(40, 512, 2), turned = problem;
  const auto turn = [](std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); i += 2) std::swap(values[i], values[i + 1]);
  };
  turn(turned.w);
  turn(turned.x);
  const auto backend = open(Isa::kAuto);
  EXPECT_FALSE(same_bits(problem.run(*backend, 2), turned.run(*backend, 2)));
}

// Products around 2^-126 and inputs below it: zeros at the same steps everywhere.
TEST(LinearPairs, TinyNumbersBecomeZerosEverywhere) {
  for (const float scale : {1e-19f, 3e-20f, 1e-38f}) {
    Problem problem(50, 301, 9, scale);
    for (std::size_t i = 0; i < problem.bias.size(); i += 2) problem.bias[i] *= 1e-3f;
    const std::vector<float> want = problem.expected(9);
    const auto zeros = std::ranges::count(want, 0.0f);
    EXPECT_GT(zeros, 0) << scale;
    for (const Isa isa : isas_here()) {
      EXPECT_TRUE(same_bits(problem.run(*open(isa), 9), want)) << isa_name(isa) << ", " << scale;
    }
  }
}

// A sum that is 2^-126 only where denormals round: 2^-126 less 1.25 * 2^-151.
TEST(LinearPairs, ASumJustBelowTheLeastNormalNumberIsZero) {
  Problem problem(1, 4, 1);
  problem.x = {-0x1.4p-75f, 0x1p-63f, 0, 0};  // the second input of a pair comes first
  problem.w = {0x1p-76f, 0x1p-63f, 0, 0};
  problem.bias = {0};
  EXPECT_EQ(problem.output(0, 0), 0.0f);
  for (const Isa isa : isas_here()) EXPECT_EQ(problem.run(*open(isa), 1)[0], 0.0f) << isa_name(isa);
  problem.x[0] = -0x1p-75f;  // a tie, to even
  for (const Isa isa : isas_here()) {
    EXPECT_EQ(problem.run(*open(isa), 1)[0], 0x1p-126f) << isa_name(isa);
  }
}

TEST(LinearPairs, NeitherThreadsNorRowsNorPlacesChangeARow) {
  const Problem problem(90, 600, 700);
  for (const Isa isa : isas_here()) {
    const bool slow = isa == Isa::kReference;
    std::vector<float> single;
    for (const int threads : {1, 2, 5}) {
      const auto backend = open(isa, threads);
      const LinearWeight w = problem.pack(*backend);
      for (std::int64_t row = 0; to_index(single.size()) < (slow ? 70 : 700) * problem.n; ++row) {
        const auto one = problem.run(*backend, w, row, 1);
        single.insert(single.end(), one.begin(), one.end());
      }
      for (std::int64_t rows = 2; rows <= (slow ? 70 : 700);
           rows += slow ? 17 : rows < 64 ? 1 : 159) {
        for (const std::int64_t first : {std::int64_t{0}, to_index(single.size()) / 90 - rows}) {
          const auto out = problem.run(*backend, w, first, rows);
          ASSERT_TRUE(same_bits(out.data(), single.data() + first * problem.n, out.size()))
              << isa_name(isa) << ", " << rows << " rows from " << first << ", " << threads;
        }
      }
    }
  }
}

TEST(LinearPairs, NanReachesItsOwnOutputsOnly) {
  for (const Isa isa : isas_here()) {
    const auto backend = open(isa);
    for (const std::int64_t rows : {1, 9, 30}) {
      Problem problem(35, 301, rows);
      problem.w[17 * 301 + 300] = NAN;
      auto out = problem.run(*backend, rows);
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(std::isnan(out[i]), i % 35 == 17) << i;
      problem = Problem(35, 301, rows);
      problem.x[to_size((rows - 1) * 301)] = NAN;
      out = problem.run(*backend, rows);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(std::isnan(out[i]), to_index(i) >= (rows - 1) * 35) << i;
      }
    }
  }
}

TEST(LinearPairs, StacksOfSeveralTypesAreTheirParts) {
  const auto backend = open(Isa::kAuto);
  const Problem first(40, 256, 70), second(21, 256, 70);
  std::vector<std::uint16_t> numbers = to_bf16(first.w);
  const ConstTensorView bf16 = view_of(numbers, {40, 256}), f32 = view_of(second.w, {21, 256});
  const ConstTensorView stack[] = {bf16, f32, bf16};
  const LinearWeight both = backend->pack_linear(stack, DType::kFile);
  ASSERT_EQ(both.parts.size(), 3u);
  std::vector<float> bias = first.bias;
  bias.insert(bias.end(), second.bias.begin(), second.bias.end());
  bias.insert(bias.end(), first.bias.begin(), first.bias.end());
  std::vector<float> out(70 * 101);
  ops::linear(*backend, view_of(first.x, {70, 256}), both, view_of(bias, {101}),
              view_of(out, {70, 101}));
  const auto own = first.run(*backend, 70);
  const auto other = second.run(*backend, second.pack(*backend, DType::kF32), 0, 70);
  for (std::size_t row = 0; row < 70; ++row) {
    ASSERT_TRUE(same_bits(out.data() + row * 101, own.data() + row * 40, 40));
    ASSERT_TRUE(same_bits(out.data() + row * 101 + 40, other.data() + row * 21, 21));
    ASSERT_TRUE(same_bits(out.data() + row * 101 + 61, own.data() + row * 40, 40));
  }
}

// Weights of other types are multiplied as without the mode; those of bf16 take the same memory and
// give what f32 weights give to rounded inputs, but for the order.
TEST(LinearPairs, OnlyProductsOfBf16Change) {
  const auto plain = open(Isa::kAuto, 2, Inputs::kByWeights), mode = open(Isa::kAuto);
  EXPECT_EQ(mode->name(), plain->name() + "-bf16") << "figures tell one from the other";
  const Problem problem(45, 416, 20);
  for (const DType storage : {DType::kF32, DType::kF16, DType::kQ8, DType::kQ4, DType::kBF16}) {
    const LinearWeight a = problem.pack(*plain, storage), b = problem.pack(*mode, storage);
    EXPECT_EQ(a.packed.bytes(), b.packed.bytes());
    EXPECT_EQ(b.packed.bytes(), mode->packed_linear_bytes(45, 416, storage));
    const bool same = static_cast<bool>(
        same_bits(problem.run(*plain, a, 0, 20), problem.run(*mode, b, 0, 20)));
    EXPECT_EQ(same, storage != DType::kBF16) << dtype_name(storage);
  }
  Problem given = problem;
  given.x = rounded_to(DType::kBF16, given.x);
  const auto want = given.run(*plain, 20), got = problem.run(*mode, 20);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5f) << i;
}

// The tables themselves: also those that this processor would not choose.
TEST(PairKernelTables, AgreeBitForBit) {
  using namespace cpu;
  std::vector<const PairKernels*> tables{&portable_pair_kernels()};
  if (runs_here(Isa::kAvx2)) tables.push_back(&avx2_pair_kernels());
  if (runs_here(Isa::kAvx512)) tables.push_back(&avx512_pair_kernels());
  if (runs_here(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16") != 0) {
    tables.push_back(&bf16_pair_kernels());
  }
  constexpr std::int64_t kInputs = 299, kRows = 17, kPanels = 3;
  for (const float scale : {1.0f, 4e-20f}) {
    const std::vector<float> x = normal(kRows * kInputs, 2, scale);
    std::vector<std::uint16_t> weights =
        to_bf16(normal(kPanels * kInputs * kLanes, 1, scale));
    for (std::uint16_t& bits : weights) {
      if ((bits & 0x7f80u) == 0) bits &= 0x8000u;
    }
    std::vector<float> first;
    for (const PairKernels* const table : tables) {
      std::vector<std::uint32_t> a(kRows * ((kInputs + 1) / 2));
      const std::int64_t tiles = pair_tiles(kRows, table->tile_rows);
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t row = kRows * tile / tiles, rows = kRows * (tile + 1) / tiles - row;
        for (std::int64_t r = 0; r < rows; ++r) {
          const float* const from = x.data() + (row + r) * kInputs;
          table->round(from, kBlock, rows, a.data() + row * kBlock / 2 + r);
          table->round(from + kBlock, kInputs - kBlock, rows,
                       a.data() + kRows * kBlock / 2 + row * ((kInputs - kBlock + 1) / 2) + r);
        }
      }
      std::vector<float> out(kRows * kPanels * kLanes);
      table->multiply({.a = a.data(),
                       .rows = kRows,
                       .k = kInputs,
                       .b = weights.data(),
                       .panels = kPanels,
                       .out = out.data(),
                       .out_stride = kPanels * kLanes,
                       .columns = kPanels * kLanes});
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << table->tile_rows << " rows a tile, " << scale;
    }
  }
}

TEST(PairKernelTables, RoundAsFilesDo) {
  std::vector<float> numbers = normal(200, 7);
  for (const float special : {0.0f, -0.0f, 1e-40f, -1e-40f, 0x1p-126f, 0x1.fep-127f, 3.4e38f, -3.4e38f,
                              INFINITY, NAN, 1.00390625f, 1.01171875f}) {
    numbers.push_back(special);
  }
  for (const Isa isa : isas_here()) {
    const cpu::PairKernels& table = isa == Isa::kReference ? cpu::portable_pair_kernels()
                                    : isa == Isa::kAvx2    ? cpu::avx2_pair_kernels()
                                                           : cpu::avx512_pair_kernels();
    std::vector<std::uint32_t> out(106, 0);
    table.round(numbers.data(), 211, 1, out.data());
    for (std::size_t i = 0; i < 211; ++i) {
      const std::uint16_t bits = static_cast<std::uint16_t>(i % 2 == 0 ? out[i / 2] : out[i / 2] >> 16);
      const std::uint16_t want = float_to_bf16(numbers[i]);
      EXPECT_EQ(bits, (want & 0x7f80u) == 0 ? want & 0x8000u : want) << numbers[i];
    }
    EXPECT_EQ(out[105] >> 16, 0u);
  }
}

}  // namespace
}  // namespace tessera::testing::linear_pairs_test
