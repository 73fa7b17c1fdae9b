// Farthest-point traversal and DivPrune against a golden order, brute force and injected faults.
#include "vision/pruning/divprune.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/pruning_chain.h"

namespace tessera::divprune_test {
namespace {

const std::vector<double> kAngles = {0, 10, 20, 40, 80, 85, 170, 180};

std::vector<TokenIndex> picks(const std::vector<float>& rows, std::int64_t columns,
                              std::int64_t k) {
  PruneScratch scratch;
  const auto all = count_up(static_cast<std::int64_t>(rows.size()) / columns);
  const auto unit = normalised_rows(matrix(rows, columns), all, scratch);
  const auto span = farthest_points(unit, k, scratch);
  return {span.begin(), span.end()};
}

double distance(const std::vector<float>& rows, std::int64_t columns, TokenIndex a, TokenIndex b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    const double x = rows[static_cast<std::size_t>(a * columns + c)];
    const double y = rows[static_cast<std::size_t>(b * columns + c)];
    ab += x * y, aa += x * x, bb += y * y;
  }
  return 1 - ab / std::sqrt(aa * bb);
}

double min_distance(const std::vector<float>& rows, std::int64_t columns,
                      const std::vector<TokenIndex>& set) {
  double least = HUGE_VAL;
  for (const TokenIndex a : set) {
    for (const TokenIndex b : set) {
      if (a != b) least = std::min(least, distance(rows, columns, a, b));
    }
  }
  return least;
}

TEST(FarthestPoints, GoldenOrderAndDistances) {
  const auto rows = at_degrees(kAngles);
  const auto order = picks(rows, 2, 5);
  EXPECT_EQ(order, (std::vector<TokenIndex>{3, 7, 5, 0, 2}));
  const double want[] = {1.766044, 0.292893, 0.233956, 0.060307};
  for (std::size_t k = 2; k <= 5; ++k) {
    EXPECT_NEAR(min_distance(rows, 2, {order.begin(), order.begin() + static_cast<long>(k)}),
                want[k - 2], 1e-6);
  }
}

TEST(FarthestPoints, IsTheGreedyHeuristicNotTheOptimum) {
  const auto rows = at_degrees(kAngles);
  double best = 0;
  for (TokenIndex a = 0; a < 8; ++a) {
    for (TokenIndex b = a + 1; b < 8; ++b) {
      for (TokenIndex c = b + 1; c < 8; ++c) {
        const double least = min_distance(rows, 2, {a, b, c});
        best = std::max(best, least);
      }
    }
  }
  EXPECT_NEAR(min_distance(rows, 2, {0, 5, 6}), best, 1e-6);
  EXPECT_NEAR(best, 0.912844, 1e-6);
  EXPECT_LT(min_distance(rows, 2, picks(rows, 2, 3)), best);
}

TEST(FarthestPoints, DuplicatesDoNotReturn) {
  const std::vector<float> rows = {1, 0, 1, 0, 0, 1, 0, 1};
  auto order = picks(rows, 2, 4);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, count_up(4)) << "the published code picks one of them twice";
}

// The first pick has the farthest nearest neighbour, every other pick attains the largest
// distance to those before.
bool is_greedy(const std::vector<float>& rows, std::int64_t columns,
               const std::vector<TokenIndex>& order) {
  const auto n = static_cast<TokenIndex>(rows.size()) / columns;
  std::vector<TokenIndex> before;
  for (const TokenIndex pick : order) {
    const auto far = [&](TokenIndex i) {
      double least = HUGE_VAL;
      for (TokenIndex j = 0; j < n; ++j) {
        const bool counts =
            before.empty() ? j != i : std::count(before.begin(), before.end(), j) > 0;
        if (counts) least = std::min(least, distance(rows, columns, i, j));
      }
      return least;
    };
    for (TokenIndex i = 0; i < n; ++i) {
      if (std::count(before.begin(), before.end(), i) == 0 && far(i) > far(pick) + 1e-6)
        return false;
    }
    before.push_back(pick);
  }
  return true;
}

TEST(FarthestPoints, EveryPickAttainsTheMaximum) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto rows = noise_list(seed, 24 * 5);
    auto order = picks(rows, 5, 12);
    EXPECT_TRUE(is_greedy(rows, 5, order)) << seed;
    std::swap(order[0], order[1]);
    EXPECT_FALSE(is_greedy(rows, 5, order)) << "injected fault: first two swapped, " << seed;
  }
}

TEST(FarthestPoints, ScaleAndPermutation) {
  const std::int64_t d = 6, n = 30;
  const auto rows = noise_list(7, static_cast<std::size_t>(n * d));
  const auto order = picks(rows, d, 10);
  auto scaled = rows;
  for (std::size_t i = 0; i < scaled.size(); ++i)
    scaled[i] *= 0.1f + noise(8, static_cast<std::uint32_t>(i) / 6) * 9;
  EXPECT_EQ(picks(scaled, d, 10), order);
  std::vector<float> moved(rows.size());
  const auto to = [&](TokenIndex i) { return (7 * i + 3) % n; };
  for (TokenIndex i = 0; i < n; ++i) {
    std::copy_n(rows.begin() + i * d, d, moved.begin() + to(i) * d);
  }
  std::vector<TokenIndex> want;
  for (const TokenIndex i : order) want.push_back(to(i));
  EXPECT_EQ(picks(moved, d, 10), want);
}

TEST(FarthestPoints, RowsThatAreNotNumbersComeLast) {
  auto rows = at_degrees(kAngles);
  rows.insert(rows.end(), {std::nanf(""), 0});
  EXPECT_EQ(picks(rows, 2, 5), (std::vector<TokenIndex>{3, 7, 5, 0, 2}));
  EXPECT_EQ(picks(rows, 2, 9).back(), 8);
}

TEST(DivPrune, KeepsThePicksInRasterOrder) {
  const VisualBlock block = grid_block(2, 4);
  SignalStore store;
  store.add(SignalKind::kEmbeddings, 0, 2, at_degrees(kAngles));
  const PrunePlan plan = select_once(DivPrune(), block, store, keep_tokens(5));
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 2, 3, 5, 7}));
  EXPECT_EQ(plan.positions, PositionPolicy::kRenumber);
}

// Newlines are copies of one vector: where they compete, one of them at most is worth a place.
TEST(DivPrune, NewlinesCompeteOnlyWhenHeard) {
  VisualBlock block = grid_block(1, 11);
  std::vector<double> angles = kAngles;
  for (const std::size_t i : {8u, 9u, 10u}) {
    block.tokens[i].kind = TokenKind::kNewline;
    angles.push_back(270);
  }
  SignalStore store;
  store.add(SignalKind::kEmbeddings, 0, 2, at_degrees(angles));
  const PrunePlan next_to = select_once(DivPrune(), block, store, keep_tokens(2));
  EXPECT_EQ(next_to.kept, (std::vector<TokenIndex>{3, 7, 8, 9, 10}));
  Budget published = keep_tokens(5);
  published.outcome[static_cast<std::size_t>(TokenKind::kNewline)] = TokenOutcome::kCompete;
  const PrunePlan competing = select_once(DivPrune(), block, store, published);
  EXPECT_EQ(competing.kept.size(), 5u);
  EXPECT_EQ(std::count_if(competing.kept.begin(), competing.kept.end(),
                          [](TokenIndex i) { return i >= 8; }),
            1);
}

}  // namespace
}  // namespace tessera::divprune_test
