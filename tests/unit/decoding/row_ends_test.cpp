// Streams with row ends and an image end: every outcome on table models, and the real loop on the
// seeded model that has both. Where an id is forced it stands, elsewhere it never does, and the distribution
// of the codes is what it is without drafts.
#include <gtest/gtest.h>

#include <iostream>

#include "engine/decoding/drafters/model_drafter.h"
#include "tests/support/draft_streams.h"
#include "tests/support/table_decoding.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::row_ends_test {
namespace {

// --- every outcome ------------------------------------------------------------------------------

// Table `number` along rows: four or six codes of two ids, or three of three.
template <typename Real>
TableModel<Real> row_table(unsigned number) {
  TableModel<Real> model = table<Real>(number);
  VocabularyGrammar rows{.codes = model.vocabulary};
  rows.row_end = number % 8 < 6;
  rows.image_end = number % 3 != 0;
  if (model.vocabulary == 2) {
    rows.rows = number % 6 == 2 ? 4 : 2;
    rows.columns = number % 6 == 2 ? 1 : number % 6 == 4 ? 3 : 2;
  } else {
    rows.rows = number % 4 == 1 ? 3 : 1;
    rows.columns = number % 4 == 1 ? 1 : 3;
  }
  model.rows = rows;
  return model;
}

// The product of conditionals with row ends `late` positions late, in long-hand.
template <typename Real>
std::map<TokenRow, double> truth_of(const TableModel<Real>& model, std::size_t late = 0) {
  const VocabularyGrammar& rows = *model.rows;
  const std::size_t width = rows.columns + (rows.row_end ? 1 : 0), body = width * rows.rows;
  const auto codes = static_cast<std::int32_t>(rows.codes);
  return dist_with_ends(model, body + (rows.image_end ? 1 : 0), [=](std::size_t j) {
    if (j == body) return rows.row_end ? codes + 1 : codes;
    return rows.row_end && (j + 1 + width - late) % width == 0 ? codes : -1;
  });
}

DecodeMethod exact_method(std::string_view drafter, std::string_view redraft_policy, std::string_view rule,
                          std::int64_t window) {
  DecodeMethod method = combine(drafter, redraft_policy, rule, window);
  set_lossless(method);
  return method;
}

template <typename Real>
void expect_lossless(std::string_view rule, unsigned tables, double tolerance) {
  std::size_t paths = 0, dists = 0;
  double worst = 0;
  for (unsigned number = 0; number < tables; ++number) {
    const TableModel<Real> model = row_table<Real>(number);
    const DecodeAids aids = aids_for(*model.rows);
    const auto truth = truth_of(model);
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        if (drafter == "none" && redraft_policy != "drop") continue;
        for (const std::int64_t window : {2, 3, 5}) {
          if (window == 3 && number % 3 != 0) continue;
          const DecodeMethod method = exact_method(drafter, redraft_policy, rule, window);
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

class RowEndsUnder : public ::testing::TestWithParam<std::string_view> {};

TEST_P(RowEndsUnder, KeepTheDistributionInDouble) { expect_lossless<double>(GetParam(), 10, 1e-12); }
TEST_P(RowEndsUnder, KeepTheDistributionInFloat) { expect_lossless<float>(GetParam(), 4, 1e-6); }

INSTANTIATE_TEST_SUITE_P(All, RowEndsUnder,
                         ::testing::ValuesIn(rule_names().begin(), rule_names().end()));

TEST(RowEnds, OnePositionOffIsSeen) {
  int seen = 0;
  for (unsigned number = 0; number < 12; ++number) {
    const TableModel<double> model = row_table<double>(number);
    if (!model.rows->row_end) continue;
    const auto made =
        output_dist(model, exact_method("uniform", "maximal", "exact", 4), aids_for(*model.rows));
    EXPECT_LT(total_variation(made, truth_of(model)), 1e-12);
    EXPECT_GT(total_variation(made, truth_of(model, 1)), 0.99);
    ++seen;
  }
  EXPECT_GT(seen, 6);
}

// A drafter whose rows are longer than the image's drafts control ids where codes stand and
// codes where they do not. That costs passes, never the distribution.
TEST(RowEnds, DraftersThatMistakeTheRowsKeepTheDistribution) {
  for (unsigned number = 0; number < 8; ++number) {
    const TableModel<double> model = row_table<double>(number);
    VocabularyGrammar mistaken = *model.rows;
    ++mistaken.columns;
    const auto truth = truth_of(model);
    for (const std::string_view drafter : {"uniform", "left", "above", "lookup"}) {
      for (const std::string_view redraft_policy : redraft_names()) {
        for (const std::string_view rule : {"exact", "gumbel"}) {
          const DecodeMethod method = exact_method(drafter, redraft_policy, rule, 4);
          ASSERT_LT(total_variation(output_dist(model, method, aids_for(mistaken)), truth), 1e-12)
              << "table " << number << ' ' << drafter << ' ' << redraft_policy << ' ' << rule;
        }
      }
    }
  }
}

// Rules that guarantee nothing verify codes alone: they know no neighbours of a control id.
TEST(RowEnds, RelaxedRulesKeepTheEndsInPlace) {
  for (const std::string_view rule : {"grouped", "relaxed", "cool", "lenient"}) {
    for (unsigned number = 0; number < 8; ++number) {
      const TableModel<double> model = row_table<double>(number);
      DecodeMethod method = combine("uniform", "maximal", rule, 6);
      method.put(GroupedSettings{3, 1.0, 4.0, number % 2 == 0});
      method.put(RelaxedSettings{2, 0.5, 0});
      double excess = 0;
      const auto truth = truth_of(model);
      const auto made = output_dist(model, method, aids_for(*model.rows), {.excess = &excess});
      EXPECT_LE(total_variation(made, truth), excess + 1e-12) << rule << " table " << number;
      for (const auto& [image, weight] : made) {
        EXPECT_TRUE(truth.contains(image)) << rule << " table " << number;
      }
    }
  }
}

// --- the real loop ------------------------------------------------------------------------------

// A stream of the seeded model: ends at their places in long-hand, codes elsewhere.
void expect_rows(const StreamModelConfig& config, const Tokens& tokens) {
  const std::int64_t width = config.grid_cols + 1, body = width * config.grid_rows;
  ASSERT_EQ(static_cast<std::int64_t>(tokens.size()), body + 1);
  for (std::int64_t j = 0; j <= body; ++j) {
    const std::int32_t token = tokens[static_cast<std::size_t>(j)];
    if (j == body) {
      ASSERT_EQ(token, config.codes + 1);
    } else if (j % width == width - 1) {
      ASSERT_EQ(token, config.codes) << j;
    } else {
      ASSERT_LT(token, config.codes) << j;
      ASSERT_GE(token, 0) << j;
    }
  }
}

struct RowsRun : TinyRun {
  explicit RowsRun(int threads = 2) : TinyRun(threads, "test:rows") {}

  std::vector<Stream> items(int count) const {
    std::vector<Stream> out;
    for (int number = 0; number < count; ++number) out.push_back(item(number));
    return out;
  }
  std::vector<Tokens> plain(const std::vector<Stream>& asked) const {
    std::vector<Tokens> out;
    for (const StreamResult& result : run(asked)) {
      EXPECT_EQ(result.status, StreamStatus::kDone);
      EXPECT_EQ(result.passes, model.image_token_count());
      expect_rows(model.config(), result.tokens);
      out.push_back(result.tokens);
    }
    return out;
  }
};

// Sanitizers make a pass many times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kWindows[] = {3, 16};
#else
constexpr std::int64_t kWindows[] = {2, 5, 9, 73};
#endif

TEST(RowEnds, TheModelHasThem) {
  const RowsRun rows;
  const StreamModelConfig& config = rows.model.config();
  EXPECT_EQ(config.image_codes(), 64);
  EXPECT_EQ(rows.model.image_token_count(), 73);
  EXPECT_EQ(config.image_vocabulary(), config.codes + 2);
  EXPECT_EQ(config.cache_rows(5), 5 + 72);
}

TEST(RowEnds, EqualityIsPlainDecodingTokenForToken) {
  const RowsRun rows;
  const std::vector<Stream> items = rows.items(3);
  const std::vector<Tokens> truth = rows.plain(items);
  std::size_t turn = 0;
  std::int64_t fewest = 73;
  for (const std::string_view drafter : drafter_names()) {
    for (const std::string_view redraft_policy : redraft_names()) {
      if (drafter == "none") continue;
      for (const std::int64_t window : kWindows) {
        const DecodeMethod method = combine(drafter, redraft_policy, "gumbel", window);
        const auto together = rows.run_method(items, method);
        const std::size_t one = turn++ % items.size();
        const auto alone = rows.run_method({items[one]}, method);
        ASSERT_EQ(alone[0].tokens, truth[one]) << drafter << ' ' << redraft_policy << ' ' << window;
        for (std::size_t i = 0; i < items.size(); ++i) {
          ASSERT_EQ(together[i].tokens, truth[i]) << drafter << ' ' << redraft_policy << ' ' << window;
          // Nine ends are right whoever drafts; a pass of two rows gets one of two at the least.
          fewest = std::min(fewest, together[i].passes);
          ASSERT_LT(together[i].passes, 73) << drafter << ' ' << redraft_policy << ' ' << window;
        }
      }
    }
  }
  EXPECT_LT(fewest, 73 - 8) << "no code was ever drafted";
}

TEST(RowEnds, EveryRuleTailAndDrafterKeepsThemInPlace) {
  const RowsRun rows;
  const std::vector<Stream> items = rows.items(3);
  for (const std::string_view rule : rule_names()) {
    for (const std::string_view drafter : drafter_names()) {
      for (const std::string_view redraft_policy : redraft_names()) {
        if (drafter == "none") continue;
        DecodeMethod method = combine(drafter, redraft_policy, rule, 12);
        method.set(setting::kStaticGroups, redraft_policy == "drop" ? 1 : 0);
        for (const StreamResult& result : rows.run_method(items, method)) {
          ASSERT_EQ(result.status, StreamStatus::kDone);
          expect_rows(rows.model.config(), result.tokens);
          EXPECT_EQ(result.meters.tokens, 73);
        }
      }
    }
  }
}

// Looks at what another drafter leaves in the windows: what is forced at its places, codes at all
// others.
class Inspector final : public LoopDrafter {
 public:
  Inspector(LoopDrafter& inner, const StreamModelConfig& config) : inner_(inner), config_(config) {}
  std::string_view name() const override { return inner_.name(); }
  void start(std::size_t items) override { inner_.start(items); }
  void commit(const Commitment<float>& done) override { inner_.commit(done); }
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override {
    inner_.extend(jobs);
    const std::int64_t width = config_.grid_cols + 1, body = width * config_.grid_rows;
    for (const auto& job : jobs) {
      for (std::size_t i = 0; i < job.window->size(); ++i) {
        const auto j = static_cast<std::int64_t>(job.committed.size() + i);
        const std::int32_t token = job.window->token(i);
        const bool row_end = j % width == width - 1 && j < body;
        EXPECT_EQ(row_end, token == config_.codes) << name() << " at " << j;
        EXPECT_EQ(j == body, token == config_.codes + 1) << name() << " at " << j;
        ends += row_end ? 1 : 0;
      }
    }
  }

  std::int64_t ends = 0;

 private:
  LoopDrafter& inner_;
  const StreamModelConfig& config_;
};

TEST(RowEnds, DraftersPutThemInPlace) {
  const RowsRun rows;
  const std::vector<Stream> items = rows.items(2);
  ModelDrafter model(rows.model, {.items = 2,
                                  .prompt_rows = 8,
                                  .tokens = rows.model.image_token_count(),
                                  .window = 12});
  std::vector<std::string_view> names(drafter_names().begin(), drafter_names().end());
  names.push_back(kModelDrafter);
  for (const std::string_view drafter : names) {
    for (const std::string_view redraft_policy : redraft_names()) {
      if (drafter == "none") continue;
      const OwnedParts<float, KeyedRandom> owned(combine(drafter, redraft_policy, "exact", 12), rows.aids());
      LoopParts parts = owned.parts();
      Inspector inspector(drafter == kModelDrafter ? model : *parts.drafter, rows.model.config());
      parts.drafter = &inspector;
      StreamLoop loop(
          rows.model,
          image_limits(rows.model, {.items = 2, .prompt_rows = 8, .window = 12, .dists = true}),
          parts);
      run_drafted(loop, items, drafter == kModelDrafter ? &model : nullptr);
      EXPECT_GE(inspector.ends, 2) << drafter << ' ' << redraft_policy;
    }
  }
}

// Trees of drafts, whoever verifies siblings.
TEST(RowEnds, TreesKeepThemInPlace) {
  const RowsRun rows;
  const std::vector<Stream> items = rows.items(3);
  const std::vector<Tokens> truth = rows.plain(items);
  for (const std::string_view tree : tree_names()) {
    if (tree == "none") continue;
    for (const std::int64_t window : {4, 24}) {
      DecodeMethod method = combine("uniform", "resample", "exact", window);
      method.tree = tree;
      method.redraft_policy = tree == "gumbel" ? "gumbel" : "resample";
      const OwnedParts<float, KeyedRandom> owned(method, rows.aids());
      StreamLoop loop(rows.model,
                      image_limits(rows.model, {.items = 3,
                                                .prompt_rows = 8,
                                                .window = window,
                                                .dists = true,
                                                .shape = PassShape::kTree}),
                      owned.parts());
      const auto results = run_streams(loop, items);
      for (std::size_t i = 0; i < items.size(); ++i) {
        ASSERT_EQ(results[i].status, StreamStatus::kDone);
        expect_rows(rows.model.config(), results[i].tokens);
        EXPECT_LT(results[i].passes, 73) << tree;
        if (tree == "gumbel") {
          EXPECT_EQ(results[i].tokens, truth[i]) << window;
        }
      }
    }
  }
}

// Cuts and temperatures act on codes; under greedy decoding every drafting method is plain too.
TEST(RowEnds, UnderEverySetting) {
  const RowsRun rows;
  const DistributionSettings settings[] = {
      {.guidance = 5, .temperature = 0}, {.guidance = 3, .top_k = 5},
      {.guidance = 3, .top_k = 1},       {.guidance = 4, .temperature = 0.8, .top_p = 0.7},
      {.guidance = 2, .min_p = 0.2},     {.guidance = 2, .typical = 0.6}};
  for (const DistributionSettings& dist : settings) {
    std::vector<Stream> items = rows.items(2);
    for (Stream& item : items) item.dist = dist;
    const std::vector<Tokens> truth = rows.plain(items);
    for (const char* name : {"gumbel", "sjd", "coupled", "coupled-gumbel", "lookup", "recycle"}) {
      const DecodeMethod method = settle_method(decode_method(name), rows.aids(), 73);
      const bool same = method.rule == "gumbel" || dist.temperature == 0 || dist.top_k == 1;
      const auto results = rows.run_method(items, method);
      for (std::size_t i = 0; i < items.size(); ++i) {
        expect_rows(rows.model.config(), results[i].tokens);
        if (same) {
          EXPECT_EQ(results[i].tokens, truth[i]) << name;
        }
      }
    }
  }
}

TEST(RowEnds, BatchesAndThreadsChangeNothing) {
  const DecodeMethod method = combine("neighbour-law", "maximal", "exact", 8);
  std::vector<Tokens> alone;
  {
    const RowsRun rows(1);
    for (const Stream& item : rows.items(4)) {
      alone.push_back(rows.run_method({item}, method)[0].tokens);
    }
  }
  for (const int threads : {1, 3}) {
    const RowsRun rows(threads);
    const auto together = rows.run_method(rows.items(4), method);
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[i].tokens, alone[i]);
  }
}

// The target as its own draft: every draft is right, so that each pass commits a whole window.
TEST(RowEnds, ADraftModelWritesThemToo) {
  const RowsRun rows;
  const std::vector<Stream> items = rows.items(3);
  const std::vector<Tokens> truth = rows.plain(items);
  for (const std::int64_t window : {2, 4, 9, 10}) {
    ModelDrafter drafter(rows.model, {.items = 3,
                                      .prompt_rows = 8,
                                      .tokens = rows.model.image_token_count(),
                                      .window = window});
    const auto results = rows.run(items, &drafter, window);
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(results[i].tokens, truth[i]);
      EXPECT_EQ(results[i].passes, 1 + (72 + window - 1) / window) << "window " << window;
    }
    // The draft model runs for codes alone: what is forced is known without it.
    std::int64_t drafted = 0;
    for (std::int64_t first = 1; first < 73; first += window) {
      for (std::int64_t j = first; j < std::min(first + window, std::int64_t{73}) - 1; ++j) {
        drafted += j % 9 == 8 || j == 72 ? 0 : 1;
      }
    }
    EXPECT_EQ(drafter.passes(), drafted) << "window " << window;
  }
}

}  // namespace
}  // namespace tessera::row_ends_test
