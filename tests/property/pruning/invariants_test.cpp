// What every pruner must keep to, over token layouts of several families and made-up signals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tests/support/llava_next_image.h"
#include "tests/support/pruning_chain.h"
#include "vision/pruning/registry.h"

namespace tessera::invariants_test {
namespace {

struct Layout {
  const char* name;
  VisualBlock block;
  PrunedModel model;
};

std::vector<Layout> layouts() {
  const PrunedModel llava;
  PrunedModel next{.family = "llava-next", .tiles = 5};
  PrunedModel smol{.family = "smolvlm", .cls = false, .substitute = RowSource::kMeanOfRows};
  smol.tiles = 7;
  PrunedModel qwen{.family = "qwen2.5-vl", .cls = false, .substitute = RowSource::kMeanQuery};
  qwen.rope.sections = {16, 24, 24};
  std::vector<Layout> out;
  out.push_back({"grid", grid_block(6, 7, 35), llava});
  out.push_back({"grid with CLS", grid_block(6, 7, 0, true), llava});
  // LLaVA-NeXT thinned to 6 x 6 patches a tile, newlines between.
  for (const Padding padding : {Padding::kDropped, Padding::kFlagged}) {
    VisualBlock block = llava_next_image(640, 480, padding);
    std::erase_if(block.tokens, [](const VisualToken& token) {
      return token.kind == TokenKind::kPatch && (token.row % 4 != 0 || token.column % 4 != 0);
    });
    out.push_back({padding == Padding::kDropped ? "next" : "next with padding", block, next});
  }
  out.push_back({"idefics3", idefics3_block(2, 3, 4), smol});
  out.push_back({"qwen", qwen_block(2, 4, 5, QwenStage::kMerged, 9), qwen});
  // Four frames, each a view of its own.
  VisualBlock video = tiles_block(4, 5, 5);
  for (VisualToken& token : video.tokens) token.frame = token.tile;
  PrunedModel shown = llava;
  shown.tiles = 4;
  out.push_back({"clip", video, shown});
  out.push_back({"one token", grid_block(1, 1), llava});
  out.push_back({"nothing", VisualBlock{}, llava});
  return out;
}

bool is_candidate(const VisualToken& token) {
  return token.kind == TokenKind::kPatch && !token.padded;
}

std::int64_t candidates(const VisualBlock& block) {
  return std::count_if(block.tokens.begin(), block.tokens.end(), is_candidate);
}

// What must be kept for a budget of `tokens`, in the method's own scope.
std::int64_t expected(const PrunerRow& row, const Layout& layout, std::int64_t tokens) {
  const std::int64_t all = candidates(layout.block);
  const bool two_stages = row.name == "flowcut" && layout.model.tiles > 1;
  const std::set<std::string_view> by_tile = {"vispruner", "visionzip", "correlation", "tome",
                                              "flowcut"};
  if (!by_tile.contains(row.name) || two_stages) return std::min(tokens, all);
  std::map<std::int32_t, std::int64_t> tiles;
  for (const VisualToken& token : layout.block.tokens) tiles[token.tile] += is_candidate(token);
  std::int64_t sum = 0;
  for (const auto& [tile, count] : tiles) sum += std::min(tokens, count);
  return sum;
}

void expect_sound(const PrunerRow& row, const Layout& layout, const ChainResult& out,
                  std::int64_t tokens) {
  const std::string what =
      std::string(row.name) + ", " + layout.name + ", " + std::to_string(tokens);
  std::set<std::uint32_t> survivors(out.survivors.begin(), out.survivors.end());
  EXPECT_EQ(survivors.size(), out.survivors.size()) << what;
  std::int64_t kept = 0;
  for (std::uint32_t i = 0; i < layout.block.tokens.size(); ++i) {
    const VisualToken& token = layout.block.tokens[i];
    if (token.kind != TokenKind::kPatch) {
      EXPECT_TRUE(survivors.contains(i)) << what << ", protected";
    }
    if (is_candidate(token)) kept += survivors.contains(i) ? 1 : 0;
    if (token.padded) {
      const bool pruned =
          std::any_of(out.plans.begin(), out.plans.end(),
                      [](const PrunePlan& plan) { return plan.chosen < plan.candidates; });
      EXPECT_FALSE(pruned && survivors.contains(i)) << what << ", padding";
    }
  }
  const std::int64_t want = expected(row, layout, tokens);
  switch (row.kept) {
    case KeptCount::kExact:
      EXPECT_EQ(kept, want) << what;
      break;
    case KeptCount::kAtMost:
      EXPECT_LE(kept, want) << what;
      EXPECT_GE(kept, want - layout.model.tiles) << what;
      break;
    case KeptCount::kAtLeast:
      EXPECT_EQ(kept, tokens == 0 ? kept : want) << what;
      break;
    case KeptCount::kListed:
      EXPECT_LE(kept, want) << what;
      EXPECT_GE(kept, std::min<std::int64_t>(want, 1)) << what;
      break;
  }
  for (const float value : out.features) EXPECT_TRUE(std::isfinite(value)) << what;
  for (const PrunePlan& plan : out.plans) {
    EXPECT_TRUE(std::is_sorted(plan.kept.begin(), plan.kept.end())) << what;
    EXPECT_LE(plan.chosen, plan.candidates) << what;
    const bool three = layout.block.position_rows == 3;
    EXPECT_EQ(plan.positions, three ? PositionPolicy::kOriginal : row.positions) << what;
    EXPECT_TRUE(row.cls == ClsNeed::kRow || plan.source == RowSource::kNone) << what;
  }
}

bool same(const ChainResult& a, const ChainResult& b) {
  if (a.survivors != b.survivors || a.features != b.features) return false;
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    if (a.plans[i].kept != b.plans[i].kept || a.plans[i].order != b.plans[i].order) return false;
  }
  return true;
}

class EveryPruner : public ::testing::TestWithParam<std::string_view> {
 protected:
  const PrunerRow& row_ = pruner_row(GetParam());
  std::unique_ptr<Pruner> pruner_ = make_pruner(GetParam());
  PruneScratch scratch_;
};

TEST_P(EveryPruner, KeepsItsBudgetOnEveryLayout) {
  for (const Layout& layout : layouts()) {
    for (const std::int64_t tokens : {0, 1, 2, 9, 30, 100000}) {
      const ChainResult out = run_chain(*pruner_, layout.block, layout.model, keep_tokens(tokens),
                                        noise_source(11), scratch_);
      expect_sound(row_, layout, out, tokens);
    }
  }
}

// A number that groups share is the image's, in whatever groups a method works.
TEST_P(EveryPruner, KeepsANumberThatGroupsShare) {
  for (const Layout& layout : layouts()) {
    const std::int64_t all = candidates(layout.block);
    for (const std::int64_t tokens : {1, 2, 9, 30, 31, 100000}) {
      const ChainResult out = run_chain(*pruner_, layout.block, layout.model, keep_shared(tokens),
                                        noise_source(16), scratch_);
      std::int64_t kept = 0;
      for (const std::uint32_t i : out.survivors) kept += is_candidate(layout.block.tokens[i]);
      const std::int64_t want = std::min(tokens, all);
      const std::string what =
          std::string(row_.name) + ", " + layout.name + ", " + std::to_string(tokens);
      if (row_.kept == KeptCount::kExact) {
        EXPECT_EQ(kept, want) << what;
      } else if (row_.kept == KeptCount::kAtLeast) {  // merging by pairs leaves one token a tile
        EXPECT_GE(kept, want) << what;
        EXPECT_LE(kept, std::max(want, std::min(layout.model.tiles, all))) << what;
      } else {
        EXPECT_LE(kept, want) << what;
        EXPECT_GE(kept, std::min<std::int64_t>(want, 1)) << what;
      }
    }
  }
}

TEST_P(EveryPruner, AnyRatioKeepsAToken) {
  for (const Layout& layout : layouts()) {
    Budget budget;
    budget.ratio = 0.001;
    const ChainResult out =
        run_chain(*pruner_, layout.block, layout.model, budget, noise_source(17), scratch_);
    std::int64_t kept = 0;
    for (const std::uint32_t i : out.survivors) kept += is_candidate(layout.block.tokens[i]);
    EXPECT_GE(kept, std::min<std::int64_t>(candidates(layout.block), 1))
        << row_.name << ", " << layout.name;
    EXPECT_LE(kept, layout.model.tiles) << row_.name << ", " << layout.name;
  }
}

TEST_P(EveryPruner, AllTokensKeptIsTheIdentity) {
  for (const Layout& layout : layouts()) {
    if (std::any_of(layout.block.tokens.begin(), layout.block.tokens.end(),
                    [](const VisualToken& token) { return token.padded; })) {
      continue;
    }
    for (const bool by_ratio : {false, true}) {
      const Budget all = by_ratio ? Budget{} : keep_tokens(layout.block.count());
      const ChainResult out =
          run_chain(*pruner_, layout.block, layout.model, all, noise_source(12), scratch_);
      ASSERT_EQ(out.survivors.size(), layout.block.tokens.size()) << layout.name;
      EXPECT_TRUE(std::is_sorted(out.survivors.begin(), out.survivors.end())) << layout.name;
      EXPECT_EQ(out.features, noise_list(99, 2 * layout.block.tokens.size())) << layout.name;
    }
  }
}

TEST_P(EveryPruner, SameInputsSamePlanWhateverTheScratchHeld) {
  for (const Layout& layout : layouts()) {
    const auto run = [&](PruneScratch& scratch) {
      return run_chain(*pruner_, layout.block, layout.model, keep_tokens(7), noise_source(13),
                       scratch);
    };
    const ChainResult first = run(scratch_);
    // Another image, as a neighbour in a batch, passes through the same scratch.
    run_chain(*pruner_, grid_block(9, 9), {}, keep_tokens(20), noise_source(14), scratch_);
    PruneScratch fresh;
    EXPECT_TRUE(same(first, run(scratch_))) << layout.name;
    EXPECT_TRUE(same(first, run(fresh))) << layout.name;
  }
}

TEST_P(EveryPruner, ASecondCallTakesNoMoreMemory) {
  const Layout layout = layouts()[2];
  const auto run = [&] {
    run_chain(*pruner_, layout.block, layout.model, keep_tokens(7), noise_source(13), scratch_);
  };
  run();
  const std::size_t held = scratch_.capacity();
  run();
  EXPECT_EQ(scratch_.capacity(), held);
}

TEST_P(EveryPruner, SignalsThatSayNothingOrAreNoNumbers) {
  const SignalSource constant = [](SignalKind, int, std::uint32_t, std::uint32_t) { return 0.75f; };
  const SignalSource zero = [](SignalKind, int, std::uint32_t, std::uint32_t) { return 0.0f; };
  const SignalSource nan = [](SignalKind, int, std::uint32_t, std::uint32_t) {
    return std::nanf("");
  };
  const SignalSource mixed = [](SignalKind kind, int layer, std::uint32_t token, std::uint32_t i) {
    return token % 5 == 3 ? std::nanf("") : noise_source(15)(kind, layer, token, i);
  };
  for (const Layout& layout : layouts()) {
    for (const auto* source : {&constant, &zero, &nan, &mixed}) {
      for (const std::int64_t tokens : {1, 6}) {
        const ChainResult out =
            run_chain(*pruner_, layout.block, layout.model, keep_tokens(tokens), *source, scratch_);
        expect_sound(row_, layout, out, tokens);
      }
    }
  }
}

// Tokens of other content are other tokens: the answer must not be a constant.
TEST_P(EveryPruner, ReadsItsSignals) {
  if (row_.name == "uniform" || row_.name == "random") return;
  // What one frame says is not compared with anything: a method over time needs a video, and more
  // than its first frame.
  const bool over_time = row_.name == "temporal";
  const Layout layout = layouts()[over_time ? 6 : 0];
  const Budget budget = keep_tokens(over_time ? 40 : 7);
  int differ = 0;
  const auto first =
      run_chain(*pruner_, layout.block, layout.model, budget, noise_source(1), scratch_);
  for (std::uint64_t seed = 2; seed < 8; ++seed) {
    const auto out =
        run_chain(*pruner_, layout.block, layout.model, budget, noise_source(seed), scratch_);
    differ += out.survivors != first.survivors ? 1 : 0;
  }
  EXPECT_GE(differ, 5);
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> out;
  for (const PrunerRow& row : pruner_table()) out.push_back(row.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, EveryPruner, ::testing::ValuesIn(names()),
                         [](const auto& row) { return std::string(row.param); });

// Methods that score attention rows or directions do not mind a common factor.
TEST(Scaling, AttentionByAFactorIsTheSameAttention) {
  for (const std::string_view name :
       {"vispruner", "visionzip", "hired", "flowcut", "fastv", "sparsevlm", "correlation"}) {
    const auto pruner = make_pruner(name);
    const Layout layout = layouts()[2];
    PruneScratch scratch;
    const SignalSource plain = noise_source(21);
    const SignalSource scaled = [&](SignalKind kind, int layer, std::uint32_t t, std::uint32_t i) {
      const bool row = kind == SignalKind::kClsRow || kind == SignalKind::kAttentionRows;
      return plain(kind, layer, t, i) * (row ? 4.0f : 1.0f);
    };
    EXPECT_EQ(
        run_chain(*pruner, layout.block, layout.model, keep_tokens(9), plain, scratch).survivors,
        run_chain(*pruner, layout.block, layout.model, keep_tokens(9), scaled, scratch).survivors)
        << name;
  }
}

TEST(Scaling, DirectionsOfFeaturesAndKeys) {
  for (const std::string_view name :
       {"divprune", "vispruner", "visionzip", "correlation", "tome"}) {
    const auto pruner = make_pruner(name);
    const Layout layout = layouts()[0];
    PruneScratch scratch;
    const SignalSource plain = noise_source(22);
    const SignalSource scaled = [&](SignalKind kind, int layer, std::uint32_t t, std::uint32_t i) {
      const bool direction = kind == SignalKind::kEmbeddings || kind == SignalKind::kEncoderKeys ||
                             kind == SignalKind::kEncoderHidden;
      return plain(kind, layer, t, i) * (direction ? static_cast<float>(1 << (t % 7)) : 1.0f);
    };
    EXPECT_EQ(
        run_chain(*pruner, layout.block, layout.model, keep_tokens(9), plain, scratch).survivors,
        run_chain(*pruner, layout.block, layout.model, keep_tokens(9), scaled, scratch).survivors)
        << name;
  }
}

// Tiles are encoded apart; methods that work per tile verify them apart.
TEST(Tiles, ATileDoesNotMindItsNeighbours) {
  const VisualBlock block = tiles_block(3, 5, 6);
  const SignalSource plain = noise_source(23), other = noise_source(24);
  for (const std::string_view name : {"vispruner", "visionzip", "correlation", "tome"}) {
    const auto pruner = make_pruner(name);
    PruneScratch scratch;
    const SignalSource changed = [&](SignalKind kind, int layer, std::uint32_t t, std::uint32_t i) {
      return (t >= 30 && t < 60 ? other : plain)(kind, layer, t, i);
    };
    const auto tile = [&](const SignalSource& source, std::uint32_t which) {
      std::vector<std::uint32_t> out;
      for (const std::uint32_t t :
           run_chain(*pruner, block, {.tiles = 3}, keep_tokens(8), source, scratch).survivors) {
        if (t / 30 == which) out.push_back(t);
      }
      return out;
    };
    EXPECT_EQ(tile(plain, 0), tile(changed, 0)) << name;
    EXPECT_EQ(tile(plain, 2), tile(changed, 2)) << name;
    EXPECT_NE(tile(plain, 1), tile(changed, 1)) << name;
  }
}

// Permuting tokens of one tile, with their signals, permutes what is kept, where no order counts.
TEST(Permutation, OrderFreeMethodsFollow) {
  for (const std::string_view name :
       {"divprune", "hired", "fastv", "correlation", "sparsevlm", "flowcut"}) {
    std::vector<PruneOption> options;
    if (name == "sparsevlm") options.push_back({"rotation", 0});  // which reads positions
    const auto pruner = make_pruner(name, options);
    const Layout layout = layouts()[0];
    const auto n = static_cast<std::uint32_t>(layout.block.tokens.size());
    PruneScratch scratch;
    const auto from = [n](std::uint32_t t) { return t < n ? (11 * t + 5) % n : t; };
    const SignalSource plain = noise_source(25);
    const SignalSource moved = [&](SignalKind kind, int layer, std::uint32_t t, std::uint32_t i) {
      return plain(kind, layer, from(t), i);
    };
    std::set<std::uint32_t> want, got;
    for (const auto t :
         run_chain(*pruner, layout.block, layout.model, keep_tokens(9), plain, scratch).survivors) {
      want.insert(t);
    }
    for (const auto t :
         run_chain(*pruner, layout.block, layout.model, keep_tokens(9), moved, scratch).survivors) {
      got.insert(from(t));
    }
    EXPECT_EQ(got, want) << name;
  }
}

TEST(Baselines, UniformIsEvenAndRandomIsFair) {
  PruneScratch scratch;
  const auto uniform = make_pruner("uniform");
  const VisualBlock block = grid_block(4, 5);
  EXPECT_EQ(run_chain(*uniform, block, {}, keep_tokens(4), noise_source(1), scratch).survivors,
            (std::vector<std::uint32_t>{2, 7, 12, 17}));
  // 4000 lots of 5 of 20: each token a quarter of the time, within five standard deviations.
  const auto random = make_pruner("random");
  std::vector<int> count(20);
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const auto out = run_chain(*random, block, {}, keep_tokens(5), noise_source(1), scratch, seed);
    for (const std::uint32_t t : out.survivors) ++count[t];
  }
  for (const int c : count) EXPECT_NEAR(c, 1000, 5 * std::sqrt(4000 * 0.25 * 0.75));
}

}  // namespace
}  // namespace tessera::invariants_test
