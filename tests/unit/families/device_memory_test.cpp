// What a run takes of a device's memory, and what would fit where it does not: published models on
// cards of several sizes.
#include <gtest/gtest.h>

#include "engine/families/memory_plan.h"
#include "engine/families/open_model.h"

namespace tessera {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::size_t gib(double value) { return static_cast<std::size_t>(value * kGiB); }

// Emu3's dimensions (9.1 G parameters with the whole vocabulary, 720 x 720 pixels) around a small
// picture tokenizer: its own is planned with the published names.
FamilySpec emu3_dims() {
  FamilySpec spec = open_model("random:janus-pro:1B").spec;
  spec.names.head_in.clear();
  ImageModelConfig& model = spec.model;
  model.transformer = {.layers = 32, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128,
                       .ffn_width = 14336};
  model.transformer.rope.positions = 9216;
  model.prompt_vocab = 151854;
  model.codes = 32768;
  model.code_width = 0;
  model.grid_rows = model.grid_cols = 90;
  model.row_end = model.image_end = true;
  return spec;
}

class DeviceMemoryTable : public testing::Test {
 protected:
  std::size_t bytes(const FamilySpec& spec, const MemoryRequest& request) const {
    return placed_on_device(plan_memory(spec, *backend_, request), spec, request).device_bytes();
  }
  // "fits", what would fit, or "nothing".
  std::string verdict(const FamilySpec& spec, const MemoryRequest& asked, double card) const {
    const std::size_t free = gib(card);
    if (bytes(spec, asked) <= free) return "fits";
    const auto fits = what_fits(
        asked, free, [&](const MemoryRequest& request) { return bytes(spec, request); });
    for (const MemoryRequest& fit : fits) EXPECT_LE(bytes(spec, fit), free);
    return fits.empty() ? "nothing" : fit_advice(asked, fits);
  }

  std::unique_ptr<Backend> backend_ = make_backend("cpu", {.threads = 1});
};

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

TEST_F(DeviceMemoryTable, Prints) {
  const FamilySpec j1 = open_model("random:janus-pro:1B").spec, j7 = open_model("random:janus-pro:7B").spec, e = emu3_dims();
  for (const FamilySpec* s : {&j1, &j7, &e})
    for (const DType d : {kF32, kBF16})
      for (const std::int64_t n : {1, 16, 256})
        for (const std::int64_t w : {1, 64})
        for (const double card : {7.5, 23.5, 79.0, 140.0}) {
          const MemoryRequest r{.storage = d, .images = n, .window = w, .laws = w > 1};
          printf("%s %s n=%ld w=%ld card %.1f: %.2f %s\n", s == &e ? "emu3" : s->size.c_str(), d == kF32 ? "f32" : "bf16", n, w, card, bytes(*s, r) / kGiB, verdict(*s, r, card).c_str());
        }
}
}  // namespace
}  // namespace tessera
