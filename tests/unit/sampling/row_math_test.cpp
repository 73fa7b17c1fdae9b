// Loops over rows against the plain formula, at every length around the width they run in.
#include "engine/sampling/row_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tessera {
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

// The order of its sum is part of the promise that a seed keeps its picture.
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
  EXPECT_EQ(hash, sizeof(TypeParam) == 4 ? 1526264977268255169ull : 17122713496160966531ull);
}

TYPED_TEST(RowMath, SoftmaxOfFarApartLogits) {
  const TypeParam logits[] = {TypeParam{-1e30}, TypeParam{5}, TypeParam{-3000}};
  TypeParam out[3];
  softmax_row(logits, 3, out);
  EXPECT_EQ(out[0], TypeParam{0});
  EXPECT_EQ(out[1], TypeParam{1});
  EXPECT_EQ(out[2], TypeParam{0});
}

}  // namespace
}  // namespace tessera
