// The stream loop where its device verifies, against the same loop on the same device with the rows
// brought to the host: the same tokens, passes, meters, traces and failures, to the bit.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/tree_decoding.h"
#include "tests/unit/decoding/hosts_rule.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::testing::verified_loop_test {
namespace {

std::vector<StreamResult> run_on(const StreamModel& model, const std::vector<Stream>& items,
                                 const DecodeMethod& method, bool on_host) {
  const OwnedParts<float, KeyedRandom> owned(method, aids_for(model.config().grammar()));
  LoopParts parts = owned.parts();
  HostsRule rule(*parts.rule);
  if (on_host) parts.rule = &rule;
  std::optional<HostsSiblings> siblings;
  if (on_host && parts.tree.rule != nullptr) parts.tree.rule = &siblings.emplace(*parts.tree.rule);
  StreamLoop loop(model,
                  image_limits(model, {.items = static_cast<std::int64_t>(items.size()),
                                       .prompt_rows = 8,
                                       .window = method.window,
                                       .dists = keeps_dists(method),
                                       .shape = parts.shape()}),
                  parts);
  return run_streams(loop, items);
}

void expect_same(const StreamResult& a, const StreamResult& b, const std::string& what) {
  EXPECT_EQ(a.status, b.status) << what;
  EXPECT_EQ(a.tokens, b.tokens) << what;
  EXPECT_EQ(a.passes, b.passes) << what;
  EXPECT_EQ(a.meters.tested, b.meters.tested) << what;
  EXPECT_EQ(a.meters.accepted, b.meters.accepted) << what;
  EXPECT_EQ(a.meters.transforms, b.meters.transforms) << what;
  EXPECT_EQ(a.meters.strict_chance, b.meters.strict_chance) << what;
  EXPECT_EQ(a.meters.surprise, b.meters.surprise) << what;
  EXPECT_EQ(a.meters.variance, b.meters.variance) << what;
  EXPECT_EQ(a.trace.committed, b.trace.committed) << what;
  EXPECT_EQ(a.error.code, b.error.code) << what;
  EXPECT_EQ(a.error.where, b.error.where) << what;
  EXPECT_EQ(a.error.found, b.error.found) << what;
}

class VerifiedLoop : public OnDevice {};

TEST_P(VerifiedLoop, GeneratesTheImagesOfTheHost) {
  const TinyRun tiny(std::move(backend), DType::kBF16);
  std::vector<Stream> items = first_items(tiny, 2);
  items[1].traced = true;
  for (const DecodeMethod& method :
       {combine("uniform", "maximal", "exact", 12), combine("above", "resample", "grouped", 5),
        combine("neighbour-law", "drop", "exact", 6)}) {
    const auto here = run_on(tiny.model, items, method, true);
    const auto there = run_on(tiny.model, items, method, false);
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(here[i].status, StreamStatus::kDone);
      EXPECT_GT(here[i].meters.acceptance(), 0) << method.drafter;
      expect_same(there[i], here[i], method.drafter + " item " + std::to_string(i));
    }
  }
}

TEST_P(VerifiedLoop, GeneratesTreesAsTheHostDoes) {
  const TinyRun tiny(std::move(backend), DType::kBF16);
  std::vector<Stream> items = first_items(tiny, 1);
  items[0].traced = true;
#ifdef TESSERA_SIMULATED_DEVICE
  const std::size_t row = 2 * sizeof(float) * static_cast<std::size_t>(tiny.model.config().codes);
#endif
  for (const DecodeMethod& method : {combine_tree("gumbel", "uniform", "gumbel", {16, 2, 3}),
                                     combine_tree("rsd", "above", "maximal", {8, 3, 2})}) {
#ifdef TESSERA_SIMULATED_DEVICE
    const std::size_t before = simt::counts().bytes_down;
#endif
    const auto there = run_on(tiny.model, items, method, false);
#ifdef TESSERA_SIMULATED_DEVICE
    if (GetParam().name == "simt") {
      const auto rows = static_cast<std::size_t>(there[0].passes * method.window);
      EXPECT_LT(simt::counts().bytes_down - before, rows * row);
    }
#endif
    const auto here = run_on(tiny.model, items, method, true);
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(here[i].status, StreamStatus::kDone);
      EXPECT_GT(here[i].meters.acceptance(), 0) << method.tree;
      expect_same(there[i], here[i], method.tree + " item " + std::to_string(i));
    }
  }
}

// With a lead of whole rows that is plain decoding; with less it takes fewer passes.
TEST_P(VerifiedLoop, GeneratesRowsSideBySide) {
  const TinyRun tiny(std::move(backend), DType::kBF16);
  const std::vector<Stream> items = first_items(tiny, 2);
  const auto plain = run_on(tiny.model, items, combine("none", "drop", "exact", 1), false);
  const VocabularyGrammar grammar = tiny.model.config().grammar();
  DecodeMethod method = combine("none", "drop", "exact", 1);
  method.window = static_cast<std::int64_t>(RowSequence<float, KeyedRandom>::max_rows(grammar));
  method.set(setting::kRowLead, static_cast<double>(grammar.stride()));
#ifdef TESSERA_SIMULATED_DEVICE
  const std::size_t before = simt::counts().bytes_down;
#endif
  const auto whole = run_on(tiny.model, items, method, false);
  method.set(setting::kRowLead, 2);
  const auto next_to = run_on(tiny.model, items, method, false);
#ifdef TESSERA_SIMULATED_DEVICE
  if (GetParam().name == "simt") {
    const auto passes = static_cast<std::size_t>(whole[0].passes + next_to[0].passes);
    const std::size_t most = (static_cast<std::size_t>(2 * method.window) + 1) * sizeof(RowRecord);
    EXPECT_LE(simt::counts().bytes_down - before, passes * most);
  }
#endif
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(whole[i].tokens, plain[i].tokens);
    EXPECT_EQ(next_to[i].status, StreamStatus::kDone);
    EXPECT_LT(next_to[i].passes, plain[i].passes);
  }
}

// One code has a logit beyond reason from the first pass on.
OpenedModel open_broken_model() {
  OpenedModel opened = open_model("test:tiny");
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, view] : opened.weights->tensors()) {
    Tensor copy = Tensor::host(view.dtype, view.shape);
    std::memcpy(copy.view().data, view.data, view.bytes());
    if (name == opened.spec.names.head_out + ".bias") {
      copy.f32()[3] = 1e38f;
    }
    tensors.emplace(name, std::move(copy));
  }
  opened.weights =
      std::make_shared<const Checkpoint>(Checkpoint::from_tensors("broken", std::move(tensors)));
  opened.source = source_of(opened.weights);
  return opened;
}

TEST_P(VerifiedLoop, FailsAsTheHostDoes) {
  OpenedModel opened = open_broken_model();
  const StreamModel model = load_stream_model(opened, *backend, DType::kBF16);
  Stream item;
  item.prompt.ids = {20, 30, 40};
  item.unconditional.ids = unconditional_prompt(model.config(), item.prompt.ids, 2);
  item.dist.guidance = 3;
  const DecodeMethod method = combine("uniform", "maximal", "exact", 4);
  const auto here = run_on(model, {item}, method, true);
  const auto there = run_on(model, {item}, method, false);
  EXPECT_EQ(there[0].status, StreamStatus::kFailed);
  EXPECT_NE(there[0].error.where.find("image token 0, code 3"), std::string::npos)
      << there[0].error.where;
  expect_same(there[0], here[0], "broken");
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedLoop, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::verified_loop_test
