// One call from pixels to rows of the language model, on the recorded towers: the reference's rows,
// whatever stands next to a tile; in two steps; under the original's names; wrong input refused. And
// feature maps resized as PyTorch does (assets/recipes/fixtures_encoder.py).
#include "vision/encoder/tile_encoder.h"
#include "engine/families/registry.h"
#include "engine/ops/host_access.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/source_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/checked_weight.h"
#include "vision/encoder/feature_map.h"

namespace tessera::image_encoder_test {
namespace {

const std::filesystem::path kGolden = source_folder() / "tests" / "golden" / "encoder";

double relative_difference(ConstTensorView got, ConstTensorView want) {
  if (got.shape.elements() != want.shape.elements()) return HUGE_VAL;
  double worst = 0, scale = 0;
  for (std::int64_t i = 0; i < want.shape.elements(); ++i) {
    const double difference =
        std::abs(static_cast<double>(got.f32()[i]) - static_cast<double>(want.f32()[i]));
    if (!(difference <= HUGE_VAL)) return HUGE_VAL;
    worst = std::max(worst, difference);
    scale = std::max(scale, std::abs(static_cast<double>(want.f32()[i])));
  }
  return scale > 0 ? worst / scale : HUGE_VAL;
}

struct Recorded {
  Checkpoint weights, recorded;
  Json config;

  explicit Recorded(const std::string& name)
      : weights(Checkpoint::open(kGolden / (name + ".safetensors"))),
        recorded(Checkpoint::open(kGolden / (name + ".recorded.safetensors"))),
        config(parse_json(weights.metadata().at("config"), "config")) {}

  VisionTower tower() const { return parse_vision_tower(config, "config"); }
};

bool same_rows(Backend& backend, const ImageFeatures& a, const RowRun& rows_a,
               const ImageFeatures& b, const RowRun& rows_b) {
  const std::int64_t width = a.rows.shape()[1];
  const HostView of_a(backend, a.rows.view()), of_b(backend, b.rows.view());
  return rows_a.count() == rows_b.count() &&
         std::memcmp(of_a.f32() + rows_a.begin * width, of_b.f32() + rows_b.begin * width,
                     static_cast<std::size_t>(rows_a.count() * width) * sizeof(float)) == 0;
}

class ImageEncoderTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ImageEncoderTest, TilesGiveTheReferencesRowsTogetherAndAlone) {
  const Recorded model(GetParam());
  const auto backend = chosen_backend({.threads = 2});
  const ImageEncoder encoder(*backend, model.tower(), "config", model.weights, DType::kF32);
  const ConstTensorView pixels = *model.recorded.find("a.pixels");
  const ConstTensorView want = *model.recorded.find("a.projected");
  EXPECT_EQ(encoder.out_width(), want.shape[want.shape.rank() - 1]);
  EXPECT_EQ(encoder.row_count(pixels.shape) * encoder.out_width(), want.shape.elements());

  Tensor other = Tensor::host(DType::kF32, pixels.shape);
  for (std::int64_t i = 0; i < pixels.shape.elements(); ++i) {
    other.f32()[i] = 1.0f - pixels.f32()[i];
  }
  const EncoderInput tiles[] = {{.pixels = other.view()}, {.pixels = pixels}};
  const ImageFeatures together = encoder.run(tiles);
  ImageOptions options;
  options.signals = {{0, TowerSignalKind::kKeys}};
  const ImageFeatures observed = encoder.run(tiles, options);
  const ImageFeatures alone = encoder.run({&tiles[1], 1});
  ASSERT_EQ(together.tiles.size(), 2u);
  EXPECT_EQ(together.rows.shape()[0], 2 * encoder.row_count(pixels.shape));
  EXPECT_EQ(together.tiles[1].rows.begin, together.tiles[0].rows.end);
  EXPECT_TRUE(same_rows(*backend, together, together.tiles[1].rows, alone, alone.tiles[0].rows));
  EXPECT_TRUE(
      same_rows(*backend, together, together.tiles[1].rows, observed, observed.tiles[1].rows));
  EXPECT_FALSE(same_rows(*backend, together, together.tiles[0].rows, alone, alone.tiles[0].rows));
  EXPECT_LE(relative_difference(HostView(*backend, alone.rows.view()).view(), want), 1e-5);
  EXPECT_EQ(observed.signals.size(), 1u);
  EXPECT_EQ(observed.signals[0].places.size(),
            static_cast<std::size_t>(observed.signals[0].values.shape()[0]));
  EXPECT_EQ(encoder.run({}).rows.shape()[0], 0);
}

// Features taken out and put back by hand give the same rows.
TEST_P(ImageEncoderTest, TwoStepsAreOne) {
  const Recorded model(GetParam());
  const auto backend = chosen_backend({.threads = 1});
  const ImageEncoder encoder(*backend, model.tower(), "config", model.weights, DType::kF32);
  const EncoderInput tile{.pixels = *model.recorded.find("a.pixels")};
  const ImageFeatures whole = encoder.run({&tile, 1});
  const EncodedTiles image = encoder.encode({&tile, 1});
  // Rows come in block order, so that the patches of a merged cell stand together; only the pixel
  // shuffle has to sort them.
  if (GetParam() != "idefics3") {
    const Tensor rows = encoder.project_rows(image.tiles[0].features.view());
    ASSERT_EQ(rows.bytes(), whole.rows.bytes());
    EXPECT_EQ(std::memcmp(HostView(*backend, rows.view()).f32(),
                          HostView(*backend, whole.rows.view()).f32(), rows.bytes()),
              0);
  }
  EXPECT_EQ(image.tiles[0].features.shape()[1], encoder.spec().feature_width());
}

INSTANTIATE_TEST_SUITE_P(Towers, ImageEncoderTest,
                         ::testing::Values("clip", "clip_last", "clip_list", "siglip", "janus",
                                         "idefics3", "qwen2_vl", "qwen2_5_vl"),
                         [](const auto& param) { return param.param; });

// What the class token's row looks like when it is kept, and that the rest is the same without.
TEST(ImageEncoders, TheClassTokenStaysWhenItIsAskedFor) {
  const Recorded model("clip");
  const auto backend = chosen_backend({.threads = 1});
  const ImageEncoder encoder(*backend, model.tower(), "config", model.weights, DType::kF32);
  const EncoderInput tile{.pixels = *model.recorded.find("a.pixels")};
  const ImageFeatures plain = encoder.run({&tile, 1});
  ImageOptions options;
  options.keep_class_token = true;
  options.signals = {{encoder.spec().run_layers - 1, TowerSignalKind::kHidden}};
  const ImageFeatures kept = encoder.run({&tile, 1}, options);
  EXPECT_EQ(kept.tiles[0].cells.front(), -1);
  EXPECT_EQ(plain.tiles[0].cells.front(), 0);
  EXPECT_TRUE(same_rows(*backend, kept, {1, kept.rows.shape()[0]}, plain, plain.tiles[0].rows));
  const EncodedTiles encoded = encoder.encode({&tile, 1}, options);
  const HostView features(*backend, encoded.tiles[0].features.view());
  EXPECT_EQ(
      std::memcmp(features.f32(), kept.signals[0].values.f32(), kept.signals[0].values.bytes()), 0);
}

// The original's names for tower and projector hold the same model.
TEST(ImageEncoders, OriginalLlavaNamesAreTheSameModel) {
  const Recorded model("clip");
  const auto backend = chosen_backend({.threads = 1});
  const EncoderInput tile{.pixels = *model.recorded.find("a.pixels")};
  const ImageEncoder port(*backend, model.tower(), "config", model.weights, DType::kF32);
  const ImageFeatures want = port.run({&tile, 1});
  for (const char* tower : {"model.vision_tower.vision_tower.vision_model.", "vision_model."}) {
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, view] : model.weights.tensors()) {
      std::string renamed = name;
      const auto replace = [&](const std::string& from, const std::string& to) {
        if (renamed.starts_with(from)) renamed = to + renamed.substr(from.size());
      };
      replace("vision_tower.vision_model.", tower);
      replace("multi_modal_projector.linear_1", "model.mm_projector.0");
      replace("multi_modal_projector.linear_2", "model.mm_projector.2");
      tensors.emplace(renamed, widened(view));
    }
    const Checkpoint renamed = Checkpoint::from_tensors("renamed", std::move(tensors));
    const ImageEncoder original(*backend, model.tower(), "config", renamed, DType::kF32);
    const ImageFeatures got = original.run({&tile, 1});
    EXPECT_TRUE(same_rows(*backend, got, got.tiles[0].rows, want, want.tiles[0].rows)) << tower;
  }
}

TEST(ImageEncoders, ImagesThatAreNoWholeCellsAreRefused) {
  const Recorded model("idefics3");
  const auto backend = chosen_backend({.threads = 1});
  const ImageEncoder encoder(*backend, model.tower(), "config", model.weights, DType::kF32);
  const Tensor odd = Tensor::host(DType::kF32, {3, 20, 28});  // 5 x 7 patches, cells of 2 x 2
  const EncoderInput tile{.pixels = odd.view()};
  try {
    encoder.run({&tile, 1});
    FAIL() << "accepted half a cell";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_VIT_PIXELS");
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST(FeatureMap, EqualsTheReference) {
  const Checkpoint recorded = Checkpoint::open(kGolden / "feature_map.safetensors");
  for (const std::string name : {"a", "b", "c"}) {
    const std::int32_t* sizes = recorded.find(name + ".sizes")->as<std::int32_t>();
    const MapSize from{sizes[0], sizes[1]}, to{sizes[2], sizes[3]};
    const ConstTensorView x = *recorded.find(name + ".from");
    const Tensor got = resize_map(x, from, to);
    EXPECT_LE(relative_difference(got.view(), *recorded.find(name + ".to")), 1e-6) << name;
    const Tensor same = resize_map(x, from, from);
    EXPECT_EQ(std::memcmp(same.f32(), x.f32(), x.bytes()), 0);
  }
}

// Images of 1024 x 768 and 1920 x 1080 pixels, and a map at the very edge.
TEST(FeatureMap, OneVisionSizes) {
  EXPECT_EQ(onevision_map_size({54, 73}, 27), (MapSize{54, 73}));
  EXPECT_EQ(onevision_map_size({75, 135}, 27), (MapSize{60, 108}));
  EXPECT_EQ(onevision_map_size({162, 162}, 27), (MapSize{81, 81}));  // t = 2
  EXPECT_EQ(onevision_map_size({81, 81}, 27), (MapSize{81, 81}));    // t = 1
}

}  // namespace
}  // namespace tessera::image_encoder_test
