// Texts where their device verifies, against the same loop on the same device with the rows brought
// to the host: the same tokens, passes, meters and failures, in batches that come and go.
#include <gtest/gtest.h>

#include <deque>

#include "engine/decoding/method_parts.h"
#include "tests/support/devices.h"
#include "tests/support/made_up_methods.h"
#include "tests/unit/decoding/hosts_rule.h"
#include "tests/unit/decoding/text_run.h"

namespace tessera::testing::verified_text_test {
namespace {

struct Way {
  DecodeMethod method;
  std::int64_t items = 1, chunk = 256;
};

std::map<std::uint64_t, StreamResult> write(const StreamModel& model, const Way& way, bool on_host,
                                            int texts = 5) {
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(model.config().vocab), 64);
  const OwnedParts<float, KeyedRandom> owned(way.method, aids);
  LoopParts parts = owned.parts();
  HostsRule rule(*parts.rule);
  if (on_host) parts.rule = &rule;
  std::vector<Stream> items = items_of(model, questions(model, texts));
  std::int64_t longest = 1;
  for (const Stream& item : items) longest = std::max(longest, item.prompt.length());
  StreamLoop loop(model,
                  text_limits(model, 64,
                              {.items = way.items,
                               .prompt_rows = longest,
                               .window = way.method.window,
                               .budget = way.chunk,
                               .dists = parts.needs_dists()}),
                  parts);
  Gatherer gatherer;
  std::size_t next = 0;
  while (next < items.size() || !loop.idle()) {
    while (next < items.size() && !loop.full()) {
      const std::uint64_t number = items[next].item;
      gatherer.item_of_slot[loop.add(std::move(items[next++]))] = number;
    }
    loop.step(gatherer);
  }
  return std::move(gatherer.done);
}

void expect_same(const std::map<std::uint64_t, StreamResult>& here,
                 const std::map<std::uint64_t, StreamResult>& there, const std::string& what) {
  ASSERT_EQ(there.size(), here.size());
  for (const auto& [number, result] : there) {
    const StreamResult& want = here.at(number);
    EXPECT_EQ(result.tokens, want.tokens) << what << " " << number;
    EXPECT_EQ(result.stopped, want.stopped) << what << " " << number;
    EXPECT_EQ(result.passes, want.passes) << what << " " << number;
    EXPECT_EQ(result.meters.tested, want.meters.tested) << what << " " << number;
    EXPECT_EQ(result.meters.accepted, want.meters.accepted) << what << " " << number;
    EXPECT_EQ(result.meters.transforms, want.meters.transforms) << what << " " << number;
  }
}

class VerifiedText : public OnDevice {};

TEST_P(VerifiedText, SaysWhatTheHostSays) {
  const bool slow = GetParam().name == "simt";
  const SmallText small = small_text_on(std::move(backend), small_text_spec(), DType::kBF16);
  std::vector<Way> ways = {{combine("lookup", "drop", "exact", 5), 2, 9},
                           {combine("neighbour-law", "maximal", "exact", 4), 2, 9},
                           {combine("none", "drop", "exact", 1), 3, 256}};
  if (!slow) ways.push_back({combine("lookup", "maximal", "exact", 8), 4, 16});
  for (const Way& way : ways) {
    const auto here = write(small.model, way, true), there = write(small.model, way, false);
    ASSERT_EQ(there.size(), 5u);
    expect_same(here, there, way.method.drafter);
  }
}

TEST_P(VerifiedText, HasALargeVocabulary) {
  const SmallText small = small_text_on(std::move(backend), small_text_spec(70000), DType::kBF16);
  const Way way{combine("lookup", "drop", "exact", 2), 1, 64};
#ifdef TESSERA_SIMULATED_DEVICE
  const std::size_t before = simt::counts().bytes_down;
#endif
  const auto there = write(small.model, way, false, 1);
#ifdef TESSERA_SIMULATED_DEVICE
  // Less than one row of logits.
  if (GetParam().name == "simt") {
    EXPECT_LT(simt::counts().bytes_down - before, 70000u);
  }
#endif
  expect_same(write(small.model, way, true, 1), there, "many ids");
}

#ifdef TESSERA_SIMULATED_DEVICE
TEST_P(VerifiedText, BringsNoLogitsToTheHost) {
  if (GetParam().name != "simt") GTEST_SKIP() << "the simulated device counts";
  const SmallText small = small_text_on(std::move(backend), small_text_spec(4096), DType::kBF16);
  const Way way{combine("none", "drop", "exact", 1), 1, 256};
  const std::size_t before = simt::counts().bytes_down;
  const auto heard = write(small.model, way, false);
  std::int64_t passes = 0;
  for (const auto& [number, result] : heard) passes += result.passes;
  const std::size_t down = simt::counts().bytes_down - before;
  EXPECT_LE(down, static_cast<std::size_t>(passes) * 128);
  EXPECT_LT(down, static_cast<std::size_t>(passes) * 4096);
}
#endif

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedText, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::verified_text_test
