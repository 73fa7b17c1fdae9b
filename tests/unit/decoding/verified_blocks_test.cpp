// Videos of blocks whose tokens a device draws: they are the host's draws from the device's own
// rows, which are computed once more, all at once, and brought to the host; meters and traces as
// well. No row comes to the host while the loop runs.
#include <gtest/gtest.h>

#include "engine/families/open_model.h"
#include "engine/sampling/randomness.h"
#include "tests/support/block_run.h"
#include "tests/support/devices.h"
#include "tests/support/model_runner.h"

namespace tessera::testing::verified_blocks_test {
namespace {

using Tokens = std::vector<std::int32_t>;

class VerifiedBlocks : public OnDevice {
 protected:
  // Row p is the one that token p was drawn by.
  std::vector<float> rows_of(const BlockModel& model, const Tokens& prompt, const Tokens& tokens) {
    const BlockModelConfig& config = model.config();
    const auto block = static_cast<std::size_t>(config.block);
    Tokens ids;
    for (const std::int32_t id : prompt) {
      ids.push_back(static_cast<std::int32_t>(config.first_condition) + id);
    }
    std::vector<std::int64_t> spans = {static_cast<std::int64_t>(ids.size()), 1};
    ids.push_back(0);
    const std::size_t first = ids.size() - 1;
    for (std::size_t i = 0; i + block < tokens.size();) {
      const std::size_t count = i < block ? 1 : block;
      for (std::size_t k = 0; k < count; ++k) {
        ids.push_back(static_cast<std::int32_t>(config.first_code) + tokens[i++]);
      }
      spans.push_back(static_cast<std::int64_t>(count));
      if (i != block) continue;
      for (std::size_t k = 1; k < block; ++k) ids.push_back(static_cast<std::int32_t>(k));
      spans.back() = config.block;
    }
    const auto rows = static_cast<std::int64_t>(ids.size());
    Backend& device = model.backend();
    KvCache cache(device, block_cache_shape(config, rows));
    Arena arena = make_arena(device, BlockModel::scratch_bytes(config, rows));
    Tensor hidden = device.allocate(DType::kF32, Shape{rows, config.width});
    Tensor out = device.allocate(DType::kF32, Shape{rows, config.codes});
    run_spans(model, ids, spans, cache, arena, hidden.view());
    model.logits(hidden.view(), arena, out.view());
    const std::vector<float> all = from_device(device, out.view());
    return {all.begin() + static_cast<std::ptrdiff_t>(first) * config.codes, all.end()};
  }
};

TEST_P(VerifiedBlocks, AreTheHostsDraws) {
  const OpenedModel opened = open_model("test:nbp");
  OpenedModel to_load = open_model("test:nbp");
  const BlockModel model = load_block_model(to_load, *backend, DType::kF32);
  const VocabularyGrammar grammar = opened.spec.model.grammar();
  const Stream item{.prompt = {{70, 71, 90, 261}},
                    .dist = {.temperature = 0.9, .top_k = 40, .top_p = 0.95},
                    .seed = 4,
                    .traced = true};
  StreamLoop loop(model, block_limits(model.config(), grammar, {.prompt_rows = 4}),
                  block_parts(model));
#ifdef TESSERA_SIMULATED_DEVICE
  const std::size_t before = simt::counts().bytes_down;
#endif
  const StreamResult made = std::move(run_streams(loop, {&item, 1})[0]);
  ASSERT_EQ(made.status, StreamStatus::kDone);
#ifdef TESSERA_SIMULATED_DEVICE
  if (GetParam().name == "simt") {
    const auto block = static_cast<std::size_t>(model.config().block);
    EXPECT_LE(simt::counts().bytes_down - before,
              static_cast<std::size_t>(made.passes) * (64 * block + 16));
  }
#endif
  const std::vector<float> rows = rows_of(model, item.prompt.ids, made.tokens);
  const auto codes = static_cast<std::size_t>(model.config().codes);
  ASSERT_EQ(rows.size(), made.tokens.size() * codes);
  DistributionPipeline<float> dist(item.dist, grammar);
  KeyedRandom random(item.seed, item.item);
  DecodeMeters meters;
  meters.start(made.tokens.size(), static_cast<std::size_t>(model.config().block));
  for (std::size_t p = 0; p < made.tokens.size(); ++p) {
    const auto place = static_cast<std::uint32_t>(p);
    dist.process_at(p, std::span(rows).subspan(p * codes, codes), {});
    const TargetRow<float> row{{dist.support(), dist.support_logits()}, dist.probabilities()};
    const std::int32_t token = random.race(place, row.logits);
    ASSERT_EQ(made.tokens[p], token) << p;
    random.begin_pass(static_cast<std::uint32_t>(made.trace.marks[p].pass));
    const TokenFigures figures =
        meters.count_token(row, token, random.uniform({Purpose::kMeter, place}));
    EXPECT_EQ(made.trace.marks[p].probability, static_cast<float>(figures.probability)) << p;
    EXPECT_EQ(made.trace.marks[p].entropy, static_cast<float>(figures.entropy)) << p;
  }
  EXPECT_EQ(made.meters.transforms, meters.transforms);
  EXPECT_EQ(made.meters.surprise, meters.surprise);
  EXPECT_EQ(made.meters.variance, meters.variance);
}

// Weights that carry the head beyond what is sound.
TEST_P(VerifiedBlocks, FailByTheirPlace) {
  OpenedModel opened = open_model("test:nbp");
  std::map<std::string, Tensor> tensors = copy_tensors(*opened.weights);
  for (const char* name : {"transformer.ln_f.weight", "transformer.head.weight"}) {
    Tensor big = Tensor::host(DType::kF32, tensors.at(name).shape());
    for (std::int64_t i = 0; i < big.shape().elements(); ++i) big.f32()[i] = 1e20f;
    tensors[name] = std::move(big);
  }
  opened.weights =
      std::make_shared<const Checkpoint>(Checkpoint::from_tensors("broken", std::move(tensors)));
  opened.source = source_of(opened.weights);
  const BlockModel model = load_block_model(opened, *backend, DType::kF32);
  const StreamResult failed = run_blocks(model, opened.spec.model.grammar(),
                                         {.prompt = {{70}}, .dist = {.temperature = 0.0}},
                                         [](const RunPass&) { return Flow::kContinue; });
  EXPECT_EQ(failed.status, StreamStatus::kFailed);
  EXPECT_NE(failed.error.where.find("image token 0, code 0"), std::string::npos)
      << failed.error.where;
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifiedBlocks, ::testing::ValuesIn(cuda_devices()), device_name);

}  // namespace
}  // namespace tessera::testing::verified_blocks_test
