// The stream loop on the seeded tiny model: tokens depend on the item alone; drafts change passes,
// never tokens; stopping and broken logits are values.
#include "engine/decoding/stream_loop.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "engine/core/philox.h"
#include "engine/sampling/sampler.h"
#include "tests/support/stream_run.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::stream_loop_test {
namespace {

// Plain decoding in long-hand: one sequence pair, one token a pass, a fresh cache, no StreamLoop.
Tokens decode_by_hand(const TinyRun& tiny, const Stream& item) {
  const StreamModel& model = tiny.model;
  const ModelConfig& lm = model.config().transformer;
  const std::int64_t width = model.width(), codes = model.config().codes;
  KvCache cache(*tiny.backend, {.layers = lm.layers,
                                .kv_heads = lm.kv_heads,
                                .head_dim = lm.head_dim,
                                .capacity = 256,
                                .sequences = 2});
  Arena arena(model.scratch_bytes(64));
  Tensor logits[2] = {Tensor::host(DType::kF32, Shape{1, codes}),
                      Tensor::host(DType::kF32, Shape{1, codes})};
  const auto feed = [&](int branch, const Tensor& rows) {
    const std::int64_t count = rows.shape()[0];
    std::vector<std::int32_t> sequences(static_cast<std::size_t>(count), branch);
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < count; ++i) positions.push_back(cache.length(branch) + i);
    Tensor hidden = Tensor::host(DType::kF32, Shape{count, width});
    arena.reset();
    model.transformer().forward({rows.view(), sequences, positions}, cache, arena, hidden.view());
    const TensorView last{DType::kF32, Shape{1, width}, hidden.f32() + (count - 1) * width, {}};
    model.logits(last, arena, logits[branch].view());
  };
  for (int branch = 0; branch < 2; ++branch) {
    const Tokens& prompt = item.branch(branch).ids;
    Tensor rows = Tensor::host(DType::kF32, Shape{static_cast<std::int64_t>(prompt.size()), width});
    model.embed_prompt(prompt, rows.view());
    feed(branch, rows);
  }
  Tokens tokens;
  DistributionPipeline<float> dist(item.dist, codes);
  const auto size = static_cast<std::size_t>(codes);
  const std::int64_t per_row = model.config().grid_cols + 1, rows = model.config().grid_rows;
  for (std::int64_t position = 0;; ++position) {
    dist.process({logits[0].f32(), size}, {logits[1].f32(), size});
    GumbelNoise noise(item.seed, item.item, static_cast<std::uint32_t>(position));
    tokens.push_back(gumbel_argmax(dist.support(), dist.support_logits(), noise, 1e300));
    if (model.config().row_end && position % per_row == per_row - 1) {
      tokens.back() = static_cast<std::int32_t>(codes);
    }
    if (model.config().image_end && position == per_row * rows) {
      tokens.back() = static_cast<std::int32_t>(codes + 1);
    }
    if (position + 1 == model.image_token_count()) return tokens;
    Tensor row = Tensor::host(DType::kF32, Shape{1, width});
    arena.reset();
    model.embed_tokens({&tokens.back(), 1}, arena, row.view());
    feed(0, row);
    feed(1, row);
  }
}

class StreamLoopOn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, StreamLoopOn, ::testing::Values("test:tiny", "test:rows"));

TEST_P(StreamLoopOn, EqualsDecodingByHand) {
  const TinyRun tiny(2, GetParam());
  for (int number = 0; number < 4; ++number) {
    const Stream item = tiny.item(number);
    const StreamResult result = tiny.run({item})[0];
    EXPECT_EQ(result.status, StreamStatus::kDone);
    EXPECT_EQ(result.tokens, decode_by_hand(tiny, item)) << number;
    EXPECT_EQ(result.passes, tiny.model.image_token_count());
    EXPECT_GT(std::set<std::int32_t>(result.tokens.begin(), result.tokens.end()).size(), 5u)
        << "an image of one code would prove nothing";
  }
}

TEST(StreamLoop, BatchOrderAndThreadsChangeNothing) {
  std::vector<Tokens> alone;
  {
    const TinyRun tiny(1);
    for (int number = 0; number < 5; ++number) {
      alone.push_back(tiny.run({tiny.item(number)})[0].tokens);
    }
  }
  for (const int threads : {1, 2, 3, 7}) {
    const TinyRun tiny(threads);
    std::vector<Stream> forward, backward;
    for (int number = 0; number < 5; ++number) {
      forward.push_back(tiny.item(number));
      backward.push_back(tiny.item(4 - number));
    }
    const auto ahead = tiny.run(forward), back = tiny.run(backward);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(ahead[i].tokens, alone[i]) << threads << " threads, item " << i;
      EXPECT_EQ(back[4 - i].tokens, alone[i]) << threads << " threads, item " << i;
    }
  }
}

TEST(StreamLoop, SeedItemAndSettingsMatter) {
  const TinyRun tiny;
  const Tokens base = tiny.run({tiny.item(0)})[0].tokens;
  Stream other_seed = tiny.item(0), other_item = tiny.item(0), hotter = tiny.item(0);
  other_seed.seed += 1;
  other_item.item += 1;
  hotter.dist.temperature = 2;
  for (const Stream& item : {other_seed, other_item, hotter}) {
    EXPECT_NE(tiny.run({item})[0].tokens, base);
  }
}

TEST(StreamLoop, UnguidedItemsRunNextToGuidedOnes) {
  const TinyRun tiny;
  Stream free = tiny.item(2);
  free.dist.guidance = 1;
  free.unconditional.ids.clear();
  StreamLoop narrow(tiny.model,
                    image_limits(tiny.model, {.items = 1, .prompt_rows = 8, .guided = false}),
                    equality_parts());
  const auto go_on = [](const RunPass&) { return Flow::kContinue; };
  const Tokens alone = run_streams(narrow, {&free, 1}, go_on)[0].tokens;
  const auto mixed = tiny.run({tiny.item(0), free, tiny.item(1)});
  EXPECT_EQ(mixed[1].tokens, alone);
  EXPECT_EQ(mixed[0].tokens, tiny.run({tiny.item(0)})[0].tokens);
}

TEST(StreamLoop, OneLoopServesManyRuns) {
  const TinyRun tiny;
  StreamLoop loop(tiny.model, image_limits(tiny.model, {.items = 2, .prompt_rows = 8}),
                  equality_parts());
  const auto go_on = [](const RunPass&) { return Flow::kContinue; };
  for (const int number : {0, 3, 1, 0}) {
    const Stream item = tiny.item(number);
    EXPECT_EQ(run_streams(loop, {&item, 1}, go_on)[0].tokens, tiny.run({item})[0].tokens);
  }
}

// Drafts the true tokens, wrong at every `period`-th position.
class Oracle : public SlotDrafter<float, KeyedRandom> {
 public:
  Oracle(std::vector<Tokens> truth, std::size_t period)
      : truth_(std::move(truth)), period_(period) {}
  std::string_view name() const override { return "oracle"; }

 private:
  bool fill(DraftJob<float, KeyedRandom>& job) override {
    const std::size_t position = job.next_position();
    EXPECT_LT(position, truth_[job.item].size()) << "asked beyond the image";
    const std::int32_t right = truth_[job.item][position];
    job.window->append_point(period_ > 0 && position % period_ == 0 ? (right + 1) % 64 : right);
    return true;
  }

  std::vector<Tokens> truth_;
  std::size_t period_;
};

TEST(StreamLoop, DraftsChangePassesNeverTokens) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(1), tiny.item(2)};
  std::vector<Tokens> truth;
  for (const StreamResult& result : tiny.run(items)) truth.push_back(result.tokens);
  for (const std::int64_t window : {2, 3, 8, 64}) {
    for (const std::size_t period : {0u, 1u, 2u, 5u, 9u}) {
      Oracle oracle(truth, period);
      const auto results = tiny.run(items, &oracle, window);
      for (std::size_t i = 0; i < items.size(); ++i) {
        EXPECT_EQ(results[i].tokens, truth[i]) << "window " << window << " period " << period;
        EXPECT_EQ(results[i].status, StreamStatus::kDone);
        const auto total = static_cast<std::int64_t>(truth[i].size());
        std::int64_t right = 0;
        for (const std::int64_t count : results[i].meters.accepted) right += count;
        EXPECT_EQ(results[i].passes + right, total);
        if (period == 0) {
          EXPECT_EQ(results[i].passes, 1 + (total - 1 + window - 1) / window);
        } else if (period == 1) {
          EXPECT_EQ(results[i].passes, total);
        }
      }
    }
  }
}

TEST(StreamLoop, StoppingKeepsThePrefix) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(1)};
  const auto whole = tiny.run(items);
  for (const std::int64_t at : {1, 2, 17}) {
    StreamLoop loop(tiny.model, image_limits(tiny.model, {.items = 2, .prompt_rows = 8}),
                    equality_parts());
    std::int64_t calls = 0;
    const auto results = run_streams(loop, items, [&](const RunPass& event) {
      ++calls;
      EXPECT_EQ(event.pass, calls);
      EXPECT_EQ(event.items[1].tokens.size(), static_cast<std::size_t>(calls));
      return event.pass == at ? Flow::kStop : Flow::kContinue;
    });
    EXPECT_EQ(calls, at);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(results[i].status, StreamStatus::kStopped);
      EXPECT_EQ(results[i].tokens, Tokens(whole[i].tokens.begin(), whole[i].tokens.begin() + at));
    }
  }
}

// Weights under which attention overflows for whoever sees prompt token 77: channel 5 is zero in
// every embedding but that one's, and layer 0 reads it through two matrices of 1e30.
OpenedModel open_overflowing_model() {
  OpenedModel opened = open_model("test:tiny");
  const WeightNames& names = opened.spec.names;
  std::string layer = names.layer_prefix;
  layer.replace(layer.find("{}"), 2, "0");
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, view] : opened.weights->tensors()) {
    Tensor copy = Tensor::host(view.dtype, view.shape);
    std::memcpy(copy.view().data, view.data, view.bytes());
    float* at = copy.f32();
    const std::int64_t rows = view.shape[0];
    const std::int64_t cols = view.shape.rank() > 1 ? view.shape[1] : 1;
    if (name == names.prompt_table) {
      for (std::int64_t row = 0; row < rows; ++row) at[row * cols + 5] = row == 77 ? 1.0f : 0.0f;
    } else if (name == names.align_out + ".weight") {
      for (std::int64_t col = 0; col < cols; ++col) at[5 * cols + col] = 0;
    } else if (name == names.align_out + ".bias") {
      at[5] = 0;
    } else if (name == layer + names.qkv[2]) {
      std::fill_n(at, rows * cols, 0.0f);
      at[5] = 1e30f;
    } else if (name == layer + names.out) {
      for (std::int64_t row = 0; row < rows; ++row) at[row * cols] = 1e30f;
    }
    tensors.emplace(name, std::move(copy));
  }
  opened.weights = std::make_shared<const Checkpoint>(
      Checkpoint::from_tensors("overflowing", std::move(tensors)));
  opened.source = source_of(opened.weights);
  return opened;
}

TEST(StreamLoop, BrokenLogitsFailOneItem) {
  OpenedModel opened = open_overflowing_model();
  const auto backend = make_backend("cpu", {.threads = 2});
  const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
  const TinyRun tiny;
  std::vector<Stream> items = {tiny.item(0), tiny.item(1), tiny.item(2)};
  const auto go_on = [](const RunPass&) { return Flow::kContinue; };
  StreamLoop loop(model, image_limits(model, {.items = 3, .prompt_rows = 8}), equality_parts());
  const auto healthy = run_streams(loop, items, go_on);
  EXPECT_EQ(healthy[1].status, StreamStatus::kDone);
  items[1].prompt.ids[1] = 77;
  const auto results = run_streams(loop, items);
  EXPECT_EQ(results[1].status, StreamStatus::kFailed);
  EXPECT_EQ(results[1].error.code, "E_LOGITS");
  EXPECT_NE(results[1].error.where.find("image token 0"), std::string::npos);
  EXPECT_NE(results[1].error.where.find("layer 0"), std::string::npos) << results[1].error.where;
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_EQ(results[i].status, StreamStatus::kDone);
    EXPECT_EQ(results[i].tokens, healthy[i].tokens);
  }
}

TEST(StreamLoop, GreedyIgnoresTheSeed) {
  const TinyRun tiny;
  Stream one = tiny.item(0), two = tiny.item(0);
  one.dist.temperature = two.dist.temperature = 0;
  two.seed = 999;
  EXPECT_EQ(tiny.run({one})[0].tokens, tiny.run({two})[0].tokens);
}

// Refuses new streams while `broken`.
class RefusingDrafter final : public LoopDrafter {
 public:
  std::string_view name() const override { return "refusing"; }
  DraftSignals needs() const override { return {}; }
  void renew(std::size_t) override {
    if (broken) throw Error({.kind = ErrorKind::kMemory, .code = "E_MEMORY", .where = "slot"});
  }
  void extend(std::span<DraftJob<float, KeyedRandom>>) override {}

  bool broken = false;
};

// A listener that keeps what is done.
struct Kept final : StreamListener {
  void on_done(std::size_t slot, StreamResult&& result) override { done[slot] = std::move(result); }
  std::map<std::size_t, StreamResult> done;
};

TEST(StreamLoop, AnErrorWhileAStreamIsAddedLeavesItsSlotFree) {
  const TinyRun tiny;
  RefusingDrafter drafter;
  StreamLoop loop(tiny.model, image_limits(tiny.model, {.items = 2, .prompt_rows = 8}),
                  equality_parts(&drafter));
  ASSERT_EQ(loop.add(tiny.item(0)), 0u);
  drafter.broken = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(loop.add(tiny.item(1)), Error);
    EXPECT_FALSE(loop.taken(1));
    EXPECT_FALSE(loop.full());
  }
  Kept kept;
  for (int i = 0; i < 4; ++i) loop.step(kept);
  drafter.broken = false;
  ASSERT_EQ(loop.add(tiny.item(2)), 1u);
  while (!loop.idle()) loop.step(kept);
  EXPECT_EQ(kept.done.at(0).tokens, tiny.run({tiny.item(0)})[0].tokens);
  EXPECT_EQ(kept.done.at(1).tokens, tiny.run({tiny.item(2)})[0].tokens);
}

TEST(StreamLoop, AnErrorWhileAStreamSlidesLeavesItsSlotFree) {
  const TinyRun tiny;
  RefusingDrafter drafter;
  StreamLoop loop(tiny.model,
                  image_limits(tiny.model, {.items = 1, .prompt_rows = 8, .given_tokens = 64}),
                  equality_parts(&drafter));
  Stream first = tiny.item(0);
  first.held = true;
  ASSERT_EQ(loop.add(first), 0u);
  Kept kept;
  while (!loop.idle()) loop.step(kept);
  ASSERT_TRUE(loop.taken(0));
  const Tokens whole = kept.done.at(0).tokens;
  Stream next = tiny.item(0);
  next.given.assign(whole.begin() + 20, whole.begin() + 30);
  drafter.broken = true;
  EXPECT_THROW(loop.slide(0, 20, 30, next), Error);
  EXPECT_FALSE(loop.taken(0));
  EXPECT_TRUE(loop.idle());
  drafter.broken = false;
  ASSERT_EQ(loop.add(tiny.item(1)), 0u);
  while (!loop.idle()) loop.step(kept);
  EXPECT_EQ(kept.done.at(0).tokens, tiny.run({tiny.item(1)})[0].tokens);
}

}  // namespace
}  // namespace tessera::stream_loop_test
