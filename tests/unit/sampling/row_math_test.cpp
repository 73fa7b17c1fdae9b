// Loops over rows against the plain formula, at every length around the width they run in.
#include "engine/sampling/row_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/core/fixed_math.h"

namespace tessera::row_math_test {
namespace {

template <typename Real>
class RowMath : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RowMath, Reals);

template <typename Real>
std::vector<Real> wave(std::size_t n, double step) {
  std::vector<Real> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = static_cast<Real>(20 * std::sin(step * static_cast<double>(i + 1)));
  }
  return out;
}

TYPED_TEST(RowMath, LargestStandsAnywhere) {
  for (std::size_t n = 1; n <= 40; ++n) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<TypeParam> row(n, TypeParam{-7});
      row[at] = TypeParam{-5};
      EXPECT_EQ(largest_of(row.data(), n), TypeParam{-5}) << n << " " << at;
    }
  }
}

TYPED_TEST(RowMath, GuidanceOfEveryLength) {
  for (std::size_t n = 1; n <= 40; ++n) {
    const auto cond = wave<TypeParam>(n, 1.3), uncond = wave<TypeParam>(n, 0.7);
    std::vector<TypeParam> out(n + 1, TypeParam{99});
    guide_row(cond.data(), uncond.data(), TypeParam{2.5}, n, out.data());
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(out[i], uncond[i] + TypeParam{2.5} * (cond[i] - uncond[i]));
    }
    EXPECT_EQ(out[n], TypeParam{99});
  }
}

TYPED_TEST(RowMath, SoftmaxOfEveryLength) {
  const double tolerance =
      sizeof(TypeParam) == 4 ? 5e-6 : 1e-14;  // differences up to 40 are rounded
  for (std::size_t n = 1; n <= 40; ++n) {
    const auto logits = wave<TypeParam>(n, 0.9);
    std::vector<TypeParam> out(n + 1, TypeParam{99});
    softmax_row(logits.data(), n, out.data());
    long double total = 0;
    for (const TypeParam logit : logits) total += std::exp(static_cast<long double>(logit));
    for (std::size_t i = 0; i < n; ++i) {
      const auto want = static_cast<double>(std::exp(static_cast<long double>(logits[i])) / total);
      EXPECT_NEAR(static_cast<double>(out[i]), want, tolerance * want) << n << " " << i;
    }
    EXPECT_EQ(out[n], TypeParam{99});
  }
}

// The sum's order, said in long-hand: lanes of 512, then halves.
TYPED_TEST(RowMath, SoftmaxSumsByLanes) {
  for (const std::size_t n : {1u, 2u, 3u, 511u, 512u, 513u, 1300u, 4096u}) {
    const auto logits = wave<TypeParam>(n, 0.37);
    std::vector<TypeParam> out(n), ones(n);
    softmax_row(logits.data(), n, out.data());
    const TypeParam largest = largest_of(logits.data(), n);
    std::vector<double> lanes(512, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      ones[i] = fixed_exp(logits[i] - largest);
      lanes[i % 512] += static_cast<double>(ones[i]);
    }
    for (std::size_t half = 256; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(out[i], ones[i] / static_cast<TypeParam>(lanes[0])) << n << " " << i;
    }
  }
}

// A list of ids has the weights of the row that it was picked from.
TYPED_TEST(RowMath, SoftmaxOfAListIsThatOfItsRow) {
  for (const std::size_t n : {1u, 7u, 300u, 1000u, 2000u}) {
    for (const std::size_t step : {1u, 2u, 3u, 61u}) {
      const auto wide = wave<TypeParam>(n, 0.11);
      std::vector<TypeParam> row(n, TypeParam{-2000}), listed, weights(n);
      std::vector<std::int32_t> ids;
      for (std::size_t i = (n - 1) % step; i < n; i += step) {
        row[i] = wide[i];
        ids.push_back(static_cast<std::int32_t>(i));
        listed.push_back(wide[i]);
      }
      std::vector<TypeParam> of_list(ids.size());
      softmax_row(row.data(), n, weights.data());
      softmax_row(ids.data(), listed.data(), ids.size(), of_list.data());
      for (std::size_t k = 0; k < ids.size(); ++k) {
        EXPECT_EQ(of_list[k], weights[static_cast<std::size_t>(ids[k])]) << n << " " << step;
      }
    }
  }
}

// The order of its sum is part of the guarantee that a seed keeps its image.
TYPED_TEST(RowMath, SoftmaxKeepsItsBits) {
  std::uint64_t hash = 1469598103934665603ull;
  for (const std::size_t n : {1000u, 1003u}) {
    std::vector<TypeParam> logits(n), out(n);
    for (std::size_t i = 0; i < n; ++i) {
      logits[i] = static_cast<TypeParam>(i * 7919 % 1024) / TypeParam{32};
    }
    softmax_row(logits.data(), n, out.data());
    for (const TypeParam weight : out) {
      hash = (hash ^ std::bit_cast<std::uint64_t>(static_cast<double>(weight))) * 1099511628211ull;
    }
  }
  EXPECT_EQ(hash, sizeof(TypeParam) == 4 ? 1526264977268255169ull : 12870182380650952717ull);
}

TYPED_TEST(RowMath, SoftmaxOfFarApartLogits) {
  const TypeParam logits[] = {TypeParam{-1e30}, TypeParam{5}, TypeParam{-3000}};
  TypeParam out[3];
  softmax_row(logits, 3, out);
  EXPECT_EQ(out[0], TypeParam{0});
  EXPECT_EQ(out[1], TypeParam{1});
  EXPECT_EQ(out[2], TypeParam{0});
}

// Within k units of the C library's power in long double; the same bits as the chain in long-hand.
TEST(FixedPower, IsAWholePower) {
  for (const double x : {0.0, 1e-9, 0.1, 1.0 / 3, 0.75, 0.9999999, 1.0, 1.5}) {
    for (std::uint32_t k = 0; k <= 64; ++k) {
      const auto want =
          static_cast<double>(std::pow(static_cast<long double>(x), static_cast<int>(k)));
      EXPECT_NEAR(fixed_power(x, k), want, want * k * 0x1p-52) << x << "^" << k;
    }
    const double square = x * x;
    EXPECT_EQ(fixed_power(x, 5), x * (square * square)) << x;
    EXPECT_EQ(fixed_power(x, 6), square * (square * square)) << x;
  }
  static_assert(fixed_power(2, 10) == 1024 && fixed_power(0, 0) == 1);
}

}  // namespace
}  // namespace tessera::row_math_test
