// How many kernels a layer of a pass is on a CUDA device: as many as stand between its products,
// counted by the simulated device with as many multiprocessors as a large card has.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/cache/kv_cache.h"
#include "engine/core/philox.h"
#include "engine/model/transformer.h"
#include "tests/support/device_values.h"
#include "tests/support/simt/simulated_device.h"

namespace tessera::layer_kernels_test {
namespace {

constexpr std::int64_t kWidth = 128, kHeads = 2, kHeadDim = 64, kFfn = 64, kSequences = 2;

std::vector<float> noise(std::int64_t count, std::uint32_t number) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::uint32_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(uniform_open(philox4x32({i, number, 0, 0}, {1, 2})[0]) - 0.5);
  }
  return out;
}

struct Model {
  explicit Model(DType type)
      : storage(type),
        backend(simt::make_device({}, {.deterministic = true})),
        transformer(*backend, kConfig, weights()) {}

  inline static const ModelConfig kConfig = {.layers = 3,
                                             .width = kWidth,
                                             .heads = kHeads,
                                             .kv_heads = kHeads,
                                             .head_dim = kHeadDim,
                                             .ffn_width = kFfn,
                                             .rope = {.theta = 1000.0, .positions = 64}};

  Tensor vector(std::int64_t count) { return on_device(*backend, noise(count, 1), {count}); }
  LinearWeight matrix(std::int64_t n, std::int64_t k) {
    const std::vector<float> values = noise(n * k, 2);
    const ConstTensorView view{DType::kF32, Shape{n, k}, values.data(), Device{}};
    return backend->pack_linear({&view, 1}, storage);
  }
  TransformerWeights weights() {
    TransformerWeights out;
    for (std::int64_t layer = 0; layer < kConfig.layers; ++layer) {
      LayerWeights one;
      one.attention_norm = vector(kWidth);
      one.qkv = matrix(3 * kHeads * kHeadDim, kWidth);
      one.out = matrix(kWidth, kHeads * kHeadDim);
      one.ffn_norm = vector(kWidth);
      one.gate_up = matrix(2 * kFfn, kWidth);
      one.down = matrix(kWidth, kFfn);
      out.layers.push_back(std::move(one));
    }
    out.final_norm = vector(kWidth);
    return out;
  }

  // Kernels of `layers` layers on the next rows of two sequences, half of `rows` each.
  std::int64_t kernels(std::int64_t layers, std::int64_t rows) {
    KvCache cache(*backend, {.layers = kConfig.layers,
                             .kv_heads = kHeads,
                             .head_dim = kHeadDim,
                             .capacity = 1024,
                             .sequences = kSequences,
                             .dtype = storage});
    Arena arena = make_arena(*backend, Transformer::scratch_bytes(kConfig, rows, *backend) + 4096);
    const Tensor in = on_device(*backend, noise(rows * kWidth, 3), {rows, kWidth});
    Tensor out = backend->allocate(DType::kF32, Shape{rows, kWidth});
    std::vector<std::int32_t> sequences(static_cast<std::size_t>(rows));
    std::vector<std::int64_t> positions(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::size_t half = sequences.size() / 2;
      sequences[i] = i < half ? 0 : 1;
      positions[i] = static_cast<std::int64_t>(i % half);
    }
    backend->synchronize();
    const std::int64_t before = simt::counts().kernels;
    transformer.forward_layers({.rows = in.view(), .sequences = sequences, .positions = positions},
                               {0, layers}, cache, arena, out.view());
    backend->synchronize();
    return simt::counts().kernels - before;
  }
  std::int64_t kernels_of_a_layer(std::int64_t rows) { return kernels(2, rows) - kernels(1, rows); }

  DType storage;
  std::unique_ptr<Backend> backend;
  Transformer transformer;
};

class LayerKernels : public ::testing::Test {
 protected:
  void SetUp() override { simt::set_device({.multiprocessors = 132}); }
  void TearDown() override { simt::set_device({}); }
};

// qkv with its norm, rotary embedding and cache, attention, out with the sum, gate and up with
// their norm and the gate, down with the sum.
TEST_F(LayerKernels, SixForFewRows) {
  Model model(DType::kBF16);
  EXPECT_EQ(model.kernels_of_a_layer(2), 6);
  EXPECT_EQ(model.kernels_of_a_layer(8), 6);
}

// Four kernels that round activations come on top, two of which norm them, and the merge of
// attention where a block has more than four rows and heads.
TEST_F(LayerKernels, ElevenForMore) {
  Model model(DType::kBF16);
  EXPECT_EQ(model.kernels_of_a_layer(16), 7);
  EXPECT_EQ(model.kernels_of_a_layer(64), 11);
}

TEST_F(LayerKernels, TwoNormsOnTopForWeightsOfF32) {
  Model model(DType::kF32);
  EXPECT_EQ(model.kernels_of_a_layer(2), 8);
}

}  // namespace
}  // namespace tessera::layer_kernels_test
