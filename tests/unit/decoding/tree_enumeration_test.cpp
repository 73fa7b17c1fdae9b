// Every outcome of decoding with branching drafts, weighed: whoever gives the distributions, whatever rule
// verifies siblings and however the tree grows, an image comes with the product of its conditional
// probabilities, to rounding. Rows of a pass are those that the stream loop would feed.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/support/tree_decoding.h"

namespace tessera::tree_enumeration_test {
namespace {

constexpr std::string_view kKeepingRedrafts[] = {"resample", "maximal", "gumbel"};

// Table `number` with at least two drafted positions every other time: the first token is never
// drafted, nor is the last.
template <typename Real>
TableModel<Real> drafted_table(unsigned number, std::size_t turn) {
  TableModel<Real> model = table<Real>(number);
  model.total = model.vocabulary == 2 ? 4 + turn % 2 : 3 + turn / 2 % 2;
  return model;
}

std::string named(const DecodeMethod& method) {
  return method.tree + ": " + method.drafter + '/' + method.redraft_policy + ", " +
         std::to_string(method.window) + " rows, width " + std::to_string(method.get<TreeSettings>().width) +
         ", depth " + std::to_string(method.get<TreeSettings>().depth);
}

// Sums up what a test has seen.
struct Seen {
  std::string what;
  TreeWatch watch;
  std::size_t dists = 0;
  double worst = 0;

  void gap(double value) {
    worst = std::max(worst, value);
    ++dists;
  }
  ~Seen() {
    std::cout << what << ": " << dists << " distributions, " << watch.paths << " paths, " << watch.passes
              << " passes, " << watch.next_to << " rows next to others, worst total variation "
              << worst << '\n';
  }
};

// Siblings are drawn one by one and may repeat: the number of paths is many times that of others.
bool many_paths(std::string_view tree) { return tree == "rrs" || tree == "kseq"; }

// --- distributions from the last pass --------------------------------------------------------------------

// Every drafter with every tail on each table; rows, width and depth take turns.
template <typename Real>
void expect_lossless(std::string_view tree, unsigned tables, double tolerance) {
  Seen seen{std::string(tree)};
  std::size_t turn = 0;
  for (unsigned number = 0; number < tables; ++number) {
    for (const std::string_view drafter : {"uniform", "left", "neighbour-law"}) {
      for (const std::string_view redraft_policy : kKeepingRedrafts) {
        ++turn;
        const bool few = many_paths(tree);
        const TableModel<Real> model = drafted_table<Real>(number, few ? 0 : turn);
        const bool wide = model.vocabulary == 3 && model.total == 3;
        const auto rows = static_cast<std::int64_t>(3 + (turn + number) % 4);
        const auto depth = static_cast<std::int64_t>(1 + (turn / 2 + number / 2) % 2);
        const DecodeMethod method =
            combine_tree(tree, drafter, redraft_policy, {rows, wide && turn % 4 < 2 ? 3 : 2, depth});
        ASSERT_NE(guarantee_of(method), Guarantee::kNone);
        const double gap = total_variation(
            tree_dist<Real>(model, method, nullptr, {.watch = &seen.watch}), product_dist(model));
        seen.gap(gap);
        ASSERT_LT(gap, tolerance) << "table " << number << " of " << model.total << " tokens, "
                                  << named(method);
      }
    }
  }
  EXPECT_GT(seen.watch.next_to, 500u) << "drafts hardly ever branched";
  EXPECT_EQ(seen.watch.beyond, 0u);
}

class EveryTree : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EveryTree, KeepsTheDistributionInDouble) { expect_lossless<double>(GetParam(), 20, 1e-12); }
TEST_P(EveryTree, KeepsTheDistributionInFloat) { expect_lossless<float>(GetParam(), 6, 1e-6); }

// Each node has the prefix of its own path. Without a source the candidates are those of the last
// pass; with one they come of rows that no processor changed.
TEST_P(EveryTree, KeepsTheDistributionWithLogitsProcessors) {
  Seen seen{std::string(GetParam()) + ", processed"};
  std::size_t turn = 0;
  for (unsigned number = 0; number < 20; ++number) {
    TableModel<double> model = processed_table<double>(number);
    if (many_paths(GetParam()) && number % 3 != 0) continue;
    model.total = model.vocabulary == 2 && !many_paths(GetParam()) ? 5 : 4;
    if (model.vocabulary == 3 && many_paths(GetParam())) model.total = 3;
    const auto truth = product_dist(model);
    for (const std::string_view redraft_policy : kKeepingRedrafts) {
      const std::string_view drafter = ++turn % 2 == 0 ? "uniform" : "neighbour-law";
      const DecodeMethod method = combine_tree(GetParam(), drafter, redraft_policy, {4, 2, 2});
      const double own = total_variation(
          tree_dist<double>(model, method, nullptr, {.watch = &seen.watch}), truth);
      seen.gap(own);
      ASSERT_LT(own, 1e-12) << "table " << number << ", " << named(method);
    }
    TableModel<double> guide = table<double>(number + 1);
    guide.vocabulary = model.vocabulary;
    guide.total = model.total;
    guide.dist = {};
    TableDistributions<double> source(guide, false);
    const DecodeMethod method = combine_tree(GetParam(), "uniform", "drop", {4, 2, 2});
    const double given = total_variation(
        tree_dist<double>(model, method, &source, {.watch = &seen.watch}), truth);
    seen.gap(given);
    ASSERT_LT(given, 1e-12) << "table " << number << " with a source, " << named(method);
  }
}

// Growth that looks at drafts deeper in the tree must not tell by the number of siblings what they
// are: they stay for the next pass, and so does the noise they were drawn with.
TEST_P(EveryTree, KeepsTheDistributionWhereDraftsStay) {
  const std::string_view tree = GetParam();
  Seen seen{std::string(tree) + ", longer"};
  for (unsigned number = 0; number < 20; number += many_paths(tree) ? 10 : 4) {
    TableModel<double> model = table<double>(number);
    model.vocabulary = 2;
    model.total = 5;
    const auto truth = product_dist(model);
    for (const std::string_view drafter : {"uniform", "neighbour-law"}) {
      if (drafter == "neighbour-law" && many_paths(tree)) continue;
      for (const std::string_view redraft_policy : kKeepingRedrafts) {
        for (const std::int64_t rows : {4, 6}) {
          if (rows == 6 && many_paths(tree)) continue;
          const DecodeMethod method = combine_tree(tree, drafter, redraft_policy, {rows, 2, 2});
          const double gap = total_variation(
              tree_dist<double>(model, method, nullptr, {.watch = &seen.watch}), truth);
          seen.gap(gap);
          ASSERT_LT(gap, 1e-12) << "table " << number << ", " << named(method);
        }
      }
    }
  }
}

// Seven tokens: a window that a tail filled and passes used up is filled anew by a drafter, whose
// drafts have other distributions than what stood in their places.
TEST_P(EveryTree, KeepsTheDistributionWhereDraftsFollowDrafts) {
  const std::string_view tree = GetParam();
  Seen seen{std::string(tree) + ", seven tokens"};
  if (many_paths(tree)) GTEST_SKIP() << "half a million paths; the growth is that of rsd";
  for (const unsigned number : {0u, 4u}) {
    if (number > 0 && (tree == "gumbel" || tree == "dyspec")) continue;
    TableModel<double> model = table<double>(number);
    model.vocabulary = 2;
    model.total = 7;
    const DecodeMethod method = combine_tree(tree, "left", "resample", {6, 2, 2});
    const double gap = total_variation(
        tree_dist<double>(model, method, nullptr, {.watch = &seen.watch}), product_dist(model));
    seen.gap(gap);
    ASSERT_LT(gap, 1e-12) << "table " << number << ", " << named(method);
  }
}

// Widths that follow what the last pass accepted, as an adaptive window's do.
TEST_P(EveryTree, KeepsTheDistributionUnderWidthsThatChange) {
  const std::string_view tree = GetParam();
  Seen seen{std::string(tree) + ", changing widths"};
  TreeOptions<double, WalkingRandom> options{.watch = &seen.watch};
  for (const std::size_t turn : {0, 1}) {
    options.width = [turn](const auto& sequence) {
      const auto accepted = static_cast<std::size_t>(sequence.last_accepted());
      return 1 + (turn + accepted + 2 * sequence.tokens().size()) % 5;
    };
    for (unsigned number = 0; number < 20; number += 4) {
      TableModel<double> model = table<double>(number);
      model.total = many_paths(tree) ? 4 : 5;
      for (const std::string_view redraft_policy : kKeepingRedrafts) {
        const DecodeMethod method = combine_tree(tree, "uniform", redraft_policy, {5, 2, 2});
        const double gap =
            total_variation(tree_dist<double>(model, method, nullptr, options), product_dist(model));
        seen.gap(gap);
        ASSERT_LT(gap, 1e-12) << "table " << number << ", " << named(method);
      }
    }
  }
}

// Two images at once, each at its own pace: their joint distribution is the product.
TEST_P(EveryTree, KeepsTheDistributionOfTwoImages) {
  const std::string_view tree = GetParam();
  Seen seen{std::string(tree) + ", two images"};
  for (const unsigned number : {0u, 4u}) {
    TableModel<double> model = table<double>(number);
    model.total = number == 0 ? 4 : 3;
    const DecodeMethod method = combine_tree(tree, "uniform", "maximal", {4, 2, 2});
    const auto made = tree_dist<double>(model, method, nullptr, {.items = 2, .watch = &seen.watch});
    const double gap = total_variation(made, dist_of_two(product_dist(model)));
    seen.gap(gap);
    ASSERT_LT(gap, 1e-12) << "table " << number << ", " << named(method);
  }
  EXPECT_GT(seen.watch.next_to, 100u);
}

// --- row ends -----------------------------------------------------------------------------------

// Table `number` along rows: four codes of two ids, or three of three.
TableModel<double> row_table(unsigned number) {
  TableModel<double> model = table<double>(number);
  VocabularyGrammar rows{.codes = model.vocabulary};
  rows.row_end = number % 8 < 6;
  rows.image_end = number % 3 != 0;
  const bool tall = number % 4 >= 2;
  rows.rows = model.vocabulary == 2 ? (tall ? 4 : 2) : (tall ? 3 : 1);
  rows.columns = (model.vocabulary == 2 ? 4 : 3) / rows.rows;
  model.rows = rows;
  return model;
}

std::map<TokenRow, double> row_truth(const TableModel<double>& model) {
  const VocabularyGrammar& rows = *model.rows;
  const std::size_t width = rows.columns + (rows.row_end ? 1 : 0), body = width * rows.rows;
  const auto codes = static_cast<std::int32_t>(rows.codes);
  return dist_with_ends(model, body + (rows.image_end ? 1 : 0), [=](std::size_t j) {
    if (j == body) return rows.row_end ? codes + 1 : codes;
    return rows.row_end && (j + 1) % width == 0 ? codes : -1;
  });
}

TEST_P(EveryTree, KeepsTheDistributionOfRowsThatEnd) {
  const std::string_view tree = GetParam();
  Seen seen{std::string(tree) + ", row ends"};
  std::size_t turn = 0;
  for (unsigned number = 0; number < 12; ++number) {
    const TableModel<double> model = row_table(number);
    const auto truth = row_truth(model);
    for (const std::string_view drafter : {"uniform", "left"}) {
      for (const std::string_view redraft_policy : kKeepingRedrafts) {
        const std::int64_t rows = many_paths(tree) ? 4 : 4 + static_cast<std::int64_t>(turn % 3);
        const DecodeMethod method =
            combine_tree(tree, drafter, redraft_policy, {rows, 2, 1 + static_cast<std::int64_t>(turn++ % 2)});
        const double gap = total_variation(
            tree_dist<double>(model, method, nullptr, {.watch = &seen.watch}), truth);
        seen.gap(gap);
        ASSERT_LT(gap, 1e-12) << "table " << number << ", " << named(method);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryTree,
                         ::testing::ValuesIn(tree_names().begin(), tree_names().end()));

// --- distributions from another model --------------------------------------------------------------------

// Another table over the same ids: distributions with and without zeros, all on one id, the same for all
// prefixes; cut and heated in another way than the target's.
template <typename Real>
TableModel<Real> draft_table(const TableModel<Real>& target, unsigned number) {
  TableModel<Real> out = target;
  out.seed += 500;
  out.kind = static_cast<TableKind>((number / 2) % 4);
  out.dist = {};
  if (number % 5 == 1) out.dist.top_k = 1;
  if (number % 5 == 2) out.dist.top_k = 2;
  if (number % 5 == 3) out.dist.temperature = 0.3;
  return out;
}

template <typename Real>
void expect_lossless_from_source(std::string_view tree, unsigned tables, double tolerance) {
  Seen seen{std::string(tree) + " from a source"};
  std::size_t turn = 0, misplaced = 0;
  for (unsigned number = 0; number < tables; ++number) {
    const TableModel<Real> model = drafted_table<Real>(number, many_paths(tree) ? 0 : number / 2);
    const auto truth = product_dist(model);
    for (const bool gaps : {false, true}) {
      for (std::int64_t rows = 3; rows <= 6; ++rows, ++turn) {
        if (many_paths(tree) && rows == 6) continue;
        const bool wide = model.vocabulary == 3 && turn % 3 == 0 && !many_paths(tree);
        const auto width = wide ? 3 : 2;
        const DecodeMethod method = combine_tree(
            tree, kModelDrafter, "drop", {rows, width, 1 + static_cast<std::int64_t>(turn % 2)});
        TableDistributions<Real> dists(draft_table(model, number), gaps);
        const double gap =
            total_variation(tree_dist<Real>(model, method, &dists, {.watch = &seen.watch}), truth);
        seen.gap(gap);
        ASSERT_LT(gap, tolerance) << "table " << number << ", " << named(method)
                                  << (gaps ? ", some without a distribution" : "");
        misplaced += dists.misplaced();
      }
    }
  }
  EXPECT_GT(seen.watch.next_to, 1000u) << "drafts hardly ever branched";
  EXPECT_EQ(misplaced, 0u) << "distributions were asked for twice, or before their parents'";
  EXPECT_EQ(seen.watch.beyond, 0u) << "rows after the last token that an image can use";
}

class EverySourcedTree : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EverySourcedTree, KeepsTheDistributionInDouble) {
  expect_lossless_from_source<double>(GetParam(), 20, 1e-12);
}
TEST_P(EverySourcedTree, KeepsTheDistributionInFloat) {
  expect_lossless_from_source<float>(GetParam(), 8, 1e-6);
}

TEST_P(EverySourcedTree, KeepsTheDistributionOfRowsThatEnd) {
  Seen seen{std::string(GetParam()) + " from a source, row ends"};
  for (unsigned number = 0; number < 12; ++number) {
    const TableModel<double> model = row_table(number);
    const auto rows = static_cast<std::int64_t>(3 + number % 3);
    const DecodeMethod method = combine_tree(GetParam(), kModelDrafter, "drop", {rows, 2, 2});
    TableDistributions<double> dists(draft_table(model, number), number % 2 == 1);
    const double gap = total_variation(
        tree_dist<double>(model, method, &dists, {.watch = &seen.watch}), row_truth(model));
    seen.gap(gap);
    ASSERT_LT(gap, 1e-12) << "table " << number << ", " << named(method);
  }
}

TEST_P(EverySourcedTree, KeepsTheDistributionOfTwoImages) {
  Seen seen{std::string(GetParam()) + " from a source, two images"};
  for (const unsigned number : {0u, 2u}) {
    TableModel<double> model = table<double>(number);
    model.total = many_paths(GetParam()) ? 3 : 4;
    TableDistributions<double> dists(draft_table(model, 3), number == 2);
    const DecodeMethod method = combine_tree(GetParam(), kModelDrafter, "drop", {4, 2, 2});
    const auto made = tree_dist<double>(model, method, &dists, {.items = 2, .watch = &seen.watch});
    const double gap = total_variation(made, dist_of_two(product_dist(model)));
    seen.gap(gap);
    ASSERT_LT(gap, 1e-12) << "table " << number << ", " << named(method);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EverySourcedTree,
                         ::testing::Values("rrs", "rsd", "kseq", "points", "dyspec", "gumbel"));

// --- what candidates are drawn from -------------------------------------------------------------

// A window whose places held other distributions before: dense, then drafts without chance or of the
// uniform distribution. Whoever the parent, candidates come from the distribution that stands there now.
TEST(TreeGrowth, CandidatesComeFromTheDistributionThatTheyAreRecordedWith) {
  const VocabularyGrammar grammar = VocabularyGrammar::line(3, 8);
  const std::vector<double> even(3, 1.0 / 3), ends{0.5, 0, 0.5};
  for (const Candidates kind :
       {Candidates::kIndependent, Candidates::kDistinct, Candidates::kLikeliest}) {
    for (const bool by_value : {false, true}) {
      DraftWindow<double> window(3, grammar, DraftDistributions::kHere);
      for (int i = 0; i < 3; ++i) window.append_dense(0, ends);
      window.resize(0);
      window.append_dense(0, even);
      window.append_point(1);
      window.append_point(1);
      DraftTree<double> tree(12, 3, false);
      TreeGrowth<double> growth({3, 3, by_value}, 12, 3);
      KeyedRandom random(7, 0);
      std::vector<double> scratch(6);
      growth.begin({11, 0, 3}, 1);
      ASSERT_TRUE(growth.grow(tree, &window, kind, 1, random, std::span(scratch)));
      EXPECT_GT(tree.size(), 4u);
      for (std::int32_t node = 1; node < static_cast<std::int32_t>(tree.size()); ++node) {
        EXPECT_GT(tree.dist(tree.parent(node)).prob(tree.token(node)), 0)
            << "token " << tree.token(node) << " at depth " << tree.depth(node);
      }
    }
  }
}

// Six tokens of two ids are the first where a shape that follows the distributions of drafts deeper in the
// window can be told from one that does not.
TEST(TreeGrowth, ByValueKeepsTheDistributionOfSixTokens) {
  for (const unsigned number : {0u, 4u}) {
    TableModel<double> model = table<double>(number);
    model.total = 6;
    const auto truth = product_dist(model);
    for (const std::string_view redraft_policy : {"resample", "maximal"}) {
      for (const std::int64_t rows : {5, 6, 7}) {
        const DecodeMethod method = combine_tree("dyspec", "uniform", redraft_policy, {rows, 2, 1});
        EXPECT_LT(total_variation(tree_dist<double>(model, method), truth), 1e-12)
            << "table " << number << ", " << named(method);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::tree_enumeration_test
