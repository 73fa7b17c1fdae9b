// Images drawn with branching drafts, the shipped arithmetic and the shipped random numbers,
// counted: with V = 3 and N = 5 every one of the 243 images must come as often as the product of
// its conditional probabilities says. Candidates of one position and their tests each need numbers
// of their own; enumeration cannot see whether they have them.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <mutex>
#include <numeric>

#include "tests/property/decoding/row_table.h"
#include "tests/support/tree_decoding.h"

namespace tessera::tree_frequencies_test {
namespace {

constexpr std::size_t kIds = 3, kTotal = 5, kImages = 243, kRows = 6;
constexpr std::uint64_t kSeed = 777;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kSamples = 60'000;
#else
constexpr std::size_t kSamples = 500'000;
#endif

using Parts = SequenceParts<float, KeyedRandom>;
using Counts = std::vector<std::uint64_t>;

RowTable make_table() {
  DistributionSettings dist;
  dist.guidance = 2;
  dist.temperature = 1.2;
  return {kIds, kTotal - 1, 0.35f, 0.3f, dist};
}

std::size_t number_of(const TokenRow& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::size_t{0},
                         [](std::size_t number, std::int32_t token) {
                           return number * kIds + static_cast<std::size_t>(token);
                         });
}

// Another table's distributions for the candidates of every node.
class RowTableDistributions final : public TreeDistributionSource<float> {
 public:
  RowTableDistributions() : table_(kIds, 1, 0.5f, 0.6f, {}), dist_(table_.dist(), kIds) {}
  std::string_view name() const override { return "row table"; }
  void start(std::size_t) override {}
  void answer(std::span<TreeJob<float>> jobs) override {
    for (const TreeJob<float>& job : jobs) {
      for (const std::int32_t node : job.wanted) {
        const std::int32_t token = job.tree->token(node);
        const RawRow<float> row = table_.after({&token, 1});
        dist_.process(row.cond, row.uncond);
        job.tree->keep_dist(node, dist_.probabilities());
      }
    }
  }

 private:
  RowTable table_;
  DistributionPipeline<float> dist_;
};

// An image of one item, and how many rows next to others it took.
TokenRow decode(const RowTable& table, const Parts& parts, std::uint64_t item, TreeWatch& watch) {
  std::vector<std::unique_ptr<TokenSequence<float, KeyedRandom>>> one;
  one.push_back(make_sequence(table.dist(), VocabularyGrammar::line(kIds, kTotal), kRows, parts,
                              KeyedRandom(kSeed, item), 0));
  drive_sequences(
      one, parts, [](const auto&) { return kRows; },
      [&](TokenSequence<float, KeyedRandom>& sequence) {
        const std::vector<TokenRow> contexts = contexts_of(sequence);
        watch_pass(contexts, kTotal, watch);
        sequence.verify([&](std::size_t j) { return table.after(contexts[j]); }, contexts.size());
      });
  return one[0]->tokens();
}

// (chi-square / degrees of freedom - 1) in its standard deviations; `make_parts(turn)` gives parts
// that take turns.
template <typename MakeParts>
double deviation(const std::string& name, std::size_t turns, MakeParts make_parts) {
  const RowTable table = make_table();
  Counts counts(kImages);
  std::size_t next_to = 0;
  std::mutex lock;
  on_all_cores([&](std::size_t thread, std::size_t threads) {
    std::vector<decltype(make_parts(0))> owned;
    for (std::size_t turn = 0; turn < turns; ++turn) owned.push_back(make_parts(turn));
    Counts mine(kImages);
    TreeWatch watch;
    for (std::size_t item = thread; item < kSamples; item += threads) {
      ++mine[number_of(decode(table, owned[item / threads % turns]->parts(), item, watch))];
    }
    const std::lock_guard<std::mutex> hold(lock);
    for (std::size_t i = 0; i < kImages; ++i) counts[i] += mine[i];
    next_to += watch.next_to;
  });
  const std::vector<double> probs = image_probabilities(table, kTotal);
  double chi_square = 0, rarest = kSamples;
  for (std::size_t i = 0; i < kImages; ++i) {
    const double expected = static_cast<double>(kSamples) * probs[i];
    chi_square += std::pow(static_cast<double>(counts[i]) - expected, 2) / expected;
    rarest = std::min(rarest, expected);
  }
  EXPECT_GT(rarest, 20) << "too few of the rarest image for the statistic";
  EXPECT_GT(next_to, kSamples / 4) << "drafts hardly ever branched";
  const double freedom = kImages - 1;
  const double out = (chi_square / freedom - 1) / std::sqrt(2 / freedom);
  std::cout << name << ": " << next_to << " rows next to others, chi-square / df "
            << chi_square / freedom << ", " << out << " deviations\n";
  return out;
}

// Parts of one method with the source they may need.
struct Method {
  Method(const DecodeMethod& method, std::unique_ptr<RowTableDistributions> dists)
      : source(std::move(dists)), owned(method, aids_for(kIds)) {
    if (source != nullptr) owned.set_drafter(nullptr, source.get());
  }
  Parts parts() const {
    Parts out = owned.parts();
    if (rule != nullptr) out.tree.rule = rule.get();
    return out;
  }

  std::unique_ptr<RowTableDistributions> source;
  OwnedParts<float, KeyedRandom> owned;
  std::unique_ptr<SiblingRule<float, KeyedRandom>> rule;  // in place of the method's own
};

class TreeFrequencies : public ::testing::TestWithParam<std::string_view> {};

// Drafters and redraft policies take turns.
TEST_P(TreeFrequencies, OfDistributionsFromTheLastPass) {
  constexpr std::string_view kDrafters[] = {"uniform", "neighbour-law", "neighbour-law"};
  constexpr std::string_view kRedrafts[] = {"maximal", "resample", "gumbel"};
  const double gap = deviation(std::string(GetParam()), 3, [&](std::size_t turn) {
    return std::make_unique<Method>(
        combine_tree(GetParam(), kDrafters[turn], kRedrafts[turn], {kRows, 2, 2}), nullptr);
  });
  EXPECT_LT(std::abs(gap), 4);
}

TEST_P(TreeFrequencies, OfDistributionsFromASource) {
  if (GetParam() == "pac") GTEST_SKIP() << "has distributions of the last pass alone";
  const auto make = [&](std::size_t turn) {
    return std::make_unique<Method>(combine_tree(GetParam(), kModelDrafter, "drop",
                                                 {kRows, 2 + static_cast<std::int64_t>(turn), 2}),
                                    std::make_unique<RowTableDistributions>());
  };
  EXPECT_LT(std::abs(deviation(std::string(GetParam()) + " from a source", 2, make)), 4);
}

INSTANTIATE_TEST_SUITE_P(All, TreeFrequencies,
                         ::testing::Values("rrs", "rsd", "kseq", "points", "dyspec", "pac",
                                         "gumbel"));

// Distinct candidates, tested as if they were independent.
class MistakenRule final : public SiblingRule<float, KeyedRandom> {
 public:
  std::string_view name() const override { return "mistaken"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return Candidates::kDistinct; }
  SiblingDecision<float> accept(const SiblingTest<float>& test, KeyedRandom& random,
                                std::span<float> scratch) const override {
    return inner_.accept(test, random, scratch);
  }

 private:
  RecursiveRule<float, KeyedRandom> inner_{false};
};

// The statistic must be able to fail.
TEST(TreeFrequenciesOfAFault, AreSeen) {
  const double gap = deviation("distinct as independent", 1, [](std::size_t) {
    auto out = std::make_unique<Method>(combine_tree("rsd", kModelDrafter, "drop", {kRows, 2, 2}),
                                        std::make_unique<RowTableDistributions>());
    out->rule = std::make_unique<MistakenRule>();
    return out;
  });
  EXPECT_GT(gap, 4);
}

}  // namespace
}  // namespace tessera::tree_frequencies_test
