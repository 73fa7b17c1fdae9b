// Acceptance replay: traces say what publications say, and images commit what the trace says pass
// by pass, whoever verifies: the host by rules, a device by records.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/lab/bench/decode_bench.h"
#include "apps/lab/bench/replay.h"
#include "engine/decoding/method_parts.h"
#include "engine/families/open_model.h"
#include "tests/support/devices.h"
#include "tests/support/stream_run.h"

namespace tessera::replay_test {
namespace {

TEST(AcceptTrace, GivesTheTokensThatWerePublished) {
  const AcceptTrace sjd = AcceptTrace::published("sjd"),
                    coupled = AcceptTrace::published("coupled");
  EXPECT_NEAR(sjd.tokens(4), 1.8, 1e-9);
  EXPECT_NEAR(sjd.tokens(16), 2.2, 1e-9);
  EXPECT_NEAR(sjd.tokens(128), 2.3, 1e-9) << "nothing is known beyond 32 rows";
  EXPECT_NEAR(coupled.tokens(3), 1.6, 1e-9);
  EXPECT_NEAR(coupled.tokens(64), 4.2, 1e-9);
  EXPECT_NEAR(AcceptTrace::published("gsd").tokens(16), 3.7, 1e-4);
  EXPECT_EQ(coupled.tokens(1), 1);
}

TEST(AcceptTrace, HazardsMultiply) {
  const double hazards[] = {0.5, 0.8};
  const AcceptTrace trace = AcceptTrace::of_hazards("x", hazards);
  EXPECT_NEAR(trace.tokens(2), 1.5, 1e-12);
  EXPECT_NEAR(trace.tokens(4), 1 + 0.5 + 0.4 + 0.32, 1e-12) << "the last hazard holds beyond";
}

TEST(AcceptTrace, ImagesHaveTheTracesMean) {
  for (const char* name : {"sjd", "coupled", "gsd"}) {
    const AcceptTrace trace = AcceptTrace::published(name);
    for (const std::int64_t window : {4, 16, 64}) {
      for (std::uint32_t key = 0; key < 5; ++key) {
        constexpr std::uint32_t kPasses = 150;
        double tokens = 0;
        for (std::uint32_t pass = 1; pass <= kPasses; ++pass) {
          tokens += 1 + static_cast<double>(
                            std::min(trace.right({key * 0x9E3779B9u, 7}, pass), window - 1));
        }
        EXPECT_NEAR(tokens / kPasses / trace.tokens(window), 1, 0.05) << name << ", " << window;
      }
    }
  }
}

TEST(AcceptTrace, SteadySeedsMakeImagesOfTheStatedAcceptance) {
  for (const char* name : {"sjd", "coupled", "gsd"}) {
    const AcceptTrace trace = AcceptTrace::published(name);
    for (const std::int64_t window : {16, 32, 64}) {
      const std::uint64_t seed = steady_seed(trace, window, 576);
      const KeyedRandom random(seed, 0);
      const auto passes = static_cast<double>(replayed_passes(trace, window, 576, random.key()));
      EXPECT_NEAR(575 / (passes - 1) / trace.tokens(window), 1, 0.01) << name << ", " << window;
    }
  }
}

TEST(ReplayRecords, EveryRecordThatIsReadCanStand) {
  std::vector<VerifiedRow> rows(4);
  std::vector<RowRecord> records(4);
  for (std::size_t j = 0; j < 4; ++j)
    rows[j].draft = j == 3 ? -1 : static_cast<std::int32_t>(10 + j);
  records[0] = {.token = 5};  // refused: the rows after it have redrafts
  for (std::size_t j = 1; j < 4; ++j) records[j].redraft = static_cast<std::int32_t>(20 + j);
  replay_records(rows, 2, records);
  EXPECT_EQ(records[0].accepted, 1);
  EXPECT_EQ(records[0].token, 10);
  EXPECT_EQ(records[1].accepted, 1);
  EXPECT_EQ(records[1].token, 11);
  EXPECT_EQ(records[2].accepted, 0);
  EXPECT_EQ(records[2].token, 22) << "what was drawn for that place";
  EXPECT_EQ(records[3].redraft, 23);
  replay_records(rows, 9, records);
  EXPECT_EQ(records[3].accepted, 0) << "no draft stands after the last row";
  EXPECT_GE(records[3].token, 0);
}

class Replay : public testing::OnDevice {};

// The last 24 of 64 tokens of a tiny model, whose own outcomes are others.
TEST_P(Replay, PassesCommitWhatTheTraceSays) {
  OpenedModel opened = open_model("test:tiny");
  const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
  Stream item;
  item.prompt.ids = {1, 2, 3};
  item.unconditional.ids = model.unconditional_prompt(item.prompt.ids, 0);
  item.dist.guidance = 5;
  item.seed = 9;
  item.given.assign(40, 3);
  for (const char* name : {"sjd", "coupled"}) {
    const DecodeAids aids{.grammar = model.config().grammar()};
    DecodeMethod method = decode_method(name);
    method.window = 8;
    method = settle_method(method, aids, model.image_token_count());
    const OwnedParts<float, KeyedRandom> owned(method, aids);
    const AcceptTrace trace = AcceptTrace::published(name);
    LoopParts parts = owned.parts();
    const ReplayRule rule(*parts.rule, std::span(&trace, 1));
    ReplayRule own = rule;
    WatchedVerifiers verifiers(*backend, &trace);
    parts.rule = &own;
    const bool on_device = backend->row_verifiers() != nullptr;
    if (on_device) parts.verifiers = &verifiers;
    StreamLoop loop(
        model,
        image_limits(model, {.prompt_rows = 3, .window = 8, .dists = true, .given_tokens = 40}),
        parts);
    const auto results = run_streams(loop, {&item, 1});
    ASSERT_EQ(results[0].status, StreamStatus::kDone);
    EXPECT_EQ(verifiers.seen().reads, on_device ? results[0].passes : 0);

    std::vector<std::int64_t> wanted(9);
    std::int64_t left = 24;
    const KeyedRandom random(item.seed, item.item);
    for (std::uint32_t pass = 1; left > 0; ++pass) {
      // The first pass, the prompt's, has no drafts.
      const std::int64_t rows = pass == 1 ? 1 : std::min<std::int64_t>(8, left);
      const std::int64_t tokens = std::min(1 + trace.right(random.key(), pass), rows);
      ++wanted[static_cast<std::size_t>(tokens)];
      left -= tokens;
    }
    EXPECT_EQ(results[0].meters.commit_histogram, wanted) << name;
    EXPECT_EQ(results[0].passes, replayed_passes(trace, 8, 24, random.key()));
  }
}

TEST_P(Replay, TheBenchmarkOfMethodsRunsOnTheDevice) {
  std::vector<nlohmann::ordered_json> objects;
  BenchReport report({}, *backend, [&](const auto& object) { objects.push_back(object); });
  run_replay_bench({.model = "test:tiny", .trace = {0.5}, .windows = {2}, .tokens = 5, .pairs = 1},
                   *backend, report);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].at("name"), "replay.w2");
  EXPECT_EQ(objects[1].at("name"), "replay.auto");
  for (const auto& object : objects) {
    EXPECT_GT(object.at("latency_ratio").at("mean").get<double>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Replay, ::testing::ValuesIn(testing::test_devices()),
                         testing::device_name);

}  // namespace
}  // namespace tessera::replay_test
