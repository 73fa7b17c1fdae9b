// Every outcome of the shipped decoding code, weighed: on random table models of two and three ids
// each method that guarantees the distribution must make every image with the product of its conditional
// probabilities, to rounding. Methods that guarantee nothing must be seen to miss it.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/support/first_draft.h"
#include "tests/support/table_decoding.h"

namespace tessera::enumeration_test {
namespace {

template <typename Real>
void expect_lossless(std::string_view rule, double tolerance) {
  std::size_t paths = 0, dists = 0;
  double worst = 0;
  for (unsigned number = 0; number < 20; ++number) {
    const TableModel<Real> model = table<Real>(number);
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = product_dist(model);
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        if (drafter == "none" && redraft_policy != "drop") continue;
        for (std::int64_t window = 2; window <= 4; ++window) {
          if (window > 3 && model.vocabulary == 3 && number > 7) continue;  // the same, longer
          DecodeMethod method = combine(drafter, redraft_policy, rule, window);
          set_lossless(method);
          ASSERT_NE(guarantee_of(method), Guarantee::kNone);
          const double gap =
              total_variation(output_dist(model, method, aids, {.paths = &paths}), truth);
          worst = std::max(worst, gap);
          ASSERT_LT(gap, tolerance) << "table " << number << ' ' << drafter << ' ' << redraft_policy << ' '
                                    << rule << " window " << window;
          ++dists;
        }
      }
    }
  }
  std::cout << rule << ": " << dists << " distributions, " << paths << " paths, worst total variation "
            << worst << '\n';
}

class EveryRule : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EveryRule, KeepsTheDistributionInDouble) { expect_lossless<double>(GetParam(), 1e-12); }
TEST_P(EveryRule, KeepsTheDistributionInFloat) { expect_lossless<float>(GetParam(), 1e-6); }

INSTANTIATE_TEST_SUITE_P(All, EveryRule,
                         ::testing::ValuesIn(rule_names().begin(), rule_names().end()),
                         [](const auto& rule) { return std::string(rule.param); });

// Penalties, bans and forced tokens are functions of what stands before a position: no draft changes
// what comes of them. Without the processors the images are others.
template <typename Real>
void expect_processed(double tolerance) {
  int felt = 0;
  double worst = 0;
  for (unsigned number = 0; number < 20; ++number) {
    TableModel<Real> model = processed_table<Real>(number);
    model.total = model.vocabulary == 2 ? 5 : 4;
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = product_dist(model);
    TableModel<Real> without = model;
    without.dist = table<Real>(number).dist;
    felt += total_variation(product_dist(without), truth) > 0.02 ? 1 : 0;
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        for (const std::string_view rule : {"exact", "gumbel"}) {
          if (drafter == "none" && redraft_policy != "drop") continue;
          const std::int64_t window = 3 + number % 3;
          const DecodeMethod method = combine(drafter, redraft_policy, rule, window);
          const double gap = total_variation(output_dist(model, method, aids), truth);
          worst = std::max(worst, gap);
          ASSERT_LT(gap, tolerance) << "table " << number << ' ' << drafter << ' '
                                    << redraft_policy << ' ' << rule << " window " << window;
        }
      }
    }
  }
  EXPECT_GE(felt, 18) << "tables that feel their processors";
  std::cout << "processors: worst total variation " << worst << '\n';
}

TEST(Enumeration, LogitsProcessorsKeepTheDistributionInDouble) { expect_processed<double>(1e-12); }
TEST(Enumeration, LogitsProcessorsKeepTheDistributionInFloat) { expect_processed<float>(1e-6); }

TEST(Enumeration, EveryLosslessRuleKeepsTheDistributionWithLogitsProcessors) {
  for (unsigned number = 0; number < 20; number += 3) {
    const TableModel<double> model = processed_table<double>(number);
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = product_dist(model);
    for (const std::string_view rule : rule_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        DecodeMethod method = combine("neighbour-law", redraft_policy, rule, 4);
        set_lossless(method);
        ASSERT_LT(total_variation(output_dist(model, method, aids), truth), 1e-12)
            << "table " << number << ' ' << redraft_policy << ' ' << rule;
      }
    }
  }
}

// Row ends count among what stands, and are none of the ids that processors change.
TEST(Enumeration, LogitsProcessorsKeepTheDistributionOfRowsWithEnds) {
  for (unsigned number = 0; number < 20; ++number) {
    TableModel<double> model = processed_table<double>(number);
    model.rows = VocabularyGrammar{
        .codes = model.vocabulary, .rows = 2, .columns = 2, .row_end = true, .image_end = true};
    const VocabularyGrammar grammar = model.grammar();
    const auto truth = dist_with_ends(model, grammar.length(), [&](std::size_t position) {
      return grammar.forced(position).value_or(-1);
    });
    for (const std::string_view drafter : {"uniform", "left", "neighbour-law"}) {
      for (const std::string_view redraft_policy : redraft_names()) {
        const DecodeMethod method = combine(drafter, redraft_policy, "exact", 4);
        ASSERT_LT(total_variation(output_dist(model, method, aids_for(grammar)), truth), 1e-12)
            << "table " << number << ' ' << drafter << ' ' << redraft_policy;
      }
    }
  }
}

TEST(Drafters, DraftFromTheCodesThatWereWritten) {
  const std::vector<std::int32_t> codes = {1, 2, 3, 0, 2, 0, 1, 2};
  EXPECT_EQ(first_draft(combine("left", "drop", "exact", 2), codes), 2);
  EXPECT_EQ(first_draft(combine("lookup", "drop", "exact", 2), codes), 3) << "after 1 2";
  EXPECT_EQ(first_draft(combine("lookup", "drop", "exact", 2), {1, 2, 3}), std::nullopt);
}

// Two images at once, each at its own pace: their joint distribution is the product. Four tokens, as a
// tail's drafts are tested from the third one on and the last is never drafted.
TEST(Enumeration, RaggedBatchesKeepTheLaw) {
  std::size_t paths = 0;
  for (unsigned number = 0; number < 8; number += 2) {
    TableModel<double> model = table<double>(number);
    ASSERT_EQ(model.vocabulary, 2u);
    ASSERT_EQ(model.total, 4u);
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = dist_of_two(product_dist(model));
    for (const NamedMethod& named : named_methods()) {
      DecodeMethod method = settle_method(decode_method(named.name), aids, 4);
      if (method.shape() != PassShape::kLine || method.drafter == kModelDrafter) continue;
      method.window = 3;
      if (guarantee_of(method) == Guarantee::kNone) continue;
      const auto made = output_dist(model, method, aids, {.items = 2, .paths = &paths});
      EXPECT_LT(total_variation(made, truth), 1e-12) << named.name;
    }
  }
  std::cout << "two images: " << paths << " paths\n";
}

// The first pass gives the first token and the last one is never drafted: a tail's drafts are
// tested from four positions on, one that stayed twice from five on.
TEST(Enumeration, LongerImagesKeepTheDistribution) {
  for (unsigned number = 0; number < 20; ++number) {
    TableModel<double> model = table<double>(number);
    model.total = model.vocabulary == 2 ? 5 : 4;
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = product_dist(model);
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        for (const std::string_view rule : {"exact", "gumbel"}) {
          if (drafter == "none") continue;
          const DecodeMethod method = combine(drafter, redraft_policy, rule, 5);
          ASSERT_LT(total_variation(output_dist(model, method, aids), truth), 1e-12)
              << "table " << number << ' ' << drafter << ' ' << redraft_policy << ' ' << rule;
        }
      }
    }
  }
}

// Widths that follow what the last pass accepted, as an adaptive window's do: they cut drafts off,
// and never look at those at hand.
TEST(Enumeration, WindowsThatChangeKeepTheDistribution) {
  PathOptions<double, WalkingRandom> options;
  for (const std::size_t turn : {0, 1}) {
    options.width = [turn](const auto& sequence) {
      const auto accepted = static_cast<std::size_t>(sequence.last_accepted());
      return 1 + (turn + accepted + sequence.tokens().size()) % 4;
    };
    for (unsigned number = 0; number < 20; number += 2) {
      TableModel<double> model = table<double>(number);
      model.total = 5;
      const DecodeAids aids = aids_for(model.vocabulary);
      const auto truth = product_dist(model);
      for (const std::string_view drafter : {"uniform", "neighbour-law", "left"}) {
        for (const std::string_view redraft_policy : redraft_names()) {
          for (const std::string_view rule : {"exact", "gumbel"}) {
            const DecodeMethod method = combine(drafter, redraft_policy, rule, 5);
            ASSERT_LT(total_variation(output_dist(model, method, aids, options), truth), 1e-12)
                << "table " << number << ' ' << drafter << ' ' << redraft_policy << ' ' << rule;
          }
        }
      }
    }
  }
}

// A rule that guarantees nothing does change the distribution, and by no more than its meters say, or
// than it is allowed.
void expect_bounded(DecodeMethod method) {
  double most = 0;
  for (unsigned number = 0; number < 20; ++number) {
    TableModel<double> model = table<double>(number);
    model.total = 4;
    const DecodeAids aids = aids_for(model.vocabulary);
    const auto truth = product_dist(model);
    for (const std::string_view redraft_policy : {"drop", "resample", "maximal"}) {
      method.redraft_policy = redraft_policy;
      for (const double budget : {0.0, 0.02, 0.2}) {
        method.set(setting::kTvBudget, budget);
        ASSERT_EQ(guarantee_of(method), Guarantee::kNone);
        double excess = 0;
        const auto made = output_dist(model, method, aids, {.excess = &excess});
        const double gap = total_variation(made, truth);
        EXPECT_LE(gap, excess + 1e-12) << method.rule << '/' << redraft_policy << " table " << number;
        if (budget == 0) {
          most = std::max(most, gap);
          continue;
        }
        EXPECT_LE(excess, budget + 1e-12) << method.rule << '/' << redraft_policy << " table " << number;
      }
    }
  }
  EXPECT_GT(most, 1e-2) << method.rule;
}

// Settings under which each of the rules that guarantee nothing gives much.
TEST(Enumeration, RelaxedRulesAreSeenAndBounded) {
  for (const std::string_view rule : {"grouped", "relaxed", "cool", "lenient"}) {
    DecodeMethod method = combine("uniform", "drop", rule, 4);
    method.put(GroupedSettings{3, 1.0, 4.0, false});
    method.put(RelaxedSettings{2, 0.5, 0});
    method.put(CoolSettings{2.0, 0.1});
    method.set(setting::kLenience, 0.5);
    expect_bounded(method);
  }
}

}  // namespace
}  // namespace tessera::enumeration_test
