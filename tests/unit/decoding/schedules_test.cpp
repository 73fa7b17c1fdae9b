// Many random schedules of one loop, and how well its slots are used.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/decoding/schedule_run.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::schedules_test {
namespace {

TEST(Schedules, EachStreamWritesWhatItWritesAlone) {
  constexpr std::uint32_t kSchedules = 1000;
  const SmallText one = small_text(small_text_spec(), 1), two = small_text(small_text_spec(), 3);
  const std::vector<ScheduledMethod> ways = scheduled_methods();
  const auto of_way = static_cast<std::uint32_t>(ways.size());
  std::vector<StreamResult> plain;
  std::int64_t drops = 0;
  for (std::uint32_t way = 0; way < of_way; ++way) {
    const StreamPool pool(way % 4 == 1 ? two.model : one.model);
    ScheduleRun run(pool, ways[way]);
    for (std::uint32_t seed = way; seed < kSchedules; seed += of_way) {
      ASSERT_EQ(run.wrong(seed), 0u) << ways[way].name << ", schedule " << seed;
    }
    drops += run.drops();
    EXPECT_GT(run.reused(), 300) << ways[way].name << ": prompts that came before";
    if (way == 0) plain = run.truth();
    for (std::size_t i = 0; ways[way].equality && i < pool.size(); ++i) {
      EXPECT_EQ(run.truth()[i].tokens, plain[i].tokens) << ways[way].name << " " << i;
    }
  }
  EXPECT_GT(drops, 1000) << "schedules in which all streams end by themselves prove less";
  const auto failed = [](const StreamResult& result) {
    return result.status == StreamStatus::kFailed;
  };
  EXPECT_EQ(std::count_if(plain.begin(), plain.end(), failed), 1);
}

// The comparison must be able to fail: drafters that take a slot's new stream for the old one.
TEST(Schedules, DraftsOfAnotherStreamAreSeen) {
  const SmallText small = small_text();
  const StreamPool pool(small.model);
  for (const ScheduledMethod& way : scheduled_methods()) {
    if (way.name != "recycle") continue;
    ScheduleRun run(pool, way);
    std::size_t wrong = 0;
    for (std::uint32_t seed = 0; seed < 20; ++seed) wrong += run.wrong(seed, /*stale=*/true);
    EXPECT_GT(wrong, 0u);
  }
}

// --- slots at work ------------------------------------------------------------------------------

struct SlotUse {
  double refilled = 0;  // of slots in passes until the last stream began
  double batches = 0;   // of the same passes of each stream, in batches that wait for the slowest
};

// Of 64 images, eight at once. A slot is at work in a pass that verifies tokens of its stream.
SlotUse slot_use(std::string_view name) {
  constexpr std::int64_t kSlots = 8;
  constexpr int kImages = 64;
  const TinyRun tiny;
  const std::vector<Stream> items = first_items(tiny, kImages);
  const DecodeMethod method =
      settle_method(decode_method(name), tiny.aids(), tiny.model.image_token_count());
  const OwnedParts<float, KeyedRandom> owned(method, tiny.aids());
  StreamLoop loop(tiny.model,
                  image_limits(tiny.model, {.items = kSlots,
                                            .prompt_rows = 8,
                                            .window = method.window,
                                            .dists = keeps_dists(method),
                                            .shape = method.shape()}),
                  owned.parts());
  std::int64_t passes = 0, counted = 0, used = 0, verified = 0;
  std::size_t begun = 0;
  const auto results = run_streams(
      loop, items,
      [&](const RunPass& pass) {
        ++passes;
        std::int64_t now = 0;
        for (std::size_t i = 0; i < pass.items.size(); ++i) now += pass.items[i].passes;
        if (begun < items.size()) {
          ++counted;
          used += now - verified;
        }
        verified = now;
        return Flow::kContinue;
      },
      [&](std::size_t, std::size_t) { ++begun; });
  SlotUse use;
  use.refilled = static_cast<double>(used) / static_cast<double>(kSlots * counted);
  std::int64_t slowest = 0, all = 0;
  for (std::size_t i = 0; i < results.size(); i += kSlots) {
    std::int64_t longest = 0;
    for (std::size_t j = i; j < i + kSlots; ++j) {
      longest = std::max(longest, results[j].passes);
      all += results[j].passes;
    }
    slowest += longest;
  }
  use.batches = static_cast<double>(all) / static_cast<double>(kSlots * slowest);
  return use;
}

TEST(Schedules, SlotsAreAtWork) {
  for (const char* name : {"gumbel", "tree"}) {
    const SlotUse use = slot_use(name);
    EXPECT_GE(use.refilled, 0.97) << name;
    EXPECT_LT(use.batches, 0.95) << name << ": streams that take alike prove nothing";
    std::printf("%s: %.3f of the slots at work, %.3f in batches\n", name, use.refilled,
                use.batches);
  }
}

}  // namespace
}  // namespace tessera::schedules_test
