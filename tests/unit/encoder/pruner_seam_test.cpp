// Pruners at work inside a running encoder: FlowCut drops rows after layers, ToMe merges them
// inside, through the same calls that a pipeline makes. Both budgets are reached, and features are
// those of a transformer in plain loops that was notified which rows went.
#include <algorithm>

#include "tests/support/pruning_chain.h"
#include "tests/unit/encoder/encoder_bench.h"
#include "vision/encoder/tower_signals.h"
#include "vision/pruning/flowcut.h"
#include "vision/pruning/tome.h"

namespace tessera::testing::pruner_seam_test {
namespace {

// Runs one pruner at its hooks in the encoder and carries its plans out.
class PruningObserver final : public TowerObserver {
 public:
  PruningObserver(const Pruner& pruner, PrunedModel model, VisualBlock block, Budget budget)
      : pruner_(pruner),
        model_(std::move(model)),
        block_(std::move(block)),
        budget_(std::move(budget)) {}

  void after_attention(LayerState& state) override {
    // Values and weights of a hook after the layer are those of its attention, taken now.
    gathered_ = SignalStore();
    gather(state, HookPoint::kInEncoder);
    if (!wanted(HookPoint::kInEncoderBlock, state)) return;
    gathered_ = SignalStore();
    gather(state, HookPoint::kInEncoderBlock);
    work(HookPoint::kInEncoderBlock, state);
  }
  void after_layer(LayerState& state) override {
    if (wanted(HookPoint::kInEncoder, state)) work(HookPoint::kInEncoder, state);
  }

  const VisualBlock& block() const { return block_; }
  const std::map<std::int64_t, RowChange>& changes() const { return changes_; }

 private:
  bool wanted(HookPoint point, const LayerState& state) const {
    const std::vector<Hook> hooks = pruner_.hooks(model_);
    return std::find(hooks.begin(), hooks.end(), Hook{point, static_cast<int>(state.layer())}) !=
           hooks.end();
  }

  void gather(LayerState& state, HookPoint point) {
    if (!wanted(point, state)) return;
    const auto layer = static_cast<int>(state.layer());
    const std::int64_t rows = state.rows();
    const std::int64_t heads = state.values().shape[1];
    const std::int64_t width = heads * state.values().shape[2];
    const auto copy = [&](ConstTensorView view) {
      return std::vector<float>(view.f32(), view.f32() + view.shape.elements());
    };
    for (const SignalNeed& need : pruner_.needs({point, layer}, model_, memory_)) {
      std::vector<float> values;
      switch (need.kind) {
        case SignalKind::kClsRow: {
          Tensor out = Tensor::host(DType::kF32, {rows});
          state.attention(AttentionRows::kClassToken, HeadMean::kMean, out.view());
          gathered_.add(need.kind, layer, rows, copy(out.view()));
          break;
        }
        case SignalKind::kEncoderKeys:
          gathered_.add(need.kind, layer, width, copy(state.keys()), heads);
          break;
        case SignalKind::kEncoderValues:
          gathered_.add(need.kind, layer, width, copy(state.values()), heads);
          break;
        case SignalKind::kClsValue:
          for (std::size_t i = 0; i < state.places().size(); ++i) {
            if (state.places()[i].id >= 0) continue;
            const float* row = state.values().f32() + static_cast<std::int64_t>(i) * width;
            values.insert(values.end(), row, row + width);
          }
          gathered_.add(need.kind, layer, width, values, heads);
          break;
        default:
          ADD_FAILURE() << "no such signal in an encoder";
      }
    }
  }

  void work(HookPoint point, LayerState& state) {
    ASSERT_EQ(block_.count(), state.rows());
    const Signals signals = gathered_.view();
    PruneScratch scratch;
    const PrunePlan plan = pruner_.select({.block = block_,
                                           .signals = signals,
                                           .budget = budget_,
                                           .model = model_,
                                           .hook = {point, static_cast<int>(state.layer())},
                                           .text_positions = {}},
                                          memory_, scratch);
    std::vector<std::int32_t> stands_for;
    for (std::size_t i = 0; i < plan.kept.size(); ++i) {
      const auto at = plan.order.empty() ? i : static_cast<std::size_t>(plan.order[i]);
      stands_for.push_back(static_cast<std::int32_t>(plan.kept[at]));
    }
    RowChange& change = changes_[state.layer()];
    if (plan.merges.empty() && plan.order.empty()) {
      state.keep(stands_for);
      change.keep = stands_for;
    } else {
      std::vector<std::int32_t> to(static_cast<std::size_t>(state.rows()), -1);
      for (std::size_t j = 0; j < stands_for.size(); ++j) {
        to[static_cast<std::size_t>(stands_for[j])] = static_cast<std::int32_t>(j);
      }
      for (const Merge& merge : plan.merges) {
        to[static_cast<std::size_t>(merge.source)] =
            to[static_cast<std::size_t>(merge.destination)];
      }
      state.merge(to, stands_for);
      change.merge_to = to;
      change.stands_for = stands_for;
    }
    block_ = apply(plan, block_, {}).block;
    // What the pruner believes of each token is what the encoder holds.
    for (std::int64_t i = 0; i < block_.count(); ++i) {
      const VitPlace& place = state.places()[static_cast<std::size_t>(i)];
      EXPECT_EQ(block_[i].kind == TokenKind::kCls, place.id < 0);
      EXPECT_EQ(block_[i].tile, place.image);
      if (place.id >= 0) {
        EXPECT_EQ(block_[i].row, place.row);
        EXPECT_EQ(block_[i].column, place.col);
      }
      EXPECT_EQ(block_[i].size, state.sizes()[static_cast<std::size_t>(i)]);
    }
  }

  const Pruner& pruner_;
  PrunedModel model_;
  VisualBlock block_;
  Budget budget_;
  PruneState memory_;
  SignalStore gathered_;
  std::map<std::int64_t, RowChange> changes_;
};

PrunedModel model_of(const VitSpec& spec, std::int64_t tiles) {
  return {.encoder_layers = static_cast<int>(spec.layers),
          .feature_layer = static_cast<int>(spec.run_layers) - 1,
          .tiles = tiles};
}

void expect_pruned(const Pruner& pruner, std::int64_t budget, bool proportional) {
  const Bench bench = class_token_bench();
  PruningObserver observer(pruner, model_of(bench.spec, 1), tiles_block(1, 10, 10, true),
                           keep_tokens(budget));
  TowerObserver* const observers[] = {&observer};
  const EncodedImage image =
      bench.encode({.observers = observers, .proportional_attention = proportional});
  EXPECT_EQ(image.features.shape()[0], budget);
  NaiveVit naive(bench.spec, bench.tensors);
  naive.changes = observer.changes();
  naive.proportional = proportional;
  EXPECT_LT(difference(image, naive, naive.run(bench.pixels.view())), 1e-5);
}

TEST(PrunerSeam, FlowCutDropsRowsAfterLayers) {
  expect_pruned(FlowCut({.llm_stage = 0}), 17, false);
}

TEST(PrunerSeam, TomeMergesRowsInsideLayers) { expect_pruned(Tome({}), 40, true); }

// Tiles of an image lose equally many rows at each step, which takes all of them at once.
TEST(PrunerSeam, FlowCutOverTilesKeepsEqualCounts) {
  const Bench bench = class_token_bench();
  const Checkpoint weights = Checkpoint::from_tensors("random", clones(bench.tensors));
  const VisionEncoder encoder(*bench.backend, bench.spec, weights, DType::kF32);
  const Tensor second = image({3, 20, 20}, 5), third = image({3, 20, 20}, 6);
  const EncoderInput tiles[] = {
      {.pixels = bench.pixels.view()}, {.pixels = second.view()}, {.pixels = third.view()}};
  const FlowCut pruner({.llm_stage = 0});
  PruningObserver observer(pruner, model_of(bench.spec, 3), tiles_block(3, 10, 10, true),
                           keep_tokens(23));
  TowerObserver* const observers[] = {&observer};
  Arena arena(VisionEncoder::scratch_bytes(bench.spec, 300, 3));
  const std::vector<EncodedImage> images = encoder.encode(tiles, arena, {.observers = observers});
  ASSERT_EQ(images.size(), 3u);
  for (const EncodedImage& image : images) EXPECT_EQ(image.features.shape()[0], 23);
  EXPECT_EQ(observer.block().count(), 3 * 24);
}

}  // namespace
}  // namespace tessera::testing::pruner_seam_test
