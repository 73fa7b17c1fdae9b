// The loop that writes blocks, against a plain reference (assets/recipes/fixtures_nbp.py): logits
// of a whole sequence and of its spans one by one, greedy clips of both ways to begin; and its own
// laws on the seeded model: passes, seeds, given blocks, stops and failures.
#include "engine/decoding/block_loop.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/families/open_model.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera {
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
    BlockLoop loop(model, grammar, {.prompt_tokens = item.prompt.length()});
    return loop.run(item, [&](const BlockPass& event) {
      EXPECT_EQ(event.result.passes, event.pass);
      return event.pass == stop_at ? Flow::kStop : Flow::kContinue;
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

class BlockParity : public testing::Test {
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
  KvCache cache(model.backend(), model.cache_shape(rows, DType::kF32));
  Backend& backend = model.backend();
  Arena arena = make_arena(backend, BlockModel::scratch_bytes(config, rows));
  Tensor hidden = backend.allocate(DType::kF32, Shape{rows, config.width});
  Tensor out = backend.allocate(DType::kF32, Shape{rows, config.codes});
  std::int64_t begin = 0;
  for (std::size_t at = 0; at < spans.size(); at += parts) {
    const auto part = std::span(spans).subspan(at, std::min(parts, spans.size() - at));
    const std::int64_t count = std::accumulate(part.begin(), part.end(), std::int64_t{0});
    model.forward(
        std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        part, cache, arena,
        {DType::kF32, Shape{count, config.width}, hidden.f32() + begin * config.width,
         backend.device()});
    begin += count;
  }
  model.logits(hidden.view(), out.view());
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

TEST_F(BlockParity, GreedyClipsOfBothBeginnings) {
  Stream item{.prompt = {ints("prompt")}, .law = {.temperature = 0.0}};
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

// --- the loop's own laws ------------------------------------------------------------------------

Stream item_of(std::uint64_t seed) {
  return {.prompt = {{70, 71, 90, 261}}, .law = {.top_k = 40, .top_p = 0.95}, .seed = seed};
}

TEST(BlockLoop, ABlockAPassAndOneSeedOneClip) {
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
TEST(BlockLoop, GivenBlocksGoOnAsIfTheyHadBeenDrawn) {
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

TEST(BlockLoop, StopsBehindAPassAndTraces) {
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

TEST(BlockLoop, BrokenLogitsFailTheClipByTheirPlace) {
  OpenedModel opened = golden_model("hybrid.json", [](auto& tensors) {
    // A code's embedding that carries the head beyond what is sound.
    for (const char* name : {"transformer.ln_f.weight", "transformer.head.weight"}) {
      Tensor big = Tensor::host(DType::kF32, tensors.at(name).shape());
      for (std::int64_t i = 0; i < big.shape().elements(); ++i) big.f32()[i] = 1e20f;
      tensors[name] = std::move(big);
    }
  });
  const Blocks blocks(std::move(opened));
  const StreamResult failed = blocks.run({.prompt = {{1}}, .law = {.temperature = 0.0}});
  EXPECT_EQ(failed.status, StreamStatus::kFailed);
  EXPECT_EQ(failed.error.code, "E_LOGITS");
  EXPECT_NE(failed.error.where.find("image token 0"), std::string::npos);
}

}  // namespace
}  // namespace tessera
