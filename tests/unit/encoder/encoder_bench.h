// Small random towers with images to run, and what the tests of hooks do to their rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tests/unit/encoder/naive_vit.h"

namespace tessera::testing {

inline VitSpec class_token_spec() {
  VitSpec spec;
  spec.patch = 2;
  spec.width = 24;
  spec.layers = spec.run_layers = 4;
  spec.heads = 3;
  spec.mlp_width = 40;
  spec.class_token = spec.first_norm = true;
  spec.grid = 10;  // 101 rows: more than one block of 64 keys
  return spec;
}

inline VitSpec window_spec() {
  VitSpec spec;
  spec.patch = 2;
  spec.frames = 2;
  spec.width = 24;
  spec.layers = spec.run_layers = 3;
  spec.heads = 3;
  spec.mlp_width = 20;
  spec.activation = VitActivation::kSiluGated;
  spec.norm = VitNorm::kRms;
  spec.final_norm = VitFinalNorm::kNone;
  spec.positions = VitPositions::kRotary2d;
  spec.merge = 2;
  spec.window = 2;
  spec.full_layers = {1};
  spec.names.qkv = {"attn.qkv"};
  spec.names.mlp_in = {"mlp.gate", "mlp.up"};
  return spec;
}

inline Tensor image(Shape shape, std::uint64_t stream = 77) {
  const std::vector<float> values = random_values(shape.elements(), stream);
  Tensor out = Tensor::host(DType::kF32, shape);
  std::copy(values.begin(), values.end(), out.f32());
  return out;
}

struct Bench {
  VitSpec spec;
  std::map<std::string, Tensor> tensors;
  Tensor pixels;
  std::unique_ptr<Backend> backend = make_backend("cpu", {.threads = 2});

  Bench(VitSpec s, Shape shape, std::uint64_t seed = 1)
      : spec(std::move(s)), tensors(random_tower(spec, seed)), pixels(image(shape)) {}

  EncodedImage encode(const EncodeOptions& options = {}) const {
    const Checkpoint checkpoint = Checkpoint::from_tensors("random", clones(tensors));
    const VisionEncoder encoder(*backend, spec, checkpoint, DType::kF32);
    const std::size_t bytes =
        VisionEncoder::scratch_bytes(spec, vit_grid(spec, pixels.shape()).patches());
    Arena arena(bytes);
    EncodedImage image = encoder.encode(EncoderInput{.pixels = pixels.view()}, arena, options);
    EXPECT_EQ(arena.used(), 0u);
    EXPECT_LE(arena.peak(), bytes);
    if (options.observers.empty()) {  // else rows may have gone before the MLP took its scratch
      EXPECT_GE(arena.peak() * 100, bytes * 95) << "the plan asks for what is used";
    }
    return image;
  }
};

inline Bench class_token_bench() { return {class_token_spec(), {3, 20, 20}}; }
// Three frames' worth of pairs, 6 x 10 patches: windows of 4 x 4 and smaller ones at the edges.
inline Bench window_bench() { return {window_spec(), {6, 3, 12, 20}}; }

// max|a - b| / max|b| of features against the oracle's rows without the class token, by id.
inline double difference(const EncodedImage& image, const NaiveVit& naive, const Rows& rows) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (naive.places[i].id >= 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return naive.places[a].id < naive.places[b].id; });
  if (static_cast<std::int64_t>(order.size()) != image.features.shape()[0]) return HUGE_VAL;
  double worst = 0, scale = 0;
  const auto width = static_cast<std::size_t>(image.features.shape()[1]);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (naive.places[order[i]].id != image.places[i].id) return HUGE_VAL;
    for (std::size_t c = 0; c < width; ++c) {
      const double want = rows[order[i]][c];
      worst = std::max(worst, std::abs(image.features.f32()[i * width + c] - want));
      scale = std::max(scale, std::abs(want));
    }
  }
  return worst / scale;
}

// Does to the rows what the oracle was notified.
class Changer final : public TowerObserver {
 public:
  explicit Changer(const std::map<std::int64_t, RowChange>& changes) : changes_(changes) {}
  void after_attention(LayerState& state) override {
    if (!changes_.contains(state.layer())) return;
    const RowChange& change = changes_.at(state.layer());
    if (!change.merge_to.empty()) state.merge(change.merge_to, change.stands_for);
  }
  void after_layer(LayerState& state) override {
    if (!changes_.contains(state.layer())) return;
    const RowChange& change = changes_.at(state.layer());
    if (!change.keep.empty()) state.keep(change.keep);
  }

 private:
  const std::map<std::int64_t, RowChange>& changes_;
};

}  // namespace tessera::testing
