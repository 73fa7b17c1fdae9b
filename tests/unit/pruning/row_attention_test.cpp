// A few attention rows against whole dense attention in double.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/pruning_chain.h"
#include "vision/pruning/primitives.h"

namespace tessera {
namespace {

struct Dense {
  std::int64_t rows, heads, kv_heads, dim, keys;
  std::vector<float> q, k;  // head-major queries; keys [keys, kv_heads * dim]

  double logit(std::int64_t h, std::int64_t r, std::int64_t j, double scale) const {
    double sum = 0;
    const std::int64_t kv = h / (heads / kv_heads);
    for (std::int64_t c = 0; c < dim; ++c) {
      sum += static_cast<double>(q[static_cast<std::size_t>((h * rows + r) * dim + c)]) *
             k[static_cast<std::size_t>(j * kv_heads * dim + kv * dim + c)];
    }
    return sum * scale;
  }
  double sum_exp(std::int64_t h, std::int64_t r, double scale, std::int64_t from,
                 std::int64_t to) const {
    double sum = 0;
    for (std::int64_t j = from; j < to; ++j) sum += std::exp(logit(h, r, j, scale));
    return sum;
  }
};

Dense made_up(std::uint64_t seed, std::int64_t heads = 6, std::int64_t kv_heads = 2) {
  Dense d{.rows = 3, .heads = heads, .kv_heads = kv_heads, .dim = 5, .keys = 23};
  d.q = noise_list(seed, static_cast<std::size_t>(d.rows * heads * d.dim));
  d.k = noise_list(seed + 1, static_cast<std::size_t>(d.keys * kv_heads * d.dim));
  for (float& value : d.q) value *= 4;
  return d;
}

RowAttention request_for(const Dense& d, float scale) {
  return {.queries = matrix(d.q, d.dim),
          .keys = matrix(d.k, d.kv_heads * d.dim),
          .heads = d.heads,
          .kv_heads = d.kv_heads,
          .scale = scale,
          .first_column = 0,
          .columns = d.keys};
}

TEST(RowAttention, WithTheLogSumItGivesTheTrueWeights) {
  const Dense d = made_up(1);
  const float scale = 0.37f;
  std::vector<float> lse;
  for (std::int64_t h = 0; h < d.heads; ++h) {
    for (std::int64_t r = 0; r < d.rows; ++r) {
      lse.push_back(static_cast<float>(std::log(d.sum_exp(h, r, scale, 0, d.keys))));
    }
  }
  RowAttention request = request_for(d, scale);
  request.log_sum_exp = lse;
  request.first_column = 4;
  request.columns = 10;
  PruneScratch scratch;
  const auto out = row_attention(request, scratch);
  ASSERT_EQ(out.size(), static_cast<std::size_t>(d.heads * d.rows * 10));
  double worst = 0;
  for (std::int64_t h = 0; h < d.heads; ++h) {
    for (std::int64_t r = 0; r < d.rows; ++r) {
      for (std::int64_t j = 0; j < 10; ++j) {
        const double want =
            std::exp(d.logit(h, r, 4 + j, scale)) / d.sum_exp(h, r, scale, 0, d.keys);
        worst = std::max(worst,
                         std::abs(want - out[static_cast<std::size_t>((h * d.rows + r) * 10 + j)]));
      }
    }
  }
  EXPECT_LT(worst, 1e-5);
}

TEST(RowAttention, WithoutItTheRangeAloneSumsToOne) {
  const Dense d = made_up(2, 4, 4);
  RowAttention request = request_for(d, 0.5f);
  request.first_column = 7;
  request.columns = 9;
  PruneScratch scratch;
  const auto out = row_attention(request, scratch);
  for (std::int64_t query = 0; query < d.heads * d.rows; ++query) {
    double sum = 0;
    for (std::int64_t j = 0; j < 9; ++j) {
      const double weight = out[static_cast<std::size_t>(query * 9 + j)];
      const std::int64_t h = query / d.rows, r = query % d.rows;
      EXPECT_NEAR(weight, std::exp(d.logit(h, r, 7 + j, 0.5)) / d.sum_exp(h, r, 0.5, 7, 16), 1e-6);
      sum += weight;
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(RowAttention, Reductions) {
  const Dense d = made_up(3);
  RowAttention request = request_for(d, 1);
  PruneScratch scratch;
  const auto each = row_attention(request, scratch);
  request.reduce = AttentionReduce::kHeadMean;
  const auto mean = row_attention(request, scratch);
  request.reduce = AttentionReduce::kHeadSum;
  const auto sum = row_attention(request, scratch);
  request.reduce = AttentionReduce::kMean;
  const auto all = row_attention(request, scratch);
  ASSERT_EQ(mean.size(), static_cast<std::size_t>(d.rows * d.keys));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(d.keys));
  for (std::int64_t j = 0; j < d.keys; ++j) {
    double over_all = 0;
    for (std::int64_t r = 0; r < d.rows; ++r) {
      double over_heads = 0;
      for (std::int64_t h = 0; h < d.heads; ++h) {
        over_heads += each[static_cast<std::size_t>((h * d.rows + r) * d.keys + j)];
      }
      const auto at = static_cast<std::size_t>(r * d.keys + j);
      EXPECT_NEAR(sum[at], over_heads, 1e-6);
      EXPECT_NEAR(mean[at], over_heads / static_cast<double>(d.heads), 1e-6);
      over_all += over_heads;
    }
    EXPECT_NEAR(all[static_cast<std::size_t>(j)], over_all / static_cast<double>(d.heads * d.rows),
                1e-6);
  }
}

TEST(RowAttention, LargeLogitsStayFinite) {
  const std::vector<float> q = {300, 0}, k = {300, 0, -300, 0, 299, 1};
  PruneScratch scratch;
  const auto out =
      row_attention({.queries = matrix(q, 2), .keys = matrix(k, 2), .columns = 3}, scratch);
  EXPECT_NEAR(out[0], 1, 1e-6);
  EXPECT_EQ(out[1], 0);
  EXPECT_TRUE(std::isfinite(out[2]));
}

// What ToMe rests on: a key that stands for n equal tokens, with ln n added to its logit, weighs
// what the n tokens weigh together.
TEST(RowAttention, BiasByLogSizeEqualsRepeatedKeys) {
  const Dense d = made_up(4);
  const std::vector<std::int64_t> sizes = {3, 1, 2, 7, 1};
  std::vector<float> merged(d.k.begin(), d.k.begin() + 5 * d.kv_heads * d.dim), repeated, bias;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    bias.push_back(std::log(static_cast<float>(sizes[i])));
    const auto row = matrix(merged, d.kv_heads * d.dim).row(static_cast<std::int64_t>(i));
    for (std::int64_t n = 0; n < sizes[i]; ++n)
      repeated.insert(repeated.end(), row.begin(), row.end());
  }
  RowAttention request = request_for(d, 0.6f);
  request.keys = matrix(repeated, d.kv_heads * d.dim);
  request.columns = request.keys.rows;
  PruneScratch scratch;
  const auto want = row_attention(request, scratch);
  request.keys = matrix(merged, d.kv_heads * d.dim);
  request.columns = 5;
  request.bias = bias;
  const auto got = row_attention(request, scratch);
  for (std::int64_t query = 0; query < d.heads * d.rows; ++query) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      double sum = 0;
      for (std::int64_t n = 0; n < sizes[i]; ++n) {
        sum += want[static_cast<std::size_t>(query * 14 + at++)];
      }
      EXPECT_NEAR(got[static_cast<std::size_t>(query * 5) + i], sum, 2e-6);
    }
  }
}

}  // namespace
}  // namespace tessera
