// FlowCut: the published schedule, scores against plain loops, the language-model stage, whole
// cells.
#include "vision/pruning/flowcut.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/pruning_chain.h"

namespace tessera::flowcut_test {
namespace {

std::vector<std::int64_t> schedule(std::int64_t target, double entropy) {
  std::vector<std::int64_t> out;
  std::int64_t count = 576;
  for (int layer = 0; layer < 22; ++layer) {
    count -= flowcut_step(count, target, 21 - layer, entropy);
    if (layer % 2 == 1) out.push_back(count);
  }
  return out;
}

TEST(FlowCut, GoldenSchedules) {
  EXPECT_EQ(schedule(64, 1.0),
            (std::vector<std::int64_t>{576, 576, 576, 576, 576, 576, 576, 576, 576, 576, 64}));
  EXPECT_EQ(schedule(64, 0.9),
            (std::vector<std::int64_t>{554, 532, 510, 487, 464, 440, 415, 388, 357, 318, 64}));
  EXPECT_EQ(schedule(64, 0.95),
            (std::vector<std::int64_t>{565, 553, 541, 529, 516, 502, 487, 470, 450, 423, 64}));
  EXPECT_EQ(schedule(64, 0.8)[9], 191);
  EXPECT_EQ(flowcut_step(576, 64, 20, 0), 114) << "one-hot attention: (N - K) / sqrt(20)";
  EXPECT_EQ(flowcut_step(576, 64, 19, 0), 0) << "every second layer";
  EXPECT_EQ(flowcut_step(64, 64, 0, 0), 0);
}

// One layer of one tile, by the formula, in double.
std::vector<double> plain_scores(const std::vector<float>& attention, const std::vector<float>& v,
                                 const std::vector<float>& own, std::size_t heads,
                                 std::size_t dim) {
  const std::size_t n = attention.size(), wide = heads * dim;
  std::vector<double> s(n), out(n);
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<double> e(n);
    double sum = 0;
    for (std::size_t c = 0; c < dim; ++c)
      sum += static_cast<double>(own[h * dim + c]) * own[h * dim + c];
    sum = std::exp(sum);
    for (std::size_t i = 0; i < n; ++i) {
      double product = 0;
      for (std::size_t c = 0; c < dim; ++c)
        product += static_cast<double>(own[h * dim + c]) * v[i * wide + h * dim + c];
      sum += e[i] = std::exp(product);
    }
    for (std::size_t i = 0; i < n; ++i) s[i] += e[i] / sum / static_cast<double>(heads);
  }
  double sum_a = 0, sum_s = 0;
  for (std::size_t i = 0; i < n; ++i) sum_a += attention[i], sum_s += s[i];
  for (std::size_t i = 0; i < n; ++i) {
    double norm = 0;
    for (std::size_t c = 0; c < dim; ++c) {
      double mean = 0;
      for (std::size_t h = 0; h < heads; ++h)
        mean += v[i * wide + h * dim + c] / static_cast<double>(heads);
      norm += std::abs(mean);
    }
    out[i] = (attention[i] / sum_a + s[i] / sum_s) * norm;
  }
  return out;
}

struct Layer {
  std::vector<float> attention, values, own;
};

Layer made_up(std::uint64_t seed) {
  Layer layer{noise_list(seed, 12), noise_list(seed + 100, 12 * 8), noise_list(seed + 200, 8)};
  for (float& value : layer.attention) value = std::abs(value);
  return layer;
}

SignalStore store_of(const Layer& layer, int at) {
  SignalStore store;
  store.add(SignalKind::kClsRow, at, 12, layer.attention);
  store.add(SignalKind::kEncoderValues, at, 8, layer.values, 2);
  store.add(SignalKind::kClsValue, at, 8, layer.own, 2);
  return store;
}

// A model whose last pruning layer is 1: one score that only counts, then one that prunes.
TEST(FlowCut, ScoresAreAccumulatedOverLayers) {
  const VisualBlock block = grid_block(3, 4);
  const PrunedModel model{.feature_layer = 2};
  int differs = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Layer first = made_up(seed), second = made_up(seed + 1000);
    const FlowCut pruner({});
    PruneState state;
    const PrunePlan wait = select_once(pruner, block, store_of(first, 0), keep_tokens(4), model,
                                       {HookPoint::kInEncoder, 0}, state);
    EXPECT_EQ(wait.kept.size(), 12u);
    const PrunePlan plan = select_once(pruner, block, store_of(second, 1), keep_tokens(4), model,
                                       {HookPoint::kInEncoder, 1}, state);
    const auto a = plain_scores(first.attention, first.values, first.own, 2, 4);
    const auto b = plain_scores(second.attention, second.values, second.own, 2, 4);
    std::vector<float> both, last;
    for (std::size_t i = 0; i < 12; ++i) {
      both.push_back(static_cast<float>(0.5 * a[i] + 0.5 * b[i]));
      last.push_back(static_cast<float>(b[i]));
    }
    PruneScratch scratch;
    const auto want = top_places(both, 4, scratch);
    EXPECT_EQ(plan.kept, std::vector<TokenIndex>(want.begin(), want.end())) << seed;
    const auto single = top_places(last, 4, scratch);
    if (plan.kept != std::vector<TokenIndex>(single.begin(), single.end())) ++differs;
    EXPECT_EQ(state.values.size(), 4u);
  }
  EXPECT_GT(differs, 5) << "injected fault: the last layer's score alone is another answer";
}

TEST(FlowCut, WithoutClsTheSubstituteAndNoValueTerm) {
  const VisualBlock block = grid_block(3, 4);
  const PrunedModel model{.cls = false, .substitute = RowSource::kMeanQuery, .feature_layer = 1};
  const Layer layer = made_up(3);
  SignalStore store;
  store.add(SignalKind::kClsRow, 0, 12, layer.attention, 1, RowSource::kMeanQuery);
  store.add(SignalKind::kEncoderValues, 0, 8, layer.values, 2);
  PruneState state;
  const PrunePlan plan = select_once(FlowCut({}), block, store, keep_tokens(5), model,
                                     {HookPoint::kInEncoder, 0}, state);
  EXPECT_EQ(plan.source, RowSource::kMeanQuery);
  std::vector<float> scores;
  for (std::size_t i = 0; i < 12; ++i) {
    float norm = 0;
    for (std::size_t c = 0; c < 4; ++c) {
      norm += std::abs(layer.values[i * 8 + c] + layer.values[i * 8 + 4 + c]) / 2;
    }
    scores.push_back(layer.attention[i] * norm);
  }
  PruneScratch scratch;
  const auto want = top_places(scores, 5, scratch);
  EXPECT_EQ(plan.kept, std::vector<TokenIndex>(want.begin(), want.end()));
}

TEST(FlowCut, UniformAttentionWaitsForTheLastLayer) {
  const VisualBlock block = grid_block(4, 4);
  PruneScratch scratch;
  const SignalSource flat = [](SignalKind kind, int, std::uint32_t token, std::uint32_t index) {
    return kind == SignalKind::kClsRow ? 0.0625f : noise(1, token, index);
  };
  const ChainResult out = run_chain(FlowCut({}), block, {}, keep_tokens(5), flat, scratch);
  for (int layer = 0; layer < 21; ++layer)
    EXPECT_EQ(out.plans[static_cast<std::size_t>(layer)].kept.size(), 16u);
  EXPECT_EQ(out.survivors.size(), 5u);
  const SignalSource one_hot = [](SignalKind kind, int, std::uint32_t token, std::uint32_t index) {
    return kind == SignalKind::kClsRow ? (token == 7 ? 1.0f : 0.0f) : noise(1, token, index);
  };
  const ChainResult hot = run_chain(FlowCut({}), block, {}, keep_tokens(5), one_hot, scratch);
  EXPECT_EQ(hot.plans[1].kept.size(), 14u) << "16 - round(11 / sqrt(20))";
  EXPECT_EQ(hot.survivors.size(), 5u);
  EXPECT_EQ(std::count(hot.survivors.begin(), hot.survivors.end(), 7u), 1);
}

TEST(FlowCut, ImagesOfTilesKeepHalfTheBudgetInEachTile) {
  const VisualBlock block = tiles_block(5, 24, 24);
  for (const std::int64_t budget : {640, 320, 160}) {
    PruneScratch scratch;
    const ChainResult out =
        run_chain(FlowCut({}), block, {.tiles = 5}, keep_tokens(budget), noise_source(3), scratch);
    ASSERT_EQ(out.plans.size(), 23u);
    EXPECT_EQ(static_cast<std::int64_t>(out.plans[21].kept.size()), 5 * budget / 2);
    EXPECT_EQ(static_cast<std::int64_t>(out.survivors.size()), budget);
    for (const PrunePlan& plan : out.plans) {
      if (&plan == &out.plans.back()) break;
      EXPECT_EQ(plan.kept.size() % 5, 0u) << "tiles keep equal counts";
    }
  }
}

TEST(FlowCut, LanguageModelStageAgainstPlainLoops) {
  const VisualBlock block = grid_block(3, 4);
  const PrunedModel model{.tiles = 2};
  const auto q = noise_list(1, 4 * 4), k = noise_list(2, 12 * 8), v = noise_list(3, 12 * 8);
  const auto own = noise_list(4, 8);
  SignalStore store;
  store.add(SignalKind::kLastQuery, 1, 4, q, 4);
  store.add(SignalKind::kLlmKeys, 1, 8, k, 2);
  store.add(SignalKind::kLastValue, 1, 8, own, 2);
  store.add(SignalKind::kLlmValues, 1, 8, v, 2);
  PruneState state;
  state.numbers = {5, 12};
  const PrunePlan plan = select_once(FlowCut({}), block, store, keep_tokens(5), model,
                                     {HookPoint::kBeforeLlm, 2}, state);
  std::vector<double> a(12), s(12);
  const auto add_softmax = [](std::vector<double> e, std::vector<double>& to, double share) {
    double sum = 0;
    for (double& x : e) sum += x = std::exp(x);
    for (std::size_t i = 0; i < e.size(); ++i) to[i] += share * e[i] / sum;
  };
  for (std::size_t h = 0; h < 4; ++h) {
    std::vector<double> e(12);
    for (std::size_t i = 0; i < 12; ++i) {
      for (std::size_t c = 0; c < 4; ++c) e[i] += 0.5 * q[h * 4 + c] * k[i * 8 + h / 2 * 4 + c];
    }
    add_softmax(e, a, 0.25);
  }
  for (std::size_t h = 0; h < 2; ++h) {
    std::vector<double> e(12);
    for (std::size_t i = 0; i < 12; ++i) {
      for (std::size_t c = 0; c < 4; ++c) e[i] += 0.5 * own[h * 4 + c] * v[i * 8 + h * 4 + c];
    }
    add_softmax(e, s, 0.5);
  }
  std::vector<float> scores;
  for (std::size_t i = 0; i < 12; ++i) {
    double norm = 0;
    for (std::size_t c = 0; c < 4; ++c) norm += std::abs(v[i * 8 + c] + v[i * 8 + 4 + c]) / 2;
    scores.push_back(static_cast<float>((a[i] + s[i]) * norm));
  }
  PruneScratch scratch;
  const auto want = top_places(scores, 5, scratch);
  EXPECT_EQ(plan.kept, std::vector<TokenIndex>(want.begin(), want.end()));
}

TEST(FlowCut, QwenCellsStayWhole) {
  const VisualBlock block = qwen_block(1, 6, 7, QwenStage::kPatches);
  const PrunedModel model{
      .family = "qwen2.5-vl", .cls = false, .substitute = RowSource::kMeanQuery, .merge_cell = 4};
  const FlowCut pruner({});
  PruneScratch scratch;
  const ChainResult out = run_chain(pruner, block, model, keep_tokens(5), noise_source(4), scratch);
  EXPECT_EQ(out.plans[21].kept.size(), 40u) << "8 K patches, 2 K merged tokens";
  EXPECT_EQ(out.survivors.size(), 5u);
  EXPECT_EQ(out.plans.back().positions, PositionPolicy::kOriginal) << "M-RoPE ids stay";
}

}  // namespace
}  // namespace tessera::flowcut_test
