// The trace of a run: its sums are the meters', every mark lies at its own position, and asking for
// it changes no token. Rows that are decoded side by side commit out of order.
#include "engine/decoding/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/decoding/tiny_run.h"

namespace tessera::trace_test {
namespace {

struct TracedRun {
  std::vector<StreamResult> results;
  std::vector<std::vector<std::int32_t>> frozen;  // [items][position] pass, seen from outside
};

// Writes down after which pass each position of the line was there.
TracedRun run_traced(const TinyRun& tiny, std::vector<Stream> items, const DecodeMethod& method,
                     bool traced) {
  for (Stream& item : items) item.traced = traced;
  const OwnedParts<float, KeyedRandom> owned(method, tiny.aids());
  StreamLoop loop(tiny.model,
                  image_limits(tiny.model, {.items = static_cast<std::int64_t>(items.size()),
                                            .prompt_rows = 8,
                                            .window = method.window,
                                            .dists = keeps_dists(method),
                                            .shape = method.shape()}),
                  owned.parts());
  TracedRun out;
  out.frozen.resize(items.size());
  out.results = run_streams(loop, items, [&](const RunPass& event) {
    for (std::size_t i = 0; i < event.items.size(); ++i) {
      const auto pass = static_cast<std::int32_t>(event.items[i].passes);
      out.frozen[i].resize(event.items[i].tokens.size(), pass);
    }
    return Flow::kContinue;
  });
  return out;
}

void expect_sums(const StreamResult& result, const std::string& what) {
  const DecodeTrace& trace = result.trace;
  ASSERT_EQ(trace.marks.size(), result.tokens.size()) << what;
  double entropy = 0, surprise = 0;
  std::vector<std::int64_t> by_pass(trace.committed.size(), 0);
  for (std::size_t at = 0; at < trace.marks.size(); ++at) {
    const TokenMark& mark = trace.marks[at];
    ASSERT_EQ(mark.id, result.tokens[at]) << what << ", position " << at;
    ASSERT_GE(mark.pass, 1) << what;
    ASSERT_LE(mark.pass, static_cast<std::int32_t>(by_pass.size())) << what;
    ++by_pass[static_cast<std::size_t>(mark.pass - 1)];
    entropy += static_cast<double>(mark.entropy);
    surprise += std::log(static_cast<double>(mark.probability)) + static_cast<double>(mark.entropy);
  }
  // Marks are floats.
  const double slack = 1e-6 * static_cast<double>(trace.marks.size());
  EXPECT_NEAR(entropy, result.meters.entropy, slack * 10) << what;
  EXPECT_NEAR(surprise, result.meters.surprise, slack * 10) << what;
  std::vector<std::int64_t> histogram(result.meters.commit_histogram.size(), 0);
  for (std::size_t pass = 0; pass < by_pass.size(); ++pass) {
    ASSERT_EQ(by_pass[pass], trace.committed[pass]) << what << ", pass " << pass + 1;
    ++histogram[static_cast<std::size_t>(trace.committed[pass])];
  }
  EXPECT_EQ(histogram, result.meters.commit_histogram) << what;
  EXPECT_EQ(static_cast<std::int64_t>(by_pass.size()), result.passes) << what;
}

class TraceOn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, TraceOn, ::testing::Values("test:tiny", "test:rows"));

TEST_P(TraceOn, SumsAreTheMetersAndNoTokenChanges) {
  const TinyRun tiny(2, GetParam());
  const std::vector<Stream> items = first_items(tiny, 2);
  int tried = 0;
  for (const NamedMethod& named : named_methods()) {
    if (named.drafter == kModelDrafter) continue;  // made by whoever opens the draft model
    const std::int64_t tokens = tiny.model.image_token_count();
    DecodeMethod chosen = decode_method(named.name);
    if (named.row_lead > 0) chosen.set(setting::kRowLead, 2);  // less than a row
    const DecodeMethod method = settle_method(chosen, tiny.aids(), tokens);
    const TracedRun with = run_traced(tiny, items, method, true);
    const TracedRun without = run_traced(tiny, items, method, false);
    ++tried;
    bool early = false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string what = std::string(named.name) + ", item " + std::to_string(i);
      ASSERT_EQ(with.results[i].tokens, without.results[i].tokens) << what;
      EXPECT_EQ(with.results[i].meters.entropy, without.results[i].meters.entropy) << what;
      EXPECT_TRUE(without.results[i].trace.marks.empty()) << what;
      expect_sums(with.results[i], what);
      for (std::size_t at = 0; at < with.frozen[i].size(); ++at) {
        const std::int32_t pass = with.results[i].trace.marks[at].pass;
        if (method.shape() == PassShape::kRows) {
          ASSERT_LE(pass, with.frozen[i][at]) << what << ", position " << at;
          early = early || pass < with.frozen[i][at];
        } else {
          ASSERT_EQ(pass, with.frozen[i][at]) << what << ", position " << at;
        }
      }
    }
    EXPECT_EQ(early, method.shape() == PassShape::kRows) << named.name;
  }
  EXPECT_GE(tried, 8);
}

// With a lead of whole rows, rows side by side are plain decoding: every mark must be the same.
TEST_P(TraceOn, RowsMarkTheirOwnPositions) {
  const TinyRun tiny(1, GetParam());
  DecodeMethod rows = decode_method("rows");
  rows.set(setting::kRowLead, static_cast<double>(tiny.model.config().grammar().stride()));
  rows = settle_method(rows, tiny.aids(), tiny.model.image_token_count());
  const std::vector<Stream> items = first_items(tiny, 1);
  const DecodeTrace plain = run_traced(tiny, items, decode_method("plain"), true).results[0].trace;
  const DecodeTrace other = run_traced(tiny, items, rows, true).results[0].trace;
  ASSERT_EQ(plain.marks.size(), other.marks.size());
  for (std::size_t at = 0; at < plain.marks.size(); ++at) {
    EXPECT_EQ(plain.marks[at].id, other.marks[at].id) << at;
    EXPECT_EQ(plain.marks[at].pass, other.marks[at].pass) << at;
    EXPECT_EQ(plain.marks[at].probability, other.marks[at].probability) << at;
    EXPECT_EQ(plain.marks[at].entropy, other.marks[at].entropy) << at;
  }
  EXPECT_EQ(plain.committed, other.committed);
}

}  // namespace
}  // namespace tessera::trace_test
