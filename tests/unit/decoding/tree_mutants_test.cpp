// Faults that code for branching drafts is known to fall into, kept as switchable mutants. The
// enumerator must see each of them on at least one of twenty tables, for distributions from windows
// and from another model; the same code with its fault switched off must keep the distribution.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <iostream>

#include "tests/support/tree_decoding.h"

namespace tessera::tree_mutants_test {
namespace {

using Table = TableModel<double>;
using Distribution = std::map<TokenRow, double>;
using Siblings = SiblingRule<double, WalkingRandom>;
using RedraftPolicyKind = RedraftPolicy<double, WalkingRandom>;

// Who gives the distributions of candidates: a source, or a drafter and a redraft policy.
struct Method {
  std::string_view drafter, redraft_policy;
  bool sourced() const { return drafter == kModelDrafter; }
};
constexpr Method kSourced{kModelDrafter, "drop"};
constexpr std::size_t kRows = 5;

// Parts of a tree of two candidates a position, two levels deep; any of them may be replaced.
template <typename Random>
struct HeldTree {
  HeldTree(const Table& model, const Method& method,
           std::unique_ptr<SiblingRule<double, Random>> siblings)
      : rule(std::move(siblings)) {
    using Parts = MethodParts<double, Random>;
    const DecodeAids aids = aids_for(model.vocabulary);
    redraft_policy = Parts::find(Parts::kRedrafts, method.redraft_policy)->make({}, aids);
    if (!method.sourced()) {
      drafter = Parts::find(Parts::kDrafters, method.drafter)->make({}, aids);
      return;
    }
    Table draft = model;
    draft.seed += 500;
    draft.kind = TableKind::kSmooth;
    draft.dist = {};
    source = std::make_unique<TableDistributions<double>>(draft, /*gaps=*/false);
  }
  SequenceParts<double, Random> parts() const {
    SequenceParts<double, Random> out{{nullptr, redraft_policy.get(), drafter.get()}};
    out.tree = {rule.get(), source.get(), {2, 2, false}};
    return out;
  }

  std::unique_ptr<SiblingRule<double, Random>> rule;
  std::unique_ptr<RedraftPolicy<double, Random>> redraft_policy;
  std::unique_ptr<Drafter<double, Random>> drafter;
  std::unique_ptr<TableDistributions<double>> source;
};
using Held = HeldTree<WalkingRandom>;

template <typename Random>
Distribution dist_of(const Table& model, const HeldTree<Random>& held,
           const TreeRowChange<double>& change = nullptr) {
  return dist_of_trees<Random>(model, kRows, [&]() -> const HeldTree<Random>& { return held; },
                              {.change = change});
}

// Every kind with two ids and with three. Distributions of a window branch where a redraft policy
// left them, from the third position on; a source's do from the second one. Candidates that are
// often refused and may repeat have many paths: there two ids have to do.
Table table_for(const Method& method, unsigned number, std::size_t max_ids) {
  Table model = table<double>(number);
  if (!method.sourced()) model.vocabulary = std::min(model.vocabulary, max_ids);
  model.kind = static_cast<TableKind>(number / 2 % 4);
  model.dist.top_k = model.kind == TableKind::kTopK && model.vocabulary == 3 ? 2 : 0;
  model.total = model.vocabulary == 3 && method.sourced() ? 3 : 4;
  return model;
}

// `law(model, method, faulty)` on twenty tables.
template <typename DistributionOf>
void expect_seen(const std::string& what, std::span<const Method> methods, DistributionOf dist,
                 std::size_t max_ids = 3) {
  for (const Method& method : methods) {
    double most = 0, twin = 0;
    int seen = 0;
    for (unsigned number = 0; number < 20; ++number) {
      const Table model = table_for(method, number, max_ids);
      const Distribution truth = product_dist(model);
      const double gap = total_variation(dist(model, method, true), truth);
      most = std::max(most, gap);
      seen += gap > 1e-4 ? 1 : 0;
      twin = std::max(twin, total_variation(dist(model, method, false), truth));
    }
    const std::string name =
        what + " in " + std::string(method.drafter) + '/' + std::string(method.redraft_policy);
    std::cout << name << ": total variation up to " << most << ", seen on " << seen
              << " tables; twin " << twin << '\n';
    EXPECT_GT(seen, 0) << name;
    EXPECT_LT(twin, 1e-12) << name << ", without its fault";
  }
}

// The same for a fault of a rule: `make(faulty)` gives it.
template <typename MakeRule>
void expect_rule_seen(const std::string& what, std::span<const Method> methods, MakeRule make,
                      std::size_t max_ids = 3) {
  expect_seen(
      what, methods,
      [&](const Table& model, const Method& method, bool faulty) {
        return dist_of(model, Held(model, method, make(faulty)));
      },
      max_ids);
}

constexpr Method kMethods[] = {kSourced, {"uniform", "resample"}, {"neighbour-law", "maximal"}};

// --- which candidate is taken -------------------------------------------------------------------

// Goes on testing after an accepted candidate and takes the one that the target likes best.
class LikeliestRule final : public Siblings {
 public:
  explicit LikeliestRule(bool faulty) : faulty_(faulty) {}
  std::string_view name() const override { return "likeliest"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return inner_.candidates(); }
  SiblingDecision<double> accept(const SiblingTest<double>& test, WalkingRandom& random,
                                 std::span<double> scratch) const override {
    SiblingDecision<double> out = inner_.accept(test, random, scratch);
    if (!faulty_ || out.chosen < 0) return out;
    const auto p = [&](std::int32_t id) { return test.target.probs[static_cast<std::size_t>(id)]; };
    for (auto j = static_cast<std::size_t>(out.chosen) + 1; j < test.candidates.size(); ++j) {
      const std::int32_t token = test.candidates[j];
      const Draw draw{Purpose::kAccept, test.position, static_cast<std::uint32_t>(j)};
      const bool accepted = random.accepts(draw, p(token), test.dist.prob(token));
      if (!accepted || p(token) <= p(out.token)) continue;
      out.chosen = static_cast<std::int32_t>(j);
      out.token = token;
    }
    return out;
  }

 private:
  RecursiveRule<double, WalkingRandom> inner_{true};
  bool faulty_;
};

TEST(TreeMutants, LikeliestSiblingInsteadOfTheFirst) {
  expect_rule_seen("likeliest accepted sibling", kMethods,
                   [](bool faulty) { return std::make_unique<LikeliestRule>(faulty); });
}

// --- how candidates were drawn ------------------------------------------------------------------

// Candidates of one kind, tested as those of one or the other.
class MistakenRule final : public Siblings {
 public:
  MistakenRule(bool drawn_distinct, bool tested_distinct)
      : drawn_(drawn_distinct ? Candidates::kDistinct : Candidates::kIndependent),
        inner_(tested_distinct) {}
  std::string_view name() const override { return "mistaken"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return drawn_; }
  SiblingDecision<double> accept(const SiblingTest<double>& test, WalkingRandom& random,
                                 std::span<double> scratch) const override {
    return inner_.accept(test, random, scratch);
  }

 private:
  Candidates drawn_;
  RecursiveRule<double, WalkingRandom> inner_;
};

TEST(TreeMutants, DistinctSiblingsTestedAsIndependent) {
  expect_rule_seen("distinct as independent", kMethods, [](bool faulty) {
    return std::make_unique<MistakenRule>(true, /*tested_distinct=*/!faulty);
  });
}

TEST(TreeMutants, IndependentSiblingsTestedAsDistinct) {
  expect_rule_seen("independent as distinct", kMethods, [](bool faulty) {
    return std::make_unique<MistakenRule>(false, /*tested_distinct=*/faulty);
  });
}

// --- what refused candidates are replaced by ----------------------------------------------------

// A draw from the row itself where all candidates were refused.
class ForgetfulRule final : public Siblings {
 public:
  ForgetfulRule(bool distinct, bool faulty) : inner_(distinct), faulty_(faulty) {}
  std::string_view name() const override { return "forgetful"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return inner_.candidates(); }
  SiblingDecision<double> accept(const SiblingTest<double>& test, WalkingRandom& random,
                                 std::span<double> scratch) const override {
    SiblingDecision<double> out = inner_.accept(test, random, scratch);
    if (!faulty_ || out.chosen >= 0) return out;
    out.token = draw_residual(
        test.target, {Purpose::kResidual, test.position}, [](std::int32_t) { return 0.0; }, random,
        scratch);
    return out;
  }

 private:
  RecursiveRule<double, WalkingRandom> inner_;
  bool faulty_;
};

TEST(TreeMutants, ResidualFromTheTarget) {
  expect_rule_seen("residual p, distinct", kMethods,
                   [](bool faulty) { return std::make_unique<ForgetfulRule>(true, faulty); });
  expect_rule_seen("residual p, independent", kMethods,
                   [](bool faulty) { return std::make_unique<ForgetfulRule>(false, faulty); });
}

// k-SEQ in long-hand: candidates accepted with min(1, p / (rho q)), and what is left when the
// chance of it was another rho's. Any rho from the shipped one up to the number of candidates is
// sound.
class TwoRhoRule final : public Siblings {
 public:
  // 0 stands for the number of candidates.
  TwoRhoRule(double tested, double left) : tested_(tested), left_(left) {}
  std::string_view name() const override { return "two rho"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return Candidates::kIndependent; }
  SiblingDecision<double> accept(const SiblingTest<double>& test, WalkingRandom& random,
                                 std::span<double> scratch) const override {
    const auto count = static_cast<double>(test.candidates.size());
    const double tested = tested_ > 0 ? tested_ : count, left = left_ > 0 ? left_ : count;
    const auto p = [&](std::int32_t id) { return test.target.probs[static_cast<std::size_t>(id)]; };
    SiblingDecision<double> out;
    for (std::size_t j = 0; j < test.candidates.size(); ++j) {
      const std::int32_t token = test.candidates[j];
      const Draw draw{Purpose::kAccept, test.position, static_cast<std::uint32_t>(j)};
      if (!random.accepts(draw, p(token), tested * test.dist.prob(token))) continue;
      out.chosen = static_cast<std::int32_t>(j);
      out.token = token;
      return out;
    }
    double one = 0;  // the chance that a candidate is accepted
    for (const std::int32_t id : test.target.logits.support) {
      one += std::min(test.dist.prob(id), p(id) / left);
    }
    const double share = one > 0 ? (1 - std::pow(1 - one, count)) / one : 0;
    out.token = draw_residual(
        test.target, {Purpose::kResidual, test.position},
        [&](std::int32_t id) { return share * std::min(test.dist.prob(id), p(id) / left); }, random,
        scratch);
    return out;
  }

 private:
  double tested_, left_;
};

TEST(TreeMutants, TestAndResidualOfDifferentRho) {
  expect_rule_seen(
      "tested with rho 1, residual of rho k", kMethods,
      [](bool faulty) { return std::make_unique<TwoRhoRule>(faulty ? 1 : 0, 0); }, 2);
  expect_rule_seen(
      "tested with rho k, residual of rho 1", kMethods,
      [](bool faulty) { return std::make_unique<TwoRhoRule>(0, faulty ? 1 : 0); }, 2);
}

// Candidates without chance, each accepted with what the row gives it, whatever was refused before.
class UnscaledPointsRule final : public Siblings {
 public:
  explicit UnscaledPointsRule(bool faulty) : faulty_(faulty) {}
  std::string_view name() const override { return "unscaled points"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return Candidates::kLikeliest; }
  SiblingDecision<double> accept(const SiblingTest<double>& test, WalkingRandom& random,
                                 std::span<double> scratch) const override {
    ResidualRow<double> left(test.target, scratch.first(scratch.size() / 2));
    SiblingDecision<double> out;
    for (std::size_t j = 0; j < test.candidates.size(); ++j) {
      const std::int32_t token = test.candidates[j];
      const double mass = left.mass(token);
      const Draw draw{Purpose::kAccept, test.position, static_cast<std::uint32_t>(j)};
      if (random.accepts(draw, mass, faulty_ ? 1 : left.total())) {
        out.chosen = static_cast<std::int32_t>(j);
        out.token = token;
        return out;
      }
      left.subtract([&](std::int32_t id) { return id == token ? mass : 0.0; });
    }
    out.token = left.draw(test.position, random, scratch.subspan(scratch.size() / 2));
    return out;
  }

 private:
  bool faulty_;
};

TEST(TreeMutants, PointsWithoutRenormalisation) {
  expect_rule_seen("points, not renormalised", kMethods,
                   [](bool faulty) { return std::make_unique<UnscaledPointsRule>(faulty); });
}

// --- random numbers met twice -------------------------------------------------------------------

// Acceptance decides U < share with one U an address: an address met again knows of its U only the
// interval that earlier answers left. With the fault siblings share an address.
template <bool faulty>
class SiblingNumbers : public WalkingRandom {
 public:
  SiblingNumbers(OutcomeWalk* walk, std::uint64_t item) : WalkingRandom(walk, item), own_(walk) {}
  void begin_pass(std::uint32_t pass) { pass_ = pass; }

  template <typename Real>
  bool accepts(const Draw& draw, Real chance, Real of) {
    if (!(chance < of)) return true;
    const double share = static_cast<double>(chance) / static_cast<double>(of);
    const auto purpose = static_cast<std::uint32_t>(draw.purpose);
    Interval& u = known_[{draw.position, purpose, pass_, faulty ? 0 : draw.lane}];
    if (share <= u.low) return false;
    if (share >= u.high) return true;
    const bool below = own_->decide({u.high - share, share - u.low}) == 1;
    (below ? u.high : u.low) = share;
    return below;
  }

 private:
  struct Interval {
    double low = 0, high = 1;
  };
  OutcomeWalk* own_;
  std::uint32_t pass_ = 0;
  std::map<std::array<std::uint32_t, 4>, Interval> known_;
};

TEST(TreeMutants, OneNumberForAllSiblings) {
  const auto dist = [](const Table& model, const Method& method, auto random) {
    using Random = decltype(random);
    return dist_of(model, HeldTree<Random>(model, method,
                                          std::make_unique<RecursiveRule<double, Random>>(true)));
  };
  expect_seen("one U for all siblings", kMethods,
              [&](const Table& model, const Method& method, bool faulty) {
                return faulty ? dist(model, method, SiblingNumbers<true>(nullptr, 0))
                              : dist(model, method, SiblingNumbers<false>(nullptr, 0));
              });
}

// --- rows after leaves -------------------------------------------------------------------------

// What stands after a path that was right to its end comes from the uniform distribution. As a
// proposal such a row would be sound: proposals are recorded with the row they were drawn from.
void flatten_leaves(std::vector<Rows<double>>& rows, const std::vector<TokenRow>& contexts) {
  if (rows.size() < 2) return;
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const TokenRow& mine = contexts[j];
    const bool leaf = std::none_of(contexts.begin(), contexts.end(), [&](const TokenRow& other) {
      return other.size() == mine.size() + 1 && std::equal(mine.begin(), mine.end(), other.begin());
    });
    if (!leaf) continue;
    std::fill(rows[j].cond.begin(), rows[j].cond.end(), 0.0);
    std::fill(rows[j].uncond.begin(), rows[j].uncond.end(), 0.0);
  }
}

TEST(TreeMutants, UniformTokenAfterAWholePath) {
  expect_seen("uniform after a leaf", kMethods,
              [](const Table& model, const Method& method, bool faulty) {
                const Held held(model, method,
                                std::make_unique<RecursiveRule<double, WalkingRandom>>(true));
                return dist_of(model, held, faulty ? flatten_leaves : TreeRowChange<double>());
              });
}

// --- what a kept draft is recorded as -----------------------------------------------------------

// Puts the old distribution where the window reads that of the new draft, if the draft stayed.
class StaleDistributionRedraft final : public RedraftPolicyKind {
 public:
  StaleDistributionRedraft(std::unique_ptr<RedraftPolicyKind> redraft_policy, bool faulty)
      : inner_(std::move(redraft_policy)), faulty_(faulty) {}
  std::string_view name() const override { return "stale"; }
  bool needs_dists() const override { return true; }
  std::int32_t redraft(const TargetRow<double>& row, const DraftDistribution<double>* old,
                       std::int32_t old_token, std::uint32_t position, WalkingRandom& random,
                       std::span<double> scratch) const override {
    const std::int32_t token = inner_->redraft(row, old, old_token, position, random, scratch);
    if (!faulty_ || old == nullptr || token != old_token) return token;
    auto* record = const_cast<double*>(row.probs.data());
    for (std::size_t id = 0; id < row.probs.size(); ++id) {
      record[id] = old->prob(static_cast<std::int32_t>(id));
    }
    return token;
  }

 private:
  std::unique_ptr<RedraftPolicyKind> inner_;
  bool faulty_;
};

TEST(TreeMutants, KeptDraftsKeepTheirOldDistribution) {
  const Method methods[] = {
      {"uniform", "maximal"}, {"neighbour-law", "maximal"}, {"uniform", "gumbel"}};
  expect_seen("stale q", methods, [](const Table& model, const Method& method, bool faulty) {
    Held held(model, method, std::make_unique<RecursiveRule<double, WalkingRandom>>(true));
    held.redraft_policy = std::make_unique<StaleDistributionRedraft>(std::move(held.redraft_policy), faulty);
    return dist_of(model, held);
  });
}

}  // namespace
}  // namespace tessera::tree_mutants_test
