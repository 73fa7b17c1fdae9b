// Streams of a model of blocks, against a plain reference (assets/recipes/fixtures_nbp.py): logits
// of a whole sequence and of its spans one by one, greedy videos of both ways to begin; and its own
// rules on the seeded model: passes, seeds, given blocks, stops and failures, several at once.
#include "engine/decoding/block_sequence.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "engine/families/open_model.h"
#include "tests/support/block_run.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera::block_streams_test {
namespace {

using Tokens = std::vector<std::int32_t>;

const std::string kGolden = TESSERA_SOURCE_DIR "/tests/golden/nbp/";

struct Blocks {
  explicit Blocks(OpenedModel from, int threads = 2)
      : opened(std::move(from)),
        backend(make_backend("cpu", {.threads = threads})),
        model(load_block_model(opened, *backend, DType::kF32)),
        grammar(opened.spec.model.grammar()) {}

  StreamResult run(const Stream& item, std::int64_t stop_at = 0) const {
    std::int64_t passes = 0;
    return run_blocks(model, grammar, item, [&](const RunPass& event) {
      // Passes that read the prompt bring nothing.
      if (event.items[0].passes == 0) return Flow::kContinue;
      EXPECT_EQ(event.items[0].passes, ++passes);
      return passes == stop_at ? Flow::kStop : Flow::kContinue;
    });
  }

  OpenedModel opened;
  std::unique_ptr<Backend> backend;
  BlockModel model;
  VocabularyGrammar grammar;
};

OpenedModel golden_model(
    const char* config, const TensorEdit& edit = [](auto&) {}) {
  OpenedModel out;
  out.spec = parse_family_config(get_file(kGolden + config), config);
  auto tensors = copy_tensors(Checkpoint::open(kGolden + "model.safetensors"));
  edit(tensors);
  out.weights =
      std::make_shared<const Checkpoint>(Checkpoint::from_tensors("golden", std::move(tensors)));
  check_tensors(out.spec, *out.weights);
  out.source = source_of(out.weights);
  return out;
}

class BlockParity : public ::testing::Test {
 protected:
  BlockParity() : recorded_(Checkpoint::open(kGolden + "recorded.safetensors")) {}
  Tokens ints(const char* name) const { return ints_of(*recorded_.find(name)); }

  Checkpoint recorded_;
};

// Logits of the recorded rows: `parts` spans at once.
std::vector<float> logits_of(const BlockModel& model, const Tokens& ids,
                             const std::vector<std::int64_t>& spans, std::size_t parts) {
  const BlockModelConfig& config = model.config();
  const auto rows = static_cast<std::int64_t>(ids.size());
  KvCache cache(model.backend(), block_cache_shape(config, rows));
  Backend& backend = model.backend();
  Arena arena = make_arena(backend, BlockModel::scratch_bytes(config, rows));
  Tensor hidden = backend.allocate(DType::kF32, Shape{rows, config.width});
  Tensor out = backend.allocate(DType::kF32, Shape{rows, config.codes});
  std::int64_t begin = 0;
  for (std::size_t at = 0; at < spans.size(); at += parts) {
    const auto part = std::span(spans).subspan(at, std::min(parts, spans.size() - at));
    const std::int64_t count = std::accumulate(part.begin(), part.end(), std::int64_t{0});
    run_spans(
        model,
        std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        part, cache, arena,
        {DType::kF32, Shape{count, config.width}, hidden.f32() + begin * config.width,
         backend.device()});
    begin += count;
  }
  model.logits(hidden.view(), arena, out.view());
  return from_device(backend, out.view());
}

TEST_F(BlockParity, LogitsOfAWholeSequenceAndOfItsSpans) {
  const Blocks blocks(golden_model("hybrid.json"));
  const BlockModelConfig& config = blocks.model.config();
  const Tokens fed = ints("fed");
  Tokens ids;
  for (const std::int32_t id : ints("prompt")) {
    ids.push_back(id + static_cast<std::int32_t>(config.first_condition));
  }
  ids.push_back(0);
  for (std::size_t i = 0; i < fed.size(); ++i) {
    ids.push_back(fed[i] + static_cast<std::int32_t>(config.first_code));
    if (i + 1 == static_cast<std::size_t>(config.block)) ids.insert(ids.end(), {1, 2, 3});
  }
  std::vector<std::int64_t> spans;
  for (const std::int32_t span : ints("spans")) spans.push_back(span);
  const std::vector<float> want = floats_of(*recorded_.find("logits"));
  const std::vector<float> whole = logits_of(blocks.model, ids, spans, spans.size());
  EXPECT_LT(relative_difference(whole, want), 1e-5);
  for (const std::size_t parts : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
    EXPECT_EQ(logits_of(blocks.model, ids, spans, parts), whole) << parts << " spans at once";
  }
  // Rows that see one another less, or another order, are seen.
  const std::vector<std::int64_t> alone(ids.size(), 1);
  EXPECT_GT(relative_difference(logits_of(blocks.model, ids, alone, alone.size()), want), 1e-2);
  std::swap(ids[7], ids[8]);
  EXPECT_GT(relative_difference(logits_of(blocks.model, ids, spans, 1), want), 1e-2);
}

TEST_F(BlockParity, GreedyVideosOfBothBeginnings) {
  Stream item{.prompt = {ints("prompt")}, .dist = {.temperature = 0.0}};
  const Blocks hybrid(golden_model("hybrid.json"));
  const StreamResult begun = hybrid.run(item);
  EXPECT_EQ(begun.tokens, ints("hybrid"));
  EXPECT_EQ(begun.passes, 4 + 24 / 4 - 1);
  item.prompt.ids.clear();
  item.given = ints("given");
  const Blocks given(golden_model("given.json"));
  const StreamResult on = given.run(item);
  Tokens whole = on.tokens;
  EXPECT_EQ(whole, ints("going_on"));
  EXPECT_EQ(on.passes, (24 - 8) / 4);
}

// Every tensor is read: a nudge of any one moves the recorded logits.
TEST_F(BlockParity, EveryWeightCounts) {
  const Tokens ids = {0, 12, 13, 14, 15, 1, 2, 3, 20, 21, 22, 23};
  const std::vector<std::int64_t> spans = {1, 1, 1, 1, 4, 4};
  const auto whole = [&](const TensorEdit& edit) {
    return logits_of(Blocks(golden_model("hybrid.json", edit), 1).model, ids, spans, 6);
  };
  const auto truth = whole([](auto&) {});
  const Checkpoint model = Checkpoint::open(kGolden + "model.safetensors");
  for (const auto& [name, view] : model.tensors()) {
    // A shift of all keys alike leaves every softmax as it is.
    if (name.ends_with("attn.key.bias")) continue;
    const std::string changed = name;
    EXPECT_GT(relative_difference(whole([&](auto& tensors) {
                                    TensorView all = tensors.at(changed).view();
                                    auto* values = all.template as<std::uint16_t>();
                                    for (std::int64_t i = 0; i < all.shape.elements(); ++i) {
                                      const float value = f16_to_float(values[i]);
                                      values[i] = i % 3 == 0 ? std::uint16_t{0} : values[i];
                                      if (value == 0) values[i] = 0x3c00;
                                    }
                                  }),
                                  truth),
              1e-4)
        << name;
  }
}

// --- the loop's own distributions ------------------------------------------------------------------------

Stream item_of(std::uint64_t seed) {
  return {.prompt = {{70, 71, 90, 261}}, .dist = {.top_k = 40, .top_p = 0.95}, .seed = seed};
}

TEST(BlockStreams, ABlockAPassAndOneSeedOneVideo) {
  const Blocks one(open_model("test:nbp"), 1), two(open_model("test:nbp"), 2);
  const StreamResult made = one.run(item_of(4));
  EXPECT_EQ(made.status, StreamStatus::kDone);
  EXPECT_EQ(made.tokens.size(), 96u);
  EXPECT_EQ(made.passes, 6 + 96 / 6 - 1);
  EXPECT_EQ(made.meters.passes, made.passes);
  EXPECT_EQ(made.meters.tokens, 96);
  EXPECT_EQ(made.prefilled, 4 + 1);
  EXPECT_EQ(two.run(item_of(4)).tokens, made.tokens);
  EXPECT_NE(one.run(item_of(5)).tokens, made.tokens);
  Stream other = item_of(4);
  other.prompt.ids[1] = 99;
  EXPECT_NE(one.run(other).tokens, made.tokens);
  EXPECT_LT(std::abs(made.meters.z_score()), 4);
}

// Blocks that are given go on as if they had been drawn, wherever they end.
TEST(BlockStreams, GivenBlocksGoOnAsIfTheyHadBeenDrawn) {
  const Blocks blocks(open_model("test:nbp"));
  const StreamResult whole = blocks.run(item_of(9));
  for (const std::size_t count : {6u, 12u, 24u, 72u, 90u}) {
    Stream later = item_of(9);
    later.given.assign(whole.tokens.begin(),
                       whole.tokens.begin() + static_cast<std::ptrdiff_t>(count));
    const StreamResult on = blocks.run(later);
    EXPECT_EQ(on.tokens, whole.tokens) << count;
    EXPECT_EQ(on.passes, static_cast<std::int64_t>(96 - count) / 6);
    later.given[2] = (later.given[2] + 1) % 64;
    EXPECT_NE(on.tokens, blocks.run(later).tokens);
  }
}

TEST(BlockStreams, StopsAfterAPassAndTraces) {
  const Blocks blocks(open_model("test:nbp"));
  Stream item = item_of(2);
  item.traced = true;
  const StreamResult some = blocks.run(item, 8);
  EXPECT_EQ(some.status, StreamStatus::kStopped);
  EXPECT_EQ(some.tokens.size(), 6u + 2 * 6);
  EXPECT_EQ(some.trace.committed, (Tokens{1, 1, 1, 1, 1, 1, 6, 6}));
  for (std::size_t i = 0; i < some.tokens.size(); ++i) {
    EXPECT_EQ(some.trace.marks[i].id, some.tokens[i]);
    EXPECT_EQ(some.trace.marks[i].pass,
              i < 6 ? static_cast<int>(i) + 1 : 7 + (static_cast<int>(i) - 6) / 6);
  }
}

TEST(BlockStreams, BrokenLogitsFailTheVideoByTheirPlace) {
  OpenedModel opened = golden_model("hybrid.json", [](auto& tensors) {
    // A code's embedding that carries the head beyond what is sound.
    for (const char* name : {"transformer.ln_f.weight", "transformer.head.weight"}) {
      Tensor big = Tensor::host(DType::kF32, tensors.at(name).shape());
      for (std::int64_t i = 0; i < big.shape().elements(); ++i) big.f32()[i] = 1e20f;
      tensors[name] = std::move(big);
    }
  });
  const Blocks blocks(std::move(opened));
  const StreamResult failed = blocks.run({.prompt = {{1}}, .dist = {.temperature = 0.0}});
  EXPECT_EQ(failed.status, StreamStatus::kFailed);
  EXPECT_EQ(failed.error.code, "E_LOGITS");
  EXPECT_NE(failed.error.where.find("image token 0"), std::string::npos);
}

// Streams with prompts of different lengths, some with blocks that are given.
std::vector<Stream> pool_of(const Blocks& blocks, int streams) {
  std::vector<Stream> out;
  for (int number = 0; number < streams; ++number) {
    Stream item = item_of(static_cast<std::uint64_t>(number / 2));
    item.item = static_cast<std::uint64_t>(number);
    for (int i = 0; i < number % 5; ++i) item.prompt.ids.push_back(80 + 3 * i + number);
    if (number % 3 == 1) item.prompt.ids.resize(1);
    if (number % 4 == 3) {
      const Tokens whole = blocks.run(item).tokens;
      item.given.assign(whole.begin(), whole.begin() + 6 * (1 + number % 5));
      item.given[1] = (item.given[1] + 7) % 64;
    }
    out.push_back(std::move(item));
  }
  return out;
}

struct DoneBlocks final : StreamListener {
  void on_done(std::size_t slot, StreamResult&& result) override {
    done[stream_of.at(slot)] = std::move(result);
    stream_of.erase(slot);
  }
  std::map<std::size_t, std::size_t> stream_of;  // by slot
  std::map<std::size_t, StreamResult> done;      // by stream
};

// Streams arrive, are dropped and end while others go on: each writes what it writes alone.
TEST(BlockStreams, WriteInOneLoopWhatTheyWriteAlone) {
  const Blocks blocks(open_model("test:nbp"));
  const std::vector<Stream> pool = pool_of(blocks, 14);
  std::vector<StreamResult> alone;
  for (const Stream& item : pool) alone.push_back(blocks.run(item));
  std::size_t max_at_once = 0, dropped = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 chance(seed);
    const auto items = static_cast<std::int64_t>(1 + chance() % 5);
    StreamLoop loop(blocks.model,
                    block_limits(blocks.model.config(), blocks.grammar,
                                 {.items = items,
                                  .prompt_rows = 9,
                                  .budget = static_cast<std::int64_t>(1 + chance() % 64)}),
                    block_parts(blocks.model));
    DoneBlocks listener;
    std::size_t added = 0;
    while (added < pool.size() || !loop.idle()) {
      while (added < pool.size() && !loop.full() && chance() % 3 != 0) {
        const std::size_t number = added++;
        listener.stream_of[loop.add(pool[number])] = number;
      }
      max_at_once = std::max(max_at_once, listener.stream_of.size());
      loop.step(listener);
      if (chance() % 40 == 0 && !listener.stream_of.empty()) {
        const auto [slot, number] = *listener.stream_of.begin();
        const StreamResult part = loop.drop(slot);
        EXPECT_TRUE(
            std::equal(part.tokens.begin(), part.tokens.end(), alone[number].tokens.begin()));
        listener.stream_of.erase(slot);
        ++dropped;
      }
    }
    for (const auto& [number, result] : listener.done) {
      EXPECT_EQ(result.status, StreamStatus::kDone);
      EXPECT_EQ(result.tokens, alone[number].tokens) << seed << ", stream " << number;
      EXPECT_EQ(result.passes, alone[number].passes);
      EXPECT_EQ(result.prefilled, alone[number].prefilled);
      EXPECT_EQ(result.meters.surprise, alone[number].meters.surprise);
      EXPECT_EQ(result.meters.transforms, alone[number].meters.transforms);
    }
  }
  EXPECT_GE(max_at_once, 4u);
  EXPECT_GE(dropped, 3u);
}

}  // namespace
}  // namespace tessera::block_streams_test
