// Rows of codes side by side: with a lead of whole rows plain decoding, token for token; with less
// the number of passes that the scheme says, codes drawn from distributions of what was there, and nothing
// that depends on batch or threads.
#include <gtest/gtest.h>

#include "tests/support/table_decoding.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::row_sequence_test {
namespace {

DecodeMethod rows_method(const TinyRun& tiny, std::int64_t lead) {
  DecodeMethod method = decode_method("rows");
  method.set(setting::kRowLead, static_cast<double>(lead));
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
  const DecodeMethod method = rows_method(one, 2);
  const auto together = three.run_method({items[2], items[0], items[1]}, method);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StreamResult alone = one.run_method({items[i]}, method)[0];
    EXPECT_EQ(together[(i + 1) % 3].tokens, alone.tokens) << i;
  }
}

// What each code was drawn from, by a table in place of the model: all that had is committed, in
// raster order, at lower positions, with the stand-in at the end for a row's first code.
TEST(RowSequence, SeesWhatStandsBeforeItsPlace) {
  const VocabularyGrammar grammar{.codes = 5, .rows = 4, .columns = 4};
  const DistributionSettings dist;
  RowSequence<double, KeyedRandom> sequence(dist, grammar, 2, KeyedRandom(3, 0), 0);
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
  EXPECT_EQ(guarantee_of(decode_method("rows")), Guarantee::kNone);
}

}  // namespace
}  // namespace tessera::row_sequence_test
