// Rows of codes side by side: with a lead of whole rows plain decoding, token for token; with less
// the number of passes that the scheme says, codes drawn from distributions of what was there, and nothing
// that depends on batch or threads.
#include <gtest/gtest.h>

#include "tests/support/table_decoding.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::row_sequence_test {
namespace {

DecodeMethod rows_method(const TinyRun& tiny, std::int64_t lead, std::int64_t window = 1,
                         std::string_view rule = "exact", std::string_view redraft = "resample") {
  DecodeMethod method = decode_method(window > 1 ? "pjd" : "rows");
  method.set(setting::kRowLead, static_cast<double>(lead));
  method.set(setting::kRowWindow, static_cast<double>(window));
  if (window > 1) {
    method.rule = rule;
    method.redraft_policy = redraft;
  }
  const std::int64_t tokens = tiny.model.image_token_count();
  method = settle_method(method, tiny.aids(), tokens);
  check_method(method, tiny.aids(), tokens);
  return method;
}

class RowsOn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, RowsOn, ::testing::Values("test:tiny", "test:rows"));

TEST_P(RowsOn, WholeRowsArePlainDecoding) {
  const TinyRun tiny(2, GetParam());
  const auto stride = static_cast<std::int64_t>(tiny.model.config().grammar().stride());
  const std::vector<Stream> items{tiny.item(0), tiny.item(1), tiny.item(2)};
  const auto plain = tiny.run(items);
  const auto rows = tiny.run_method(items, rows_method(tiny, stride));
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(rows[i].status, StreamStatus::kDone);
    EXPECT_EQ(rows[i].tokens, plain[i].tokens) << i;
    EXPECT_EQ(rows[i].passes, plain[i].passes);
  }
}

// The first row alone, the second one after it, then one row every `lead` passes.
TEST_P(RowsOn, TakesThePassesThatTheSchemeSays) {
  const TinyRun tiny(2, GetParam());
  const VocabularyGrammar grammar = tiny.model.config().grammar();
  const auto stride = static_cast<std::int64_t>(grammar.stride());
  const auto rows = static_cast<std::int64_t>(grammar.rows);
  for (std::int64_t lead = 1; lead < stride; ++lead) {
    const StreamResult result = tiny.run_method({tiny.item(0)}, rows_method(tiny, lead))[0];
    EXPECT_EQ(result.passes, 2 * stride + (rows - 2) * lead) << lead;
    EXPECT_EQ(result.meters.tokens, static_cast<std::int64_t>(grammar.length()));
    std::int64_t committed = 0;
    for (std::size_t n = 0; n < result.meters.commit_histogram.size(); ++n) {
      committed += static_cast<std::int64_t>(n) * result.meters.commit_histogram[n];
    }
    EXPECT_EQ(committed, result.meters.tokens);
    for (std::size_t i = 0; i < result.tokens.size(); ++i) {
      const std::optional<std::int32_t> forced = grammar.forced(i);
      if (forced) {
        EXPECT_EQ(result.tokens[i], *forced) << i;
      } else {
        EXPECT_LT(result.tokens[i], static_cast<std::int32_t>(grammar.codes)) << i;
      }
    }
  }
}

TEST_P(RowsOn, BatchAndThreadsChangeNothing) {
  const TinyRun one(1, GetParam()), three(3, GetParam());
  const std::vector<Stream> items{one.item(0), one.item(1), one.item(2)};
  for (const std::int64_t window : {1, 3}) {
    const DecodeMethod method = rows_method(one, 2, window);
    const auto together = three.run_method({items[2], items[0], items[1]}, method);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const StreamResult alone = one.run_method({items[i]}, method)[0];
      EXPECT_EQ(together[(i + 1) % 3].tokens, alone.tokens) << i << " window " << window;
    }
  }
}

// Whole rows with drafts: a row is written when all of the one above stands, so that equality makes
// plain decoding's tokens, in fewer passes.
TEST_P(RowsOn, DraftsOfWholeRowsThatEqualArePlainDecoding) {
  const TinyRun tiny(2, GetParam());
  const auto stride = static_cast<std::int64_t>(tiny.model.config().grammar().stride());
  const std::vector<Stream> items{tiny.item(0), tiny.item(1), tiny.item(2)};
  const auto plain = tiny.run(items);
  for (const std::int64_t window : {std::int64_t{2}, std::int64_t{3}, stride}) {
    const auto rows = tiny.run_method(items, rows_method(tiny, stride, window, "gumbel", "gumbel"));
    for (std::size_t i = 0; i < items.size(); ++i) {
      ASSERT_EQ(rows[i].status, StreamStatus::kDone);
      EXPECT_EQ(rows[i].tokens, plain[i].tokens) << i << " window " << window;
      EXPECT_LT(rows[i].passes, plain[i].passes);
      EXPECT_EQ(rows[i].meters.tokens, plain[i].meters.tokens);
    }
  }
}

// Rows side by side with drafts take fewer passes than without, and write codes of the grid alone.
TEST_P(RowsOn, DraftsSavePassesOfRowsSideBySide) {
  const TinyRun tiny(2, GetParam());
  const VocabularyGrammar grammar = tiny.model.config().grammar();
  std::int64_t drafted = 0, without = 0;
  for (int number = 0; number < 6; ++number) {
    const StreamResult some = tiny.run_method({tiny.item(number)}, rows_method(tiny, 2, 4, "gumbel", "gumbel"))[0];
    ASSERT_EQ(some.status, StreamStatus::kDone);
    ASSERT_EQ(some.tokens.size(), grammar.length());
    for (std::size_t i = 0; i < some.tokens.size(); ++i) {
      const std::optional<std::int32_t> forced = grammar.forced(i);
      EXPECT_TRUE(forced ? some.tokens[i] == *forced : some.tokens[i] < static_cast<std::int32_t>(grammar.codes));
    }
    drafted += some.passes;
    without += tiny.run_method({tiny.item(number)}, rows_method(tiny, 2))[0].passes;
  }
  EXPECT_LT(drafted, without);
}

// What a table makes of rows side by side, each row of a pass after what it sees.
std::map<TokenRow, double> dist_of_rows(const TableModel<double>& model, const DecodeMethod& method) {
  std::map<TokenRow, double> out;
  OutcomeWalk walk;
  while (walk.next_path()) {
    const OwnedParts<double, WalkingRandom> owned(method, aids_for(model.grammar()));
    const auto parts = owned.parts();
    parts.drafter->start(1);
    RowSequence<double, WalkingRandom> sequence(model.dist, model.grammar(), parts.row_lead, parts.row_window, parts,
                                                WalkingRandom(&walk, 0), 0);
    TokenRow cached;
    while (!sequence.done()) {
      std::vector<Rows<double>> rows;
      TokenRow fed;
      if (sequence.tokens().empty()) {
        rows.push_back(rows_after(model, {}));
      } else {
        sequence.draft_job(64);
        PassLine line;
        for (std::size_t row = 0; row < sequence.rows(); row += sequence.line(row, line)) {
          sequence.line(row, line);
          TokenRow context(cached.begin(), cached.begin() + static_cast<std::ptrdiff_t>(line.shared));
          for (const std::int32_t seen : line.seen) {
            const auto at = static_cast<std::size_t>(seen);
            context.push_back(at < cached.size() ? cached[at] : fed[at - cached.size()]);
          }
          for (const std::int32_t token : line.tokens) {
            context.push_back(token);
            fed.push_back(token);
            rows.push_back(rows_after(model, context));
          }
        }
      }
      sequence.verify([&](std::size_t j) { return rows[j].raw(); }, rows.size());
      for (const std::int32_t row : sequence.kept_rows()) cached.push_back(fed[static_cast<std::size_t>(row)]);
    }
    out[sequence.tokens()] += walk.weight();
  }
  return out;
}

// Every outcome, weighed: where a row waits for the whole one above, drafts keep the distribution; where it
// does not, they change it.
TEST(RowSequence, DraftsOfWholeRowsKeepTheDistribution) {
  int changed = 0;
  for (unsigned number = 0; number < 20; ++number) {
    TableModel<double> model = table<double>(number);
    model.total = model.vocabulary == 2 ? 6 : 4;
    model.rows = VocabularyGrammar{
        .codes = model.vocabulary, .rows = 2, .columns = model.total / 2};
    const auto truth = product_dist(model);
    for (const std::string_view drafter : {"uniform", "left", "above"}) {
      for (const std::string_view redraft : redraft_names()) {
        DecodeMethod method = decode_method("pjd");
        method.drafter = drafter;
        method.redraft_policy = redraft;
        method.set(setting::kRowWindow, 2);
        method.set(setting::kRowLead, static_cast<double>(model.total / 2));
        ASSERT_LT(total_variation(dist_of_rows(model, method), truth), 1e-12)
            << "table " << number << ' ' << drafter << ' ' << redraft;
      }
    }
  }
  // Three rows: the third one begins before the second is whole.
  for (unsigned number = 0; number < 20; number += 2) {
    TableModel<double> model = table<double>(number);
    model.total = 6;
    model.rows = VocabularyGrammar{.codes = 2, .rows = 3, .columns = 2};
    DecodeMethod method = decode_method("pjd");
    method.set(setting::kRowWindow, 2);
    method.set(setting::kRowLead, 1);
    changed += total_variation(dist_of_rows(model, method), product_dist(model)) > 1e-3 ? 1 : 0;
  }
  EXPECT_GE(changed, 5);
}

// What each code was drawn from, by a table in place of the model: all that had is committed, in
// raster order, at lower positions, with the stand-in at the end for a row's first code.
TEST(RowSequence, SeesWhatStandsBeforeItsPlace) {
  const VocabularyGrammar grammar{.codes = 5, .rows = 4, .columns = 4};
  const DistributionSettings dist;
  const OwnedParts<double, KeyedRandom> owned(decode_method("rows"), aids_for(grammar));
  RowSequence<double, KeyedRandom> sequence(dist, grammar, 2, 1, owned.parts(), KeyedRandom(3, 0), 0);
  std::vector<std::int32_t> cached;  // positions, in the order they were cached
  std::vector<double> logits(5, 0.0);
  std::vector<std::int32_t> began(4, -1);
  for (std::int32_t pass = 1; !sequence.done(); ++pass) {
    std::vector<std::size_t> places;
    if (!sequence.tokens().empty()) {
      sequence.draft_job(64);
      PassLine line;
      for (std::size_t row = 0; row < sequence.rows(); row += sequence.line(row, line)) {
        sequence.line(row, line);
        ASSERT_EQ(line.tokens.size(), 1u);
        places.push_back(line.position);
        // Rows in order are their own positions; the others ascend and lie before the place.
        for (std::size_t i = 0; i < line.shared; ++i) EXPECT_EQ(cached[i], static_cast<int>(i));
        std::size_t last = line.shared;
        for (const std::int32_t seen : line.seen) {
          const std::size_t at =
              static_cast<std::size_t>(seen) < cached.size()
                  ? static_cast<std::size_t>(cached[static_cast<std::size_t>(seen)])
                  : places[static_cast<std::size_t>(seen) - cached.size()];
          EXPECT_GE(at, last);
          EXPECT_LT(at, line.position);
          last = at + 1;
        }
        // Nothing that stands before the place is left out.
        std::size_t before = 0;
        for (const std::int32_t at : cached) before += static_cast<std::size_t>(at) < line.position;
        for (std::size_t j = 0; j + 1 < places.size(); ++j) before += places[j] < line.position;
        EXPECT_EQ(line.shared + line.seen.size(), before);
        if (line.position % 4 == 3 && began[line.position / 4 + 1] < 0) {
          began[line.position / 4 + 1] = pass;
        }
      }
    }
    sequence.verify(
        [&](std::size_t) {
          return RawRow<double>{logits, {}};
        },
        std::max<std::size_t>(places.size(), 1));
    for (const std::int32_t row : sequence.kept_rows()) {
      cached.push_back(static_cast<std::int32_t>(places[static_cast<std::size_t>(row)]));
    }
  }
  EXPECT_EQ(began, (std::vector<std::int32_t>{-1, 5, 7, 9}));
  EXPECT_EQ(sequence.tokens().size(), 16u);
}

TEST(RowSequence, RefusesWhatItCannotBeJoinedWith) {
  const TinyRun tiny;
  const auto refused = [&](auto change) -> std::string {
    DecodeMethod method = decode_method("rows");
    change(method);
    const std::int64_t tokens = tiny.model.image_token_count();
    return refusal_code(settle_method(method, tiny.aids(), tokens), tiny.aids(), tokens);
  };
  EXPECT_EQ(refused([](DecodeMethod&) {}), "");
  EXPECT_EQ(refused([](DecodeMethod& m) { m.drafter = "left"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refused([](DecodeMethod& m) { m.tree = "rsd"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refused([](DecodeMethod& m) { m.set(setting::kRowLead, 1000); }), "E_DECODE_RANGE");
  EXPECT_EQ(refused([](DecodeMethod& m) { m.set(setting::kRowWindow, 2); }), "E_DECODE_CONFLICT");
  const auto drafted = [&](auto change) {
    return refused([&](DecodeMethod& m) {
      m = decode_method("pjd");
      m.set(setting::kRowLead, 2);
      m.set(setting::kRowWindow, 2);
      change(m);
    });
  };
  EXPECT_EQ(drafted([](DecodeMethod&) {}), "");
  EXPECT_EQ(drafted([](DecodeMethod& m) { m.drafter = "lookup"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(drafted([](DecodeMethod& m) { m.tree = "rsd"; }), "E_DECODE_CONFLICT");
  EXPECT_EQ(drafted([](DecodeMethod& m) { m.set(setting::kTvBudget, 1); }), "E_DECODE_CONFLICT");
  EXPECT_EQ(drafted([](DecodeMethod& m) { m.set(setting::kRowWindow, 1); }), "E_DECODE_CONFLICT");
  EXPECT_EQ(refused([](DecodeMethod& m) { m = decode_method("sjd"), m.set(setting::kRowWindow, 2); }), "E_DECODE_CONFLICT");
  for (const char* name : {"rows", "pjd"}) EXPECT_EQ(guarantee_of(decode_method(name)), Guarantee::kNone);
}

}  // namespace
}  // namespace tessera::row_sequence_test
