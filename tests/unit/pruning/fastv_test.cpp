// FastV: dropping with original ids equals masking, on a small causal transformer written out in
// double; renumbering does not (the injected fault).
#include "vision/pruning/fastv.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/pruning_chain.h"

namespace tessera::fastv_test {
namespace {

// Attention only: x += W_o attention(rope(W_q x), rope(W_k x), W_v x), heads of width kDim.
constexpr std::size_t kHeads = 2, kDim = 4, kWide = kHeads * kDim;
using Rows = std::vector<std::vector<double>>;

class TinyStack {
 public:
  explicit TinyStack(std::size_t layers) {
    for (std::size_t l = 0; l < layers * 4; ++l)
      weights_.push_back(noise_list(50 + l, kWide * kWide));
  }

  // One layer. `visible(i, j)`: row i may see row j. `weights`, if asked for: [heads][rows][rows].
  Rows layer(std::size_t l, const Rows& x, const std::vector<std::int32_t>& positions,
             const std::function<bool(std::size_t, std::size_t)>& visible,
             std::vector<Rows>* weights = nullptr) const {
    const Rows q = turned(times(x, 4 * l), positions), k = turned(times(x, 4 * l + 1), positions);
    const Rows v = times(x, 4 * l + 2);
    Rows mixed(x.size(), std::vector<double>(kWide));
    if (weights) weights->assign(kHeads, Rows(x.size(), std::vector<double>(x.size())));
    for (std::size_t h = 0; h < kHeads; ++h) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::vector<double> e(i + 1);
        double sum = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          if (!visible(i, j)) continue;
          double logit = 0;
          for (std::size_t c = 0; c < kDim; ++c) logit += q[i][h * kDim + c] * k[j][h * kDim + c];
          sum += e[j] = std::exp(logit / std::sqrt(static_cast<double>(kDim)));
        }
        for (std::size_t j = 0; j <= i; ++j) {
          if (weights) (*weights)[h][i][j] = e[j] / sum;
          for (std::size_t c = 0; c < kDim; ++c)
            mixed[i][h * kDim + c] += e[j] / sum * v[j][h * kDim + c];
        }
      }
    }
    Rows out = times(mixed, 4 * l + 3);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t c = 0; c < kWide; ++c) out[i][c] += x[i][c];
    }
    return out;
  }

 private:
  Rows times(const Rows& x, std::size_t which) const {
    Rows out(x.size(), std::vector<double>(kWide));
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t o = 0; o < kWide; ++o) {
        for (std::size_t c = 0; c < kWide; ++c)
          out[i][o] += x[i][c] * weights_[which][o * kWide + c];
      }
    }
    return out;
  }
  static Rows turned(Rows x, const std::vector<std::int32_t>& positions) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t h = 0; h < kHeads; ++h) {
        for (std::size_t c = 0; c < kDim / 2; ++c) {
          const double angle = positions[i] * std::pow(100.0, -2.0 * static_cast<double>(c) / kDim);
          double& a = x[i][h * kDim + c];
          double& b = x[i][h * kDim + c + kDim / 2];
          const double turned_a = a * std::cos(angle) - b * std::sin(angle);
          b = a * std::sin(angle) + b * std::cos(angle);
          a = turned_a;
        }
      }
    }
    return x;
  }
  std::vector<std::vector<float>> weights_;
};

// 3 text tokens, a 3 x 5 image, 4 text tokens.
constexpr std::size_t kBefore = 3, kImage = 15, kAfter = 4, kLength = kBefore + kImage + kAfter;

struct Prefill {
  TinyStack stack{4};
  VisualBlock block = grid_block(3, 5, kBefore);
  std::vector<std::int32_t> positions;
  Rows x, at_two;
  std::vector<Rows> weights;  // of layer 1

  Prefill() {
    const auto values = noise_list(7, kLength * kWide);
    for (std::size_t i = 0; i < kLength; ++i) {
      positions.push_back(static_cast<std::int32_t>(i));
      x.emplace_back(values.begin() + static_cast<long>(i * kWide),
                     values.begin() + static_cast<long>((i + 1) * kWide));
    }
    const auto all = [](std::size_t, std::size_t) { return true; };
    at_two = stack.layer(1, stack.layer(0, x, positions, all), positions, all, &weights);
  }

  PrunePlan plan(std::int64_t keep) const {
    std::vector<float> rows;
    for (std::size_t h = 0; h < kHeads; ++h) {
      for (std::size_t j = 0; j < kImage; ++j) {
        rows.push_back(static_cast<float>(weights[h][kLength - 1][kBefore + j]));
      }
    }
    SignalStore store;
    store.add(SignalKind::kAttentionRows, 1, kImage, rows, kHeads);
    return select_once(FastV({}), block, store, keep_tokens(keep));
  }

  // Layers 2 and 3 on the survivors; the last text rows.
  Rows dropped(const PrunePlan& plan, PositionPolicy policy) const {
    const std::vector<PlacedPlan> placed = {{&plan, kBefore, kImage}};
    const PrunedSequence sequence = prune_sequence(positions, 1, placed, policy);
    Rows rows;
    for (const std::int64_t i : sequence.rows) rows.push_back(at_two[static_cast<std::size_t>(i)]);
    const auto all = [](std::size_t, std::size_t) { return true; };
    rows = stack.layer(3, stack.layer(2, rows, sequence.positions, all), sequence.positions, all);
    return {rows.end() - static_cast<long>(kAfter), rows.end()};
  }

  Rows masked(const PrunePlan& plan) const {
    const auto visible = [&](std::size_t, std::size_t j) {
      if (j < kBefore || j >= kBefore + kImage) return true;
      return std::binary_search(plan.kept.begin(), plan.kept.end(),
                                static_cast<TokenIndex>(j - kBefore));
    };
    // Rows of dropped tokens see the first token at least, so that no sum is empty.
    const Rows rows =
        stack.layer(3, stack.layer(2, at_two, positions, visible), positions, visible);
    return {rows.end() - static_cast<long>(kAfter), rows.end()};
  }
};

double largest_difference(const Rows& a, const Rows& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t c = 0; c < a[i].size(); ++c)
      worst = std::max(worst, std::abs(a[i][c] - b[i][c]));
  }
  return worst;
}

TEST(FastV, DroppingEqualsMaskingUnderOriginalIds) {
  const Prefill run;
  for (const std::int64_t keep : {0, 1, 4, 7, 14}) {
    const PrunePlan plan = run.plan(keep);
    ASSERT_EQ(plan.chosen, keep);
    ASSERT_EQ(plan.positions, PositionPolicy::kOriginal);
    const Rows masked = run.masked(plan);
    EXPECT_LT(largest_difference(run.dropped(plan, PositionPolicy::kOriginal), masked), 1e-12);
    if (keep < 14) {
      EXPECT_GT(largest_difference(run.dropped(plan, PositionPolicy::kRenumber), masked), 1e-3)
          << "injected fault: ids run on";
    }
  }
}

TEST(FastV, KeepingAllIsTheIdentityBitForBit) {
  const Prefill run;
  const PrunePlan plan = run.plan(kImage);
  EXPECT_EQ(run.dropped(plan, PositionPolicy::kOriginal), run.masked(plan));
  EXPECT_EQ(plan.kept, count_up(kImage));
}

TEST(FastV, KeepsWhatTheLastRowLooksAt) {
  const Prefill run;
  const PrunePlan plan = run.plan(6);
  std::vector<double> row(kImage);
  for (std::size_t j = 0; j < kImage; ++j) {
    for (std::size_t h = 0; h < kHeads; ++h) row[j] += run.weights[h][kLength - 1][kBefore + j];
  }
  double min_kept = HUGE_VAL, max_dropped = 0;
  for (std::size_t j = 0; j < kImage; ++j) {
    const bool kept =
        std::binary_search(plan.kept.begin(), plan.kept.end(), static_cast<TokenIndex>(j));
    if (kept) min_kept = std::min(min_kept, row[j]);
    if (!kept) max_dropped = std::max(max_dropped, row[j]);
  }
  EXPECT_GE(min_kept, max_dropped - 1e-7);
}

TEST(FastV, AsksForTheLayerBeforeAndHalfByDefaultRounding) {
  const FastV pruner({.layer = 3});
  const Hook hook = pruner.hooks({}).front();
  EXPECT_EQ(hook, (Hook{HookPoint::kBeforeLlm, 3}));
  const auto needs = pruner.needs(hook, {}, {});
  ASSERT_EQ(needs.size(), 1u);
  EXPECT_EQ(needs[0].layer, 2);
  EXPECT_EQ(needs[0].rows, RowChoice::kLast);
  EXPECT_EQ(FastV({.column_mean = true}).needs({HookPoint::kBeforeLlm, 2}, {}, {})[0].rows,
            RowChoice::kAllText);
}

}  // namespace
}  // namespace tessera::fastv_test
