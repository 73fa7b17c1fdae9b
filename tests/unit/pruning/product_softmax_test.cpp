// Softmax of a query over listed rows against dense sums in double.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/pruning_chain.h"
#include "vision/pruning/primitives.h"

namespace tessera::product_softmax_test {
namespace {

constexpr std::int64_t kDim = 5, kRows = 23;

struct Dense {
  std::int64_t heads, row_heads;
  std::vector<float> query, rows;

  double logit(std::int64_t h, std::int64_t j, double scale) const {
    double sum = 0;
    for (std::int64_t c = 0; c < kDim; ++c) {
      sum +=
          static_cast<double>(query[static_cast<std::size_t>(h * kDim + c)]) *
          static_cast<double>(
              rows[static_cast<std::size_t>((j * row_heads + h / (heads / row_heads)) * kDim + c)]);
    }
    return sum * scale;
  }
  double self(std::int64_t h, double scale) const {
    double sum = 0;
    for (std::int64_t c = 0; c < kDim; ++c) {
      sum += std::pow(static_cast<double>(query[static_cast<std::size_t>(h * kDim + c)]), 2);
    }
    return sum * scale;
  }
};

Dense made_up(std::uint64_t seed, std::int64_t heads, std::int64_t row_heads) {
  Dense d{.heads = heads, .row_heads = row_heads, .query = {}, .rows = {}};
  d.query = noise_list(seed, static_cast<std::size_t>(heads * kDim));
  d.rows = noise_list(seed + 1, static_cast<std::size_t>(kRows * row_heads * kDim));
  for (float& value : d.query) value *= 4;
  return d;
}

TEST(ProductSoftmax, EqualsTheDenseMeanOverHeads) {
  const std::vector<TokenIndex> listed = {3, 4, 9, 0, 22};
  for (const std::int64_t row_heads : {6, 2, 1}) {
    const Dense d = made_up(1, 6, row_heads);
    for (const bool with_self : {false, true}) {
      PruneScratch scratch;
      const auto out = product_softmax({.query = d.query,
                                        .heads = 6,
                                        .rows = matrix(d.rows, row_heads * kDim),
                                        .row_heads = row_heads,
                                        .listed = listed,
                                        .scale = 0.5f,
                                        .with_self = with_self},
                                       scratch);
      ASSERT_EQ(out.size(), listed.size());
      for (std::size_t i = 0; i < listed.size(); ++i) {
        double want = 0;
        for (std::int64_t h = 0; h < 6; ++h) {
          double sum = with_self ? std::exp(d.self(h, 0.5)) : 0.0;
          for (const TokenIndex j : listed) sum += std::exp(d.logit(h, j, 0.5));
          want += std::exp(d.logit(h, listed[i], 0.5)) / sum / 6;
        }
        EXPECT_NEAR(out[i], want, 1e-6) << row_heads << " " << with_self;
      }
    }
  }
}

TEST(ProductSoftmax, LargeLogitsStayFinite) {
  const std::vector<float> query = {300, 0}, rows = {300, 0, -300, 0, 299, 1};
  const std::vector<TokenIndex> listed = {0, 1, 2};
  PruneScratch scratch;
  const auto out =
      product_softmax({.query = query, .rows = matrix(rows, 2), .listed = listed}, scratch);
  EXPECT_NEAR(out[0], 1, 1e-6);
  EXPECT_EQ(out[1], 0);
  EXPECT_TRUE(std::isfinite(out[2]));
}

TEST(ProductSoftmax, NothingListedGivesNothing) {
  const std::vector<float> query = {1, 2}, rows = {1, 2};
  PruneScratch scratch;
  EXPECT_TRUE(product_softmax({.query = query, .rows = matrix(rows, 2)}, scratch).empty());
}

}  // namespace
}  // namespace tessera::product_softmax_test
