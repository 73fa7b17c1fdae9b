// What a run takes of a device's memory, and what would fit where it does not: published models on
// cards of several sizes.
#include <gtest/gtest.h>

#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"

namespace tessera::device_memory_test {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::size_t gib(double value) { return static_cast<std::size_t>(value * kGiB); }

// Emu3's dimensions (9.1 G parameters with the whole vocabulary, 720 x 720 pixels) around a small
// image tokenizer: its own is planned with the published names.
ModelSpec emu3_dims() {
  ModelSpec spec = open_model("random:janus-pro:1B").spec;
  spec.names.head_in.clear();
  StreamModelConfig& model = spec.model;
  model.transformer = {
      .layers = 32, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn_width = 14336};
  model.transformer.rope.positions = 9216;
  model.prompt_vocab = 151854;
  model.codes = 32768;
  model.code_width = 0;
  model.grid_rows = model.grid_cols = 90;
  model.row_end = model.image_end = true;
  return spec;
}

class DeviceMemoryTable : public ::testing::Test {
 protected:
  std::size_t bytes(const ModelSpec& spec, const MemoryRequest& request) const {
    return placed_on_device(plan_memory(spec, *backend_, request), spec, request).device_bytes();
  }
  // "fits", what would fit, or "nothing".
  std::string verdict(const ModelSpec& spec, const MemoryRequest& asked, double card) const {
    const std::size_t free = gib(card);
    if (bytes(spec, asked) <= free) return "fits";
    const auto fits =
        what_fits(asked, free, [&](const MemoryRequest& request) { return bytes(spec, request); });
    for (const MemoryRequest& fit : fits) EXPECT_LE(bytes(spec, fit), free);
    return fits.empty() ? "nothing" : fit_advice(asked, fits);
  }

  std::unique_ptr<Backend> backend_ = make_backend("cpu", {.threads = 1});
};

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

struct Asked {
  DType storage;
  std::int64_t images;
  // On cards of 8, 24, 80 and 141 GB, of which the driver leaves about so many GiB.
  const char* verdicts[4];
};
constexpr double kCards[] = {7.5, 23.5, 79.0, 140.0};

class DeviceMemoryOf : public DeviceMemoryTable {
 protected:
  void expect(const ModelSpec& spec, std::initializer_list<Asked> table) const {
    for (const Asked& row : table) {
      for (int card = 0; card < 4; ++card) {
        const MemoryRequest asked{.storage = row.storage, .images = row.images};
        EXPECT_EQ(verdict(spec, asked, kCards[card]), row.verdicts[card])
            << dtype_name(row.storage) << ", " << row.images << " at once, " << kCards[card]
            << " GiB: " << bytes(spec, asked) / kGiB << " GiB";
      }
    }
  }
};

// 1.5 G parameters without the text head: 5.6 GiB of f32, 2.8 of bf16; 0.24 GiB of bf16 keys and values an image.
TEST_F(DeviceMemoryOf, JanusPro1B) {
  expect(open_model("random:janus-pro:1B").spec,
         {{kF32, 1, {"fits", "fits", "fits", "fits"}},
          {kF32, 16, {"--batch-size 2, or --dtype bf16", "fits", "fits", "fits"}},
          {kF32,
           256,
           {"--batch-size 2", "--batch-size 36", "--batch-size 154, or --dtype bf16", "fits"}},
          {kBF16, 16, {"fits", "fits", "fits", "fits"}},
          {kBF16, 256, {"--batch-size 17", "--batch-size 84", "fits", "fits"}}});
}

// 6.6 G parameters without the text head: 24.6 GiB of f32, 12.3 of bf16; 0.6 GiB of bf16 keys and values an image.
TEST_F(DeviceMemoryOf, JanusPro7B) {
  expect(open_model("random:janus-pro:7B").spec,
         {{kF32, 1, {"nothing", "--dtype bf16", "fits", "fits"}},
          {kF32, 16, {"nothing", "--dtype bf16", "fits", "fits"}},
          {kF32,
           256,
           {"nothing", "--dtype bf16 --batch-size 17", "--batch-size 45", "--batch-size 97"}},
          {kBF16, 1, {"nothing", "fits", "fits", "fits"}},
          {kBF16, 256, {"nothing", "--batch-size 17", "--batch-size 111", "--batch-size 215"}}});
}

// 8,193 tokens: 2 GiB of bf16 keys and values an image.
TEST_F(DeviceMemoryOf, Emu3) {
  expect(emu3_dims(),
         {{kF32, 1, {"nothing", "--dtype bf16", "fits", "fits"}},
          {kF32,
           16,
           {"nothing", "--dtype bf16 --batch-size 3", "--batch-size 11, or --dtype bf16", "fits"}},
          {kBF16, 1, {"nothing", "fits", "fits", "fits"}},
          {kBF16, 16, {"nothing", "--batch-size 3", "fits", "fits"}}});
}

// The figures of the plan, counted by hand from the published shapes.
TEST_F(DeviceMemoryTable, PlanIsCountedFromShapes) {
  const ModelSpec spec = open_model("random:janus-pro:7B").spec;
  const MemoryRequest one{.storage = kBF16, .images = 1, .prompt_tokens = 64, .window = 8};
  const MemoryPlan plan = placed_on_device(plan_memory(spec, *backend_, one), spec, one);
  EXPECT_EQ(plan.kv,
            2u * 30 * 4096 * 2 * (64 + 575) * 2);  // k and v, layers, width, bf16, branches
  EXPECT_NEAR(static_cast<double>(plan.weights), 2 * 6.59e9, 0.02e9);
  EXPECT_EQ(plan.dists, 8u * 16384 * 4 * 2);
  EXPECT_EQ(plan.total(), plan.device_bytes() + plan.host_bytes());
  EXPECT_EQ(plan.host_bytes(), plan.process + plan.staging + plan.sampling);
  MemoryRequest eight_bits = one;
  eight_bits.kv = DType::kQ8;
  EXPECT_EQ(plan_memory(spec, *backend_, eight_bits).kv,
            2u * 30 * 32 * (128 + 4) * (64 + 575) * 2);  // a scale of f32 a head
  MemoryRequest drafts = one;
  drafts.dists = true;
  EXPECT_EQ(placed_on_device(plan, spec, drafts).dists, 8u * 16384 * 4 * 3);
  const MemoryPlan host = plan_memory(spec, *backend_, one);
  EXPECT_EQ(host.device_bytes(), 0u);
  EXPECT_EQ(host.host_bytes(), host.total());
}

// 10 an image, 2 a row of the window of each, all halved by bf16, and 5 that nothing changes.
std::size_t made_up_bytes(const MemoryRequest& request) {
  const auto part = static_cast<std::size_t>(request.images * (10 + 2 * request.window));
  return 5 + (request.storage == DType::kF32 ? part : part / 2);
}

std::string advice(const MemoryRequest& asked, std::size_t free) {
  const auto bytes_of = [](const MemoryRequest& request) { return made_up_bytes(request); };
  return fit_advice(asked, what_fits(asked, free, bytes_of));
}

TEST(WhatFits, NearestToWhatWasAskedFor) {
  const MemoryRequest asked{.storage = kF32, .images = 4, .window = 8};  // 109
  EXPECT_EQ(advice(asked, 108), "--batch-size 3, or --window 4, or --dtype bf16");
  EXPECT_EQ(advice(asked, 83), "--batch-size 3, or --window 4, or --dtype bf16");
  EXPECT_EQ(advice(asked, 77), "--batch-size 2, or --window 4, or --dtype bf16");
  EXPECT_EQ(advice(asked, 60), "--batch-size 2, or --window 1, or --dtype bf16");
  EXPECT_EQ(advice(asked, 52), "--batch-size 1");
  EXPECT_EQ(advice(asked, 30), "--dtype bf16 --batch-size 1, or --dtype bf16 --window 1");
  EXPECT_EQ(advice(asked, 17), "--batch-size 1 --window 1");
  EXPECT_EQ(advice(asked, 11), "--dtype bf16 --batch-size 1 --window 1");
  EXPECT_EQ(advice(asked, 10), "");
  const MemoryRequest least{.storage = kBF16, .images = 1, .window = 1};
  EXPECT_EQ(advice(least, 10), "") << "nothing smaller is proposed than what was asked for";
}

}  // namespace
}  // namespace tessera::device_memory_test
