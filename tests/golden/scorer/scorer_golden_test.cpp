// The bundled score against what its PyTorch training code computed on eight images, and what it
// reads from true renders. Shows as well that the comparison notices a wrong tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "apps/lab/scene/render.h"
#include "apps/lab/scorer/scorer.h"
#include "engine/checkpoint/checked_weight.h"
#include "engine/core/io.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/source_folder.h"

namespace tessera::scorer_golden_test {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;  // of the largest reference value

const fs::path kModel = source_folder() / "assets/models/tabletop-judge";
const fs::path kGolden = source_folder() / "tests/golden/scorer/scorer.safetensors";

ScorerConfig bundled_config() {
  return parse_scorer_config(read_file(kModel / "config.json", 1 << 16), "config.json");
}

Image golden_image(const Checkpoint& golden, std::int64_t index) {
  const ConstTensorView pixels = *golden.find("pixels");
  const std::int64_t side = pixels.shape[1];
  const auto* bytes = pixels.as<std::uint8_t>() + index * side * side * 3;
  return {side, side, std::vector<std::uint8_t>(bytes, bytes + side * side * 3)};
}

// max|got - want| / max|want| over the first images, for features or logits.
double deviation(const Scorer& scorer, const Checkpoint& golden, const std::string& name,
                 std::int64_t images = 8) {
  const ConstTensorView want = *golden.find(name);
  const std::int64_t width = want.shape[1];
  double worst = 0.0;
  double largest = 0.0;
  for (std::int64_t i = 0; i < images; ++i) {
    const Image image = golden_image(golden, i);
    const std::vector<float> got = name == "logits" ? scorer.logits(image) : scorer.features(image);
    EXPECT_EQ(static_cast<std::int64_t>(got.size()), width);
    for (std::int64_t j = 0; j < width; ++j) {
      const double reference = want.f32()[i * width + j];
      worst = std::max(worst, std::abs(reference - double{got[static_cast<std::size_t>(j)]}));
      largest = std::max(largest, std::abs(reference));
    }
  }
  return worst / largest;
}

TEST(ScorerGolden, EqualsTheTrainingCode) {
  const Checkpoint golden = Checkpoint::open(kGolden);
  for (const auto isa : {CpuOptions::Isa::kAuto, CpuOptions::Isa::kReference}) {
    const auto backend = chosen_backend({.threads = 2, .isa = isa});
    const Scorer scorer = Scorer::open(*backend, kModel);
    // The reference loops are slow: one image is enough for them.
    const std::int64_t images = isa == CpuOptions::Isa::kReference ? 1 : 8;
    const double features = deviation(scorer, golden, "features", images);
    const double logits = deviation(scorer, golden, "logits", images);
    std::cout << backend->name() << ": features " << features << ", logits " << logits << "\n";
    EXPECT_LE(features, kTolerance);
    EXPECT_LE(logits, kTolerance);
    if (chosen_device() != "cpu") return;
  }
}

TEST(ScorerGolden, NoticesAWrongTensor) {
  const Checkpoint golden = Checkpoint::open(kGolden);
  const auto backend = chosen_backend({.threads = 1});
  const ScorerConfig config = bundled_config();
  for (const char* changed : {"conv_in.weight", "down.1.block.0.conv2.weight", "norm_out.bias",
                              "down.2.downsample.conv.weight", "head.kind_2.weight"}) {
    const Checkpoint source = Checkpoint::open(kModel);
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, view] : source.tensors()) tensors.emplace(name, widened(view));
    Tensor& tensor = tensors.at(changed);
    for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) {
      tensor.f32()[i] += i * 2654435761u % 2 == 0 ? 1e-3f : -1e-3f;
    }
    const Scorer scorer(*backend, config, Checkpoint::from_tensors("changed", std::move(tensors)));
    EXPECT_GT(deviation(scorer, golden, "logits"), kTolerance) << changed;
  }
}

TEST(ScorerGolden, ReadsTrueRenders) {
  const auto backend = chosen_backend({.threads = 2});
  const Scorer scorer = Scorer::open(*backend, kModel);
  constexpr int kScenes = 60;
  int right = 0;
  int mismatched = 0;
  SceneAttributes last;
  for (std::uint64_t i = 0; i < kScenes; ++i) {
    const Scene scene = sample_scene(77, SceneSplit::kVal, i);
    const SceneImage decoded_image = render_scene(scene, 64);
    const SceneAttributes seen = scorer.read({decoded_image.width, decoded_image.height, decoded_image.rgb});
    const SceneAttributes truth = attributes_of(scene);
    right += score_scene(seen, truth)[Mark::kScene] == 1.0 ? 1 : 0;
    if (i > 0 && truth != last) mismatched += score_scene(seen, last)[Mark::kScene] == 1.0 ? 1 : 0;
    last = truth;
  }
  EXPECT_GE(right, kScenes * 8 / 10);
  EXPECT_EQ(mismatched, 0);
}

// Twice the size, every pixel doubled: the scorer averages back to the same image.
TEST(ScorerGolden, LargerImagesAreAveragedDown) {
  const auto backend = chosen_backend({.threads = 1});
  const Scorer scorer = Scorer::open(*backend, kModel);
  const Checkpoint golden = Checkpoint::open(kGolden);
  const Image small = golden_image(golden, 0);
  Image large(small.width * 2, small.height * 2);
  for (std::int64_t y = 0; y < large.height; ++y) {
    for (std::int64_t x = 0; x < large.width; ++x) {
      std::copy_n(small.at(x / 2, y / 2), 3, large.at(x, y));
    }
  }
  EXPECT_EQ(scorer.logits(small), scorer.logits(large));
}

}  // namespace
}  // namespace tessera::scorer_golden_test
