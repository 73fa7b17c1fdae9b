// SparseVLM and CoreMatching against hand-made inputs, set arithmetic and plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/pruning_chain.h"
#include "vision/pruning/corematching.h"
#include "vision/pruning/sparsevlm.h"

namespace tessera::llm_methods_test {
namespace {

TEST(SparseVlm, PublishedCounts) {
  using Counts = std::array<std::int64_t, 3>;
  EXPECT_EQ(sparsevlm_counts(576, 192), (Counts{300, 200, 118}));
  EXPECT_EQ(sparsevlm_counts(576, 128), (Counts{238, 108, 60}));
  EXPECT_EQ(sparsevlm_counts(576, 96), (Counts{246, 54, 28}));
  EXPECT_EQ(sparsevlm_counts(576, 64), (Counts{66, 34, 20}));
  EXPECT_EQ(sparsevlm_counts(2880, 960), (Counts{1500, 1000, 590})) << "five times as many";
  EXPECT_EQ(sparsevlm_counts(576, 576), (Counts{576, 576, 576}));
  EXPECT_EQ(sparsevlm_counts(576, 0), (Counts{0, 0, 0}));
  for (std::int64_t total : {1, 2, 7, 100, 999}) {
    for (std::int64_t budget = 1; budget <= total; ++budget) {
      const Counts counts = sparsevlm_counts(total, budget);
      EXPECT_LE(counts[0], total);
      EXPECT_LE(counts[1], counts[0]);
      EXPECT_LE(counts[2], counts[1]);
      EXPECT_GE(counts[2], 1);
    }
  }
}

TEST(SparseVlm, RatersAreTheWordsThatTheImageAsksFor) {
  PruneScratch scratch;
  // Two visual tokens along x and y; text: along x, y, against both, and half-way.
  const std::vector<float> visual = {4, 0, 0, 4}, text = {1, 0, 0, 1, -1, -1, .5f, .5f};
  const auto tokens = count_up(2);
  EXPECT_EQ(sparsevlm_raters(matrix(visual, 2), tokens, matrix(text, 2), scratch),
            (std::vector<std::int64_t>{0, 1}));
  const std::vector<float> same(8, 1.0f);
  EXPECT_EQ(sparsevlm_raters(matrix(visual, 2), tokens, matrix(same, 2), scratch), count_up(4))
      << "no word stands out: all rate";
  const std::vector<float> large = {400, 0, 0, 400};
  EXPECT_EQ(sparsevlm_raters(matrix(large, 2), tokens, matrix(text, 2), scratch),
            (std::vector<std::int64_t>{0, 1}))
      << "no overflow";
}

TEST(SparseVlm, RotationLogitIsThatOfConstantVectors) {
  for (const bool three : {false, true}) {
    RopeFacts rope{.head_dim = 16, .theta = 100};
    if (three) rope.sections = {2, 3, 3};
    const std::array<std::int32_t, 3> q = {40, 41, 45}, k = {7, 30, 2};
    // Rotate ones of width 16 at both positions and multiply.
    double sum = 0;
    for (int i = 0; i < 8; ++i) {
      const std::size_t axis = !three || i < 2 ? 0 : i < 5 ? 1 : 2;
      const double turn = std::pow(100.0, -2.0 * i / 16), a = q[axis] * turn, b = k[axis] * turn;
      const double qx = std::cos(a) - std::sin(a), qy = std::sin(a) + std::cos(a);
      const double kx = std::cos(b) - std::sin(b), ky = std::sin(b) + std::cos(b);
      sum += qx * kx + qy * ky;
    }
    EXPECT_NEAR(rotation_logit(rope, q, k), sum / 4, 1e-12);
  }
}

struct Stage {
  VisualBlock block = grid_block(3, 4, 5);
  PrunedModel model{.rope = {.head_dim = 16, .theta = 100}};
  std::vector<float> rows = noise_list(3, 4 * 2 * 12);  // 4 heads x 2 raters x 12
  std::vector<std::array<std::int32_t, 3>> text;

  Stage() {
    for (float& value : rows) value = std::abs(value);
    for (std::int32_t i = 0; i < 3; ++i) text.push_back({20 + i, 20 + i, 20 + i});
  }
  std::vector<TokenIndex> select(const SparseVlm::Settings& settings) const {
    SignalStore store;
    store.add(SignalKind::kAttentionRows, 2, 12, rows, 4);
    const Signals signals = store.view();
    const Budget budget = keep_tokens(2);
    PruneScratch scratch;
    PruneState state;
    state.numbers = {0, 5, 4, 2, /*raters*/ 0, 2};
    return SparseVlm(settings)
        .select({.block = block,
                 .signals = signals,
                 .budget = budget,
                 .model = model,
                 .hook = {HookPoint::kBeforeLlm, 3},
                 .text_positions = text},
                state, scratch)
        .kept;
  }
  // By the formula; `half`: only the two heads with most mass; `divide`: by the rotation's logit.
  std::vector<TokenIndex> plain(bool half, bool divide) const {
    std::vector<std::pair<double, std::size_t>> mass;
    for (std::size_t h = 0; h < 4; ++h) {
      double sum = 0;
      for (std::size_t i = 0; i < 24; ++i) sum += rows[h * 24 + i];
      mass.push_back({-sum, h});
    }
    std::sort(mass.begin(), mass.end());
    std::vector<std::pair<double, TokenIndex>> score;
    for (std::size_t j = 0; j < 12; ++j) {
      double sum = 0;
      for (std::size_t m = 0; m < (half ? 2u : 4u); ++m) {
        for (std::size_t r = 0; r < 2; ++r) {
          double divisor = 1;
          if (divide) {
            double logit = 0;
            for (int i = 0; i < 8; ++i) {
              logit += 2 * std::cos((text[2 * r][0] - block.tokens[j].position[0]) *
                                    std::pow(100.0, -i / 8.0));
            }
            divisor = std::max(logit / 4, 0.05 * 4);
          }
          sum += rows[mass[m].second * 24 + r * 12 + j] / divisor;
        }
      }
      score.push_back({-sum, static_cast<TokenIndex>(j)});
    }
    std::sort(score.begin(), score.end());
    std::vector<TokenIndex> out;
    for (std::size_t i = 0; i < 5; ++i) out.push_back(score[i].second);
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST(SparseVlm, RelevanceAgainstPlainLoops) {
  const Stage stage;
  EXPECT_EQ(stage.select({}), stage.plain(true, true));
  EXPECT_EQ(stage.select({.rotation = false}), stage.plain(true, false));
  EXPECT_EQ(stage.select({.heads = 4}), stage.plain(false, true));
  // Injected faults: without the division, with all heads, the answer is another one.
  EXPECT_NE(stage.plain(true, true), stage.plain(true, false));
  EXPECT_NE(stage.plain(true, true), stage.plain(false, true));
}

TEST(SparseVlm, ThreeStagesWithOriginalIds) {
  const VisualBlock block = llava_block();
  PruneScratch scratch;
  const ChainResult out =
      run_chain(SparseVlm({}), block, {}, keep_tokens(192), noise_source(5), scratch);
  ASSERT_EQ(out.plans.size(), 4u);
  EXPECT_EQ(out.plans[0].kept.size(), 576u);
  EXPECT_EQ(out.plans[1].kept.size(), 300u);
  EXPECT_EQ(out.plans[2].kept.size(), 200u);
  EXPECT_EQ(out.plans[3].kept.size(), 118u);
  for (std::size_t i = 0; i < out.survivors.size(); ++i) {
    EXPECT_EQ(out.block.tokens[i].position[0], 35 + static_cast<std::int32_t>(out.survivors[i]));
  }
  const SparseVlm pruner({});
  EXPECT_EQ(pruner.hooks({})[2], (Hook{HookPoint::kBeforeLlm, 7}));
  // 2, 6 and 15 of 32 layers are 0, 1 and 3 of six.
  const std::vector<Hook> shallow = pruner.hooks({.llm_layers = 6});
  EXPECT_EQ(shallow[1], (Hook{HookPoint::kBeforeLlm, 1}));
  EXPECT_EQ(shallow[2], (Hook{HookPoint::kBeforeLlm, 2}));
  EXPECT_EQ(shallow[3], (Hook{HookPoint::kBeforeLlm, 4}));
}

// --- CoreMatching --------------------------------------------------------------------------------

std::set<std::int64_t> as_set(std::span<const std::uint64_t> bits) {
  std::set<std::int64_t> out;
  for (std::size_t i = 0; i < bits.size() * 64; ++i) {
    if (bits[i / 64] >> (i % 64) & 1) out.insert(static_cast<std::int64_t>(i));
  }
  return out;
}

TEST(CoreMatching, CoreNeuronsAreTheStrongestPositiveOnes) {
  PruneScratch scratch;
  std::vector<std::uint64_t> bits(2, ~std::uint64_t{0});
  std::vector<float> activations(100, -1.0f);
  activations[3] = 2, activations[70] = 5, activations[71] = 5, activations[99] = 1,
  activations[0] = 0;
  core_neurons(activations, 0.5, bits, scratch);
  EXPECT_EQ(as_set(bits), (std::set<std::int64_t>{70, 71}));
  core_neurons(activations, 0.2, bits, scratch);
  EXPECT_EQ(as_set(bits), (std::set<std::int64_t>{70})) << "ties to the lower neuron, ceil";
  core_neurons(activations, 1, bits, scratch);
  EXPECT_EQ(as_set(bits), (std::set<std::int64_t>{3, 70, 71, 99}))
      << "never one that is not positive";
}

TEST(CoreMatching, OverlapsEqualSetIntersections) {
  PruneScratch scratch;
  std::vector<std::uint64_t> words;
  for (std::uint32_t i = 0; i < 40; ++i) {
    std::uint64_t word[2] = {};
    for (std::uint32_t n = 0; n < 100; ++n) {
      if (noise(9, i, n) > 0.8f) word[n / 64] |= std::uint64_t{1} << (n % 64);
    }
    words.insert(words.end(), word, word + 2);
  }
  const BitMatrixView all{words.data(), 40, 100};
  const BitMatrixView parts[] = {{words.data(), 25, 100}, {words.data() + 50, 15, 100}};
  const auto core = as_set(sentence_core(parts, 0.4, scratch));
  std::vector<std::pair<std::int64_t, std::int64_t>> frequency;
  for (std::int64_t n = 0; n < 100; ++n) {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < 40; ++r) count += as_set(all.row(r)).contains(n) ? 1 : 0;
    if (count > 0) frequency.push_back({-count, n});
  }
  std::sort(frequency.begin(), frequency.end());
  std::set<std::int64_t> want;
  const auto size =
      static_cast<std::size_t>(std::ceil(0.4 * static_cast<double>(frequency.size())));
  for (std::size_t i = 0; i < size; ++i) want.insert(frequency[i].second);
  EXPECT_EQ(core, want);
  for (std::int64_t r = 0; r < 40; ++r) {
    std::set<std::int64_t> both;
    const auto row = as_set(all.row(r));
    std::set_intersection(row.begin(), row.end(), core.begin(), core.end(),
                          std::inserter(both, both.end()));
    EXPECT_EQ(shared_bits(all.row(r), sentence_core(parts, 0.4, scratch)),
              static_cast<std::int64_t>(both.size()));
  }
}

// Ten tokens whose overlaps with the sentence's core are 9 1 8 1 1 2 7 1 0 1. Neurons 0 ... 8 are
// in so many text tokens that they are the core.
PrunePlan golden_plan(const Budget& budget, const CoreMatching::Settings& settings) {
  const std::vector<int> overlaps = {9, 1, 8, 1, 1, 2, 7, 1, 0, 1};
  std::vector<std::uint64_t> visual;
  for (const int n : overlaps) {
    visual.push_back((std::uint64_t{1} << n) - 1);
    visual.back() |= std::uint64_t{1} << (20 + visual.size());  // a neuron of its own, in no core
  }
  SignalStore store;
  store.add_bits(SignalKind::kCoreNeurons, 2, 64, visual);
  store.add_bits(SignalKind::kTextCoreNeurons, 2, 64, std::vector<std::uint64_t>(5, 511));
  return select_once(CoreMatching(settings), grid_block(2, 5), store, budget);
}

TEST(CoreMatching, GoldenKnee) {
  Budget adaptive;
  adaptive.adaptive = true;
  CoreMatching::Settings settings{.beta = 9.0 / 19};  // 19 neurons occur
  EXPECT_EQ(golden_plan(adaptive, settings).kept, (std::vector<TokenIndex>{0, 2, 5, 6}));
  settings.strict = true;
  EXPECT_EQ(golden_plan(adaptive, settings).kept, (std::vector<TokenIndex>{0, 2, 6}));
  adaptive.most = 2;
  EXPECT_EQ(golden_plan(adaptive, settings).kept, (std::vector<TokenIndex>{0, 2}));
  adaptive.most = 100;
  adaptive.least = 5;
  EXPECT_EQ(golden_plan(adaptive, settings).kept, (std::vector<TokenIndex>{0, 1, 2, 5, 6}));
  EXPECT_EQ(golden_plan(keep_tokens(4), {.beta = 9.0 / 19}).kept,
            (std::vector<TokenIndex>{0, 2, 5, 6}));
}

}  // namespace
}  // namespace tessera::llm_methods_test
