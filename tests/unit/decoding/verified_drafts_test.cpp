// Draft models on a device: drafts that are drawn and tested there, by distributions that never leave it,
// against the same drafter with its rows brought to the host. The draft model is the target under
// another distribution, so that drafts are right for a while and then are not.
#include <gtest/gtest.h>

#include "engine/decoding/drafters/model_drafter.h"
#include "engine/decoding/method_parts.h"
#include "tests/support/devices.h"
#include "tests/support/draft_streams.h"
#include "tests/support/tree_decoding.h"
#include "tests/unit/decoding/hosts_rule.h"
#include "tests/unit/decoding/text_run.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::testing::verified_drafts_test {
namespace {

class VerifiedDrafts : public OnDevice {
 protected:
  // Bytes that a simulated device sent to the host; 0 on others.
  static std::size_t bytes_down() {
#ifdef TESSERA_SIMULATED_DEVICE
    if (GetParam().name == "simt") return simt::counts().bytes_down;
#endif
    return 0;
  }
};

DecodeMethod method_of(std::string_view redraft_policy, std::string_view rule, std::int64_t window) {
  DecodeMethod method = combine("none", redraft_policy, rule, window);
  method.drafter = kModelDrafter;
  return method;
}

void expect_same_meters(const DecodeMeters& a, const DecodeMeters& b, const std::string& what) {
  EXPECT_EQ(a.tested, b.tested) << what;
  EXPECT_EQ(a.accepted, b.accepted) << what;
  EXPECT_EQ(a.strict_chance, b.strict_chance) << what;
  EXPECT_EQ(a.surprise, b.surprise) << what;
  EXPECT_EQ(a.transforms, b.transforms) << what;
}

// --- images -----------------------------------------------------------------------------------

std::vector<StreamResult> generate(const TinyRun& tiny, const std::vector<Stream>& items,
                                const DecodeMethod& method, bool on_host) {
  DecodeAids aids = aids_for(tiny.model.config().grammar());
  aids.draft_model = true;
  OwnedParts<float, KeyedRandom> owned(method, aids);
  ModelDrafter drafter(tiny.model, {.items = static_cast<std::int64_t>(items.size()),
                                    .prompt_rows = 8,
                                    .tokens = tiny.model.image_token_count(),
                                    .window = method.window,
                                    .trees = method.tree != "none"});
  std::vector<DraftStreamItem> drafts;
  for (const Stream& item : items) {
    drafts.push_back(draft_stream(item, tiny.model.config().grammar()));
    drafts.back().dist.temperature = 1.4;
  }
  LoopParts parts = owned.parts();
  HostsRule rule(*parts.rule);
  if (on_host) parts.rule = &rule;
  std::optional<HostsSiblings> siblings;
  if (parts.tree.rule == nullptr) {
    parts.drafter = &drafter;
  } else {
    parts.tree.source = &drafter;
    if (on_host) parts.tree.rule = &siblings.emplace(*parts.tree.rule);
  }
  StreamLoop loop(tiny.model,
                  image_limits(tiny.model, {.items = static_cast<std::int64_t>(items.size()),
                                            .prompt_rows = 8,
                                            .window = method.window,
                                            .dists = true,
                                            .shape = parts.shape()}),
                  parts);
  return run_drafted(loop, items, &drafter, drafts);
}

class VerifiedImageDrafts : public VerifiedDrafts {
 protected:
  void expect_same_images(const TinyRun& tiny, const std::vector<Stream>& items,
                            const DecodeMethod& method);
};

void VerifiedImageDrafts::expect_same_images(const TinyRun& tiny,
                                               const std::vector<Stream>& items,
                                               const DecodeMethod& method) {
  const std::size_t before = bytes_down();
  const auto there = generate(tiny, items, method, false);
  const std::size_t middle = bytes_down();
  const auto here = generate(tiny, items, method, true);
  // Rows of logits are many times a record, even of 64 codes; trees have candidates next to.
  EXPECT_LE((method.tree == "none" ? 4u : 2u) * (middle - before), bytes_down() - middle);
  std::int64_t tested = 0, accepted = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string what = method.tree + " " + method.redraft_policy + " item " + std::to_string(i);
    EXPECT_EQ(there[i].status, StreamStatus::kDone);
    EXPECT_EQ(there[i].tokens, here[i].tokens) << what;
    EXPECT_EQ(there[i].passes, here[i].passes) << what;
    expect_same_meters(there[i].meters, here[i].meters, what);
    tested = std::accumulate(here[i].meters.tested.begin(), here[i].meters.tested.end(), tested);
    accepted =
        std::accumulate(here[i].meters.accepted.begin(), here[i].meters.accepted.end(), accepted);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, tested);
}

TEST_P(VerifiedImageDrafts, AreThoseOfTheHost) {
  const TinyRun tiny(std::move(backend), DType::kBF16);
  const std::vector<Stream> items = first_items(tiny, 2);
  expect_same_images(tiny, items, method_of("drop", "exact", 4));
  expect_same_images(tiny, items, method_of("maximal", "lenient", 3));
}

// Trees whose distributions a draft model gives, grown level by level and by value.
TEST_P(VerifiedImageDrafts, BranchAsThoseOfTheHost) {
  const TinyRun tiny(std::move(backend), DType::kBF16);
  std::vector<Stream> items = first_items(tiny, 1);
  for (const std::string_view tree : {"rsd", "kseq", "dyspec"}) {
    expect_same_images(tiny, items, combine_tree(tree, kModelDrafter, "drop", {8, 2, 3}));
  }
}

// --- texts --------------------------------------------------------------------------------------

std::map<std::uint64_t, StreamResult> write(const StreamModel& model, const DecodeMethod& method,
                                            std::int64_t at_once, bool on_host) {
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(model.config().vocab), 64);
  aids.draft_model = true;
  OwnedParts<float, KeyedRandom> owned(method, aids);
  const StreamLimits limits = text_limits(model, 64,
                                          {.items = at_once,
                                           .prompt_rows = 80,
                                           .window = method.window,
                                           .dists = owned.parts().needs_dists()});
  ModelDrafter drafter(model, draft_limits(limits));
  LoopParts parts = owned.parts();
  parts.drafter = &drafter;
  HostsRule rule(*parts.rule);
  if (on_host) parts.rule = &rule;
  StreamLoop loop(model, limits, parts);
  Gatherer gatherer;
  std::vector<Stream> items = items_of(model, questions(model, 4));
  std::vector<Stream> again = items_of(model, questions(model, 4));
  std::size_t next = 0;
  while (next < items.size() || !loop.idle()) {
    while (next < items.size() && !loop.full()) {
      const std::uint64_t number = items[next].item;
      DraftStreamItem draft = draft_stream(again[next], limits.grammar);
      draft.dist.temperature += 0.6;
      const std::size_t slot = loop.add(std::move(items[next++]));
      gatherer.item_of_slot[slot] = number;
      drafter.set_stream(slot, std::move(draft));
    }
    loop.step(gatherer);
  }
  return std::move(gatherer.done);
}

TEST_P(VerifiedDrafts, OfTextsAreThoseOfTheHost) {
  const SmallText small = small_text_on(std::move(backend), small_text_spec(300), DType::kBF16);
  for (const DecodeMethod& method :
       {method_of("drop", "exact", 4), method_of("drop", "gumbel", 3)}) {
    const std::size_t before = bytes_down();
    const auto there = write(small.model, method, 2, false);
    const std::size_t middle = bytes_down();
    const auto here = write(small.model, method, 2, true);
    EXPECT_LE(2 * (middle - before), bytes_down() - middle);
    std::int64_t tested = 0, accepted = 0;
    ASSERT_EQ(there.size(), 4u);
    for (const auto& [number, result] : there) {
      const std::string what = method.rule + " text " + std::to_string(number);
      const StreamResult& want = here.at(number);
      EXPECT_EQ(result.tokens, want.tokens) << what;
      EXPECT_EQ(result.stopped, want.stopped) << what;
      EXPECT_EQ(result.passes, want.passes) << what;
      expect_same_meters(result.meters, want.meters, what);
      tested = std::accumulate(want.meters.tested.begin(), want.meters.tested.end(), tested);
      accepted =
          std::accumulate(want.meters.accepted.begin(), want.meters.accepted.end(), accepted);
    }
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, tested);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedImageDrafts, ::testing::ValuesIn(cuda_devices()),
                         device_name);
INSTANTIATE_TEST_SUITE_P(Devices, VerifiedDrafts, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::verified_drafts_test
