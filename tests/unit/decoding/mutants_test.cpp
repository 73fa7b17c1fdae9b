// Faults that decoding code is known to fall into, kept as switchable mutants. The enumerator must
// see each of them on at least one of twenty tables, for every method that it is injected in; the
// same code with its fault switched off must keep the distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>

#include "tests/support/stale_dist.h"
#include "tests/support/table_decoding.h"

namespace tessera::mutants_test {
namespace {

using Table = TableModel<double>;
using Distribution = std::map<TokenRow, double>;

// Shipped parts, any of them replaced.
template <typename Random>
struct HeldParts {
  HeldParts(const Table& model, std::string_view drafter_name, std::string_view redraft_name,
            std::string_view rule_name) {
    using Parts = MethodParts<double, Random>;
    const DecodeMethod method;
    const DecodeAids aids = aids_for(model.vocabulary);
    rule = Parts::find(Parts::kRules, rule_name)->make(method.settings, aids);
    redraft_policy = Parts::find(Parts::kRedrafts, redraft_name)->make(method.settings, aids);
    drafter = Parts::find(Parts::kDrafters, drafter_name)->make(method.settings, aids);
  }
  ChainParts<double, Random> parts() const { return {rule.get(), redraft_policy.get(), drafter.get()}; }

  std::unique_ptr<AcceptanceRule<double, Random>> rule;
  std::unique_ptr<RedraftPolicy<double, Random>> redraft_policy;
  std::unique_ptr<Drafter<double, Random>> drafter;
};
using Held = HeldParts<WalkingRandom>;

struct Method {
  std::string_view drafter, redraft_policy, rule;
};
constexpr std::size_t kWindow = 4;

// The distribution of `method` with the parts that `plant(parts)` changes and the rows that `change` does.
template <typename Random = WalkingRandom, typename Plant>
Distribution dist_with(const Table& model, const Method& method, Plant plant,
             const RowChange<double>& change = nullptr) {
  return dist_of_paths<Random>(model, kWindow,
                              [&] {
                                HeldParts<Random> parts(model, method.drafter, method.redraft_policy,
                                                        method.rule);
                                plant(parts);
                                return parts;
                              },
                              {.change = change});
}

// Table `number`. Faults of a tail need four positions: the first pass gives the first token, and
// the last one is never drafted.
using Tables = Table (*)(unsigned number);
Table longer_table(unsigned number) {
  Table model = table<double>(number);
  model.total = 4;
  return model;
}

// `law(model, faulty)` on twenty tables; `truth(model)` is what it has to be.
template <typename DistributionOf, typename TruthOf>
void expect_seen_next_to(const std::string& what, DistributionOf dist, Tables tables, TruthOf truth_of) {
  double most = 0, twin = 0;
  int seen = 0;
  for (unsigned number = 0; number < 20; ++number) {
    const Table model = tables(number);
    const Distribution truth = truth_of(model);
    const double gap = total_variation(dist(model, true), truth);
    most = std::max(most, gap);
    seen += gap > 1e-4 ? 1 : 0;
    twin = std::max(twin, total_variation(dist(model, false), truth));
  }
  std::cout << what << ": total variation up to " << most << ", seen on " << seen
            << " tables; twin " << twin << '\n';
  EXPECT_GT(seen, 0) << what;
  EXPECT_LT(twin, 1e-12) << what << ", without its fault";
}

template <typename DistributionOf>
void expect_seen(const std::string& what, std::span<const Method> methods, DistributionOf dist,
                 Tables tables = longer_table) {
  for (const Method& method : methods) {
    const std::string name = what + " in " + std::string(method.drafter) + '/' +
                             std::string(method.redraft_policy) + '/' + std::string(method.rule);
    expect_seen_next_to(
        name, [&](const Table& model, bool faulty) { return dist(model, method, faulty); }, tables,
        product_dist<double>);
  }
}

// --- what a kept draft is recorded as ---------------------------------------------------------

TEST(Mutants, KeptDraftsTestedAgainstTheirFirstDistribution) {
  const Method methods[] = {{"uniform", "maximal", "exact"}, {"left", "maximal", "exact"}};
  expect_seen("stale q", methods, [](const Table& model, const Method& method, bool faulty) {
    return dist_with(model, method, [&](Held& parts) {
      const auto record = std::make_shared<DistributionRecord<double>>(model.total + kWindow);
      parts.redraft_policy = std::make_unique<StaleRedraft<double, WalkingRandom>>(record, faulty);
      parts.rule = std::make_unique<StaleRule<double, WalkingRandom>>(record);
    });
  });
}

// Keeps a draft that has not become half as likely, and records the row as its distribution.
class ReusingRedraft final : public RedraftPolicy<double, WalkingRandom> {
 public:
  explicit ReusingRedraft(bool faulty) : faulty_(faulty) {}
  std::string_view name() const override { return "reusing"; }
  bool needs_dists() const override { return true; }
  std::int32_t redraft(const TargetRow<double>& row, const DraftDistribution<double>* old,
                       std::int32_t old_token, std::uint32_t position, WalkingRandom& random,
                       std::span<double> scratch) const override {
    const bool keep = faulty_ && old != nullptr &&
                      row.probs[static_cast<std::size_t>(old_token)] > 0.5 * old->prob(old_token);
    return keep ? old_token : fresh_.redraft(row, old, old_token, position, random, scratch);
  }

 private:
  ResampleRedraft<double, WalkingRandom> fresh_;
  bool faulty_;
};

TEST(Mutants, DraftsReusedWhileTheyStayLikely) {
  const Method methods[] = {{"uniform", "resample", "exact"}, {"above", "resample", "exact"}};
  expect_seen(
      "reuse above a ratio", methods, [](const Table& model, const Method& method, bool faulty) {
        return dist_with(model, method,
                        [&](Held& parts) { parts.redraft_policy = std::make_unique<ReusingRedraft>(faulty); });
      });
}

// The token to the left, which no chance chose, recorded as drawn from the uniform distribution.
class MisrecordedDrafter final : public SlotDrafter<double, WalkingRandom> {
 public:
  explicit MisrecordedDrafter(bool faulty) : faulty_(faulty) {}
  std::string_view name() const override { return "misrecorded"; }

 private:
  bool fill(DraftJob<double, WalkingRandom>& job) override {
    const std::int32_t token = job.token(job.next_position() - 1);
    if (faulty_) {
      job.window->append_uniform(token);
    } else {
      job.window->append_point(token);
    }
    return true;
  }

  bool faulty_;
};

TEST(Mutants, PointsRecordedAsUniform) {
  const Method methods[] = {{"left", "drop", "exact"}, {"left", "maximal", "exact"}};
  expect_seen("point as uniform", methods,
              [](const Table& model, const Method& method, bool faulty) {
                return dist_with(model, method, [&](Held& parts) {
                  parts.drafter = std::make_unique<MisrecordedDrafter>(faulty);
                });
              });
}

// --- what a refused draft is replaced by ------------------------------------------------------

enum class Residual { kSound, kTarget, kHotTwice };

// The exact rule in long-hand with a wrong residual.
class ResidualRule final : public AcceptanceRule<double, WalkingRandom> {
 public:
  ResidualRule(Residual residual, double temperature)
      : residual_(residual), temperature_(temperature) {}
  std::string_view name() const override { return "residual"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Decision<double> accept(const DraftTest<double>& test, WalkingRandom& random,
                          std::span<double> scratch) const override {
    Decision<double> out;
    const double p = test.target.probs[static_cast<std::size_t>(test.token)];
    out.accepted =
        random.accepts({Purpose::kAccept, test.position}, p, test.draft.prob(test.token));
    out.strict = out.chance = strict_chance(test);
    if (out.accepted) {
      out.token = test.token;
      return out;
    }
    std::vector<double> probs(test.target.probs.begin(), test.target.probs.end());
    if (residual_ == Residual::kHotTwice) {
      for (double& value : probs) value = std::pow(value, 1 / temperature_);
      const double total = std::accumulate(probs.begin(), probs.end(), 0.0);
      for (double& value : probs) value /= total;
    }
    const auto taken = [&](std::int32_t id) {
      return residual_ == Residual::kTarget ? 0.0 : test.draft.prob(id);
    };
    out.token = draw_residual(TargetRow<double>{test.target.logits, probs},
                              {Purpose::kResidual, test.position}, taken, random, scratch);
    return out;
  }

 private:
  Residual residual_;
  double temperature_;
};

constexpr Method kExactMethods[] = {{"uniform", "resample", "exact"},
                                    {"uniform", "maximal", "exact"},
                                    {"neighbour-law", "gumbel", "exact"},
                                    {"left", "drop", "exact"}};

void expect_residual_seen(const std::string& what, Residual residual, Tables tables) {
  const auto dist = [&](const Table& model, const Method& method, bool faulty) {
    return dist_with(model, method, [&](Held& parts) {
      parts.rule = std::make_unique<ResidualRule>(faulty ? residual : Residual::kSound,
                                                  model.dist.temperature);
    });
  };
  expect_seen(what, kExactMethods, dist, tables);
}

TEST(Mutants, ResidualFromTheTarget) {
  expect_residual_seen("residual p", Residual::kTarget, longer_table);
}

// A residual of two ids has one choice: three of them, and a temperature to apply.
TEST(Mutants, ResidualAtTheTemperatureTwice) {
  expect_residual_seen("temperature twice", Residual::kHotTwice, [](unsigned number) {
    Table model = table<double>(number);
    model.vocabulary = model.total = 3;
    model.dist.temperature = 0.7;
    return model;
  });
}

// --- random numbers met twice -----------------------------------------------------------------

enum class Address { kWhole, kWithoutPass, kWithoutPassAndPurpose };

// Acceptance decides U < share with one U an address: an address met again knows of its U only the
// interval that earlier answers left.
template <Address address>
class RepeatingRandom : public WalkingRandom {
 public:
  RepeatingRandom(OutcomeWalk* walk, std::uint64_t item) : WalkingRandom(walk, item), own_(walk) {}
  void begin_pass(std::uint32_t pass) { pass_ = pass; }

  template <typename Real>
  bool accepts(const Draw& draw, Real chance, Real of) {
    if (!(chance < of)) return true;
    const double share = static_cast<double>(chance) / static_cast<double>(of);
    const auto [entry, fresh] = known_.try_emplace(key(draw), Interval{});
    Interval& u = entry->second;
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
  using Key = std::array<std::uint32_t, 3>;
  Key key(const Draw& draw) const {
    const auto purpose = static_cast<std::uint32_t>(draw.purpose);
    if (address == Address::kWhole) return {draw.position, purpose, pass_};
    if (address == Address::kWithoutPass) return {draw.position, purpose, 0};
    return {draw.position, 0, 0};
  }

  OutcomeWalk* own_;
  std::uint32_t pass_ = 0;
  std::map<Key, Interval> known_;
};

template <Address address>
Distribution dist_with_numbers(const Table& model, const Method& method) {
  using Random = RepeatingRandom<address>;
  return dist_with<Random>(model, method, [](HeldParts<Random>&) {});
}

TEST(Mutants, OneNumberForTwoPasses) {
  const Method methods[] = {{"uniform", "maximal", "exact"}, {"left", "maximal", "exact"}};
  expect_seen("one U for all passes and tests", methods,
              [](const Table& model, const Method& method, bool faulty) {
                return faulty ? dist_with_numbers<Address::kWithoutPassAndPurpose>(model, method)
                              : dist_with_numbers<Address::kWhole>(model, method);
              });
  // A draft has to stay twice before it is tested, which takes five positions.
  expect_seen(
      "one U for all passes", methods,
      [](const Table& model, const Method& method, bool faulty) {
        return faulty ? dist_with_numbers<Address::kWithoutPass>(model, method)
                      : dist_with_numbers<Address::kWhole>(model, method);
      },
      [](unsigned number) {
        Table model = table<double>(number);
        model.vocabulary = 2;
        model.total = 5;
        return model;
      });
}

// Two neighbouring positions share their noise.
template <bool faulty>
class SharedNoiseRandom : public WalkingRandom {
 public:
  using WalkingRandom::WalkingRandom;
  template <typename Real>
  std::int32_t race(std::uint32_t position, const LogitRow<Real>& row) {
    return WalkingRandom::race(faulty ? position / 2 : position, row);
  }
  template <typename Real>
  std::int32_t race(std::uint32_t position, std::span<const std::int32_t> ids,
                    std::span<const Real> probs) {
    return WalkingRandom::race(faulty ? position / 2 : position, ids, probs);
  }
};

TEST(Mutants, NoiseOfAPositionUsedAtTwo) {
  const Method methods[] = {{"none", "drop", "exact"},
                            {"above", "gumbel", "gumbel"},
                            {"uniform", "gumbel", "exact"},
                            {"uniform", "drop", "exact"}};
  expect_seen("noise of position / 2", methods,
              [](const Table& model, const Method& method, bool faulty) {
                using Faulty = SharedNoiseRandom<true>;
                using Twin = SharedNoiseRandom<false>;
                return faulty ? dist_with<Faulty>(model, method, [](HeldParts<Faulty>&) {})
                              : dist_with<Twin>(model, method, [](HeldParts<Twin>&) {});
              });
}

// --- rows that belong elsewhere ---------------------------------------------------------------

using TableRows = std::vector<Rows<double>>;

constexpr Method kRowMethods[] = {{"uniform", "resample", "exact"},
                                  {"uniform", "maximal", "exact"},
                                  {"uniform", "gumbel", "exact"},
                                  {"left", "drop", "exact"},
                                  {"above", "gumbel", "gumbel"}};

// `change(model, rows)` is the fault.
template <typename Change>
void expect_rows_seen(const std::string& what, std::span<const Method> methods, Change change) {
  expect_seen(what, methods, [&](const Table& model, const Method& method, bool faulty) {
    return dist_with(
        model, method, [](Held&) {},
        [&](TableRows& rows) {
          if (faulty) change(model, rows);
        });
  });
}

TEST(Mutants, BonusFromTheRowBefore) {
  expect_rows_seen("bonus of the row before", kRowMethods, [](const Table&, TableRows& rows) {
    if (rows.size() > 1) rows.back() = rows[rows.size() - 2];
  });
}

// Without a tail the last row gives the token after a window that was right, nothing else.
TEST(Mutants, BonusFromTheUniformDistribution) {
  const Method methods[] = {{"uniform", "drop", "exact"},
                            {"left", "drop", "exact"},
                            {"lookup", "drop", "exact"},
                            {"above", "drop", "gumbel"}};
  expect_rows_seen("uniform bonus", methods, [](const Table&, TableRows& rows) {
    if (rows.size() < 2) return;
    std::fill(rows.back().cond.begin(), rows.back().cond.end(), 0.0);
    std::fill(rows.back().uncond.begin(), rows.back().uncond.end(), 0.0);
  });
}

TEST(Mutants, UnconditionalBranchOneRowAhead) {
  expect_rows_seen("uncond one ahead", kRowMethods, [](const Table&, TableRows& rows) {
    for (std::size_t j = 0; j + 1 < rows.size(); ++j) rows[j].uncond = rows[j + 1].uncond;
  });
}

TEST(Mutants, UnconditionalBranchOneRowAfter) {
  expect_rows_seen("uncond one after", kRowMethods, [](const Table&, TableRows& rows) {
    for (std::size_t j = rows.size(); j-- > 1;) rows[j].uncond = rows[j - 1].uncond;
  });
}

TEST(Mutants, BranchesSwappedAfterTheFirstRow) {
  expect_rows_seen("branches swapped", kRowMethods, [](const Table& model, TableRows& rows) {
    if (!model.dist.guided()) return;
    for (std::size_t j = 1; j < rows.size(); ++j) std::swap(rows[j].cond, rows[j].uncond);
  });
}

// Ids that the conditional branch does not rank among its first are lost before guidance.
TEST(Mutants, TopKOfTheConditionalBranch) {
  expect_rows_seen("top-k before guidance", kRowMethods, [](const Table& model, TableRows& rows) {
    if (!model.dist.guided() || model.dist.top_k == 0) return;
    for (Rows<double>& row : rows) {
      std::vector<double> sorted = row.cond;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const double threshold = sorted[static_cast<std::size_t>(model.dist.top_k - 1)];
      for (double& logit : row.cond) {
        if (logit < threshold) logit = -1e6;
      }
    }
  });
}

// --- images held to one pace ----------------------------------------------------------------

// Two images that advance by the smaller commit of the two. What the faster one had beyond it
// becomes drafts again: distributed as the rows it was verified by, and, with the fault, tested once
// more against the distributions it was first drawn from.
class Lockstep {
 public:
  Lockstep(const Table& model, OutcomeWalk* walk, bool faulty)
      : model_(model), faulty_(faulty), dist_(model.dist, vocabulary()), scratch_(model.vocabulary) {
    for (std::uint64_t i = 0; i < 2; ++i) images_.push_back({{}, {}, WalkingRandom(walk, i)});
  }

  TokenRow run() {
    while (images_[0].tokens.size() < model_.total) pass();
    TokenRow both = images_[0].tokens;
    both.insert(both.end(), images_[1].tokens.begin(), images_[1].tokens.end());
    return both;
  }

 private:
  static constexpr std::size_t kDrafts = 2;
  struct Entry {
    std::int32_t token = 0;
    std::vector<double> dist;
  };
  struct Strand {
    TokenRow tokens;
    std::vector<Entry> drafts;
    WalkingRandom random;
  };

  std::int64_t vocabulary() const { return static_cast<std::int64_t>(model_.vocabulary); }

  void pass() {
    std::vector<Entry> made[2];
    for (int i = 0; i < 2; ++i) made[i] = verify(images_[i]);
    const auto pace = static_cast<std::ptrdiff_t>(std::min(made[0].size(), made[1].size()));
    for (int i = 0; i < 2; ++i) {
      for (std::ptrdiff_t j = 0; j < pace; ++j) images_[i].tokens.push_back(made[i][j].token);
      images_[i].drafts.assign(made[i].begin() + pace, made[i].end());
    }
  }

  TargetRow<double> row_after(const TokenRow& context) {
    const Rows<double> rows = rows_after(model_, context);
    dist_.process(rows.cond, rows.uncond);
    return {{dist_.support(), dist_.support_logits()}, dist_.probabilities()};
  }

  void fill(Strand& strand) {
    const std::size_t missing = model_.total - strand.tokens.size();
    const std::vector<double> even(model_.vocabulary, 1.0 / static_cast<double>(vocabulary()));
    std::vector<std::int32_t> ids(model_.vocabulary);
    std::iota(ids.begin(), ids.end(), 0);
    while (strand.drafts.size() < std::min(kDrafts, missing - 1)) {
      const auto token = strand.random.weighted({Purpose::kInit, 0}, ids, std::span(even));
      strand.drafts.push_back({token, even});
    }
  }

  // What this image alone would commit, each token with the distribution to test it by if it has to wait.
  std::vector<Entry> verify(Strand& strand) {
    fill(strand);
    std::vector<Entry> made;
    TokenRow context = strand.tokens;
    const auto wait_as = [&](std::int32_t token, std::span<const double> dist) {
      made.push_back({token, {dist.begin(), dist.end()}});
      context.push_back(token);
    };
    for (const Entry& draft : strand.drafts) {
      const TargetRow<double> row = row_after(context);
      const DraftDistribution<double> dist{DistributionKind::kDense, draft.token, draft.dist, 0};
      const auto position = static_cast<std::uint32_t>(context.size());
      const Decision<double> verified =
          rule_.accept({row, dist, draft.token, position, 0}, strand.random, scratch_);
      wait_as(verified.token, verified.accepted && faulty_ ? dist.dense : row.probs);
      if (!verified.accepted) return made;
    }
    const TargetRow<double> row = row_after(context);
    wait_as(strand.random.race(static_cast<std::uint32_t>(context.size()), row.logits), row.probs);
    return made;
  }

  const Table& model_;
  bool faulty_;
  DistributionPipeline<double> dist_;
  std::vector<double> scratch_;
  ExactRule<double, WalkingRandom> rule_;
  std::vector<Strand> images_;
};

TEST(Mutants, BatchHeldToTheSmallestCommit) {
  const auto dist = [](const Table& model, bool faulty) {
    Distribution out;
    OutcomeWalk walk;
    while (walk.next_path()) {
      const TokenRow both = Lockstep(model, &walk, faulty).run();
      out[both] += walk.weight();
    }
    return out;
  };
  const auto truth = [](const Table& model) { return dist_of_two(product_dist(model)); };
  expect_seen_next_to(
      "batch minimum", dist,
      [](unsigned number) {
        Table model = table<double>(number);
        model.vocabulary = number == 0 ? 3 : 2;  // pairs of images have many outcomes
        model.total = 3;
        return model;
      },
      truth);
}

}  // namespace
}  // namespace tessera::mutants_test
