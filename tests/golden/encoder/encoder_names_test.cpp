// The published towers by name and shape (assets/recipes/fixtures_encoder.py): their configuration
// must give exactly these tensors; a sparse file with them is accepted, one name less, one more or
// one of another shape is refused by that name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/families/registry.h"
#include "tests/support/published_names.h"
#include "tests/support/temp_folder.h"
#include "vision/encoder/vision_encoder.h"
#include "engine/towers/vision_tower.h"

namespace tessera::encoder_names_test {
namespace {

struct Case {
  std::string stem;
  std::int64_t layers, width, patches, tokens;  // tokens: rows that one image of its size gives
  std::string later_prefix;  // how newer files begin the encoder's names; empty = the same
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.stem; }

PublishedNames published(const std::string& stem) {
  return read_published_names(std::filesystem::path(TESSERA_SOURCE_DIR) /
                              "tests/golden/encoder/names" / (stem + ".txt"));
}

VisionTower tower_of(const PublishedNames& names) {
  return parse_vision_tower(parse_json(names.config, "config"), "config");
}

class PublishedTower : public ::testing::TestWithParam<Case> {};

TEST_P(PublishedTower, ConfigurationGivesTheseTensors) {
  const PublishedNames names = published(GetParam().stem);
  const VisionTower tower = tower_of(names);
  std::map<std::string, Shape> want, got;
  for (const TensorSpec& tensor : names.tensors) want.emplace(tensor.name, tensor.shape);
  for (const TensorSpec& tensor : tower_tensors(tower)) {
    EXPECT_TRUE(got.emplace(tensor.name, tensor.shape).second) << tensor.name;
  }
  for (const auto& [name, shape] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name), shape) << name;
  }
  // SigLIP's and CLIP's pooling heads are in no file of these; nothing may be added.
  for (const auto& [name, shape] : got) EXPECT_TRUE(want.contains(name)) << name;
  EXPECT_EQ(tower.vit.layers, GetParam().layers);
  EXPECT_EQ(tower.vit.width, GetParam().width);
}

TEST_P(PublishedTower, ImagesGiveTheKnownNumberOfRows) {
  const Case& c = GetParam();
  const VisionTower tower = tower_of(published(c.stem));
  const std::int64_t side = c.patches * tower.vit.patch;
  const VitGrid grid = vit_grid(tower.vit, {3, side, side});
  EXPECT_EQ(grid.patches(), c.patches * c.patches);
  EXPECT_EQ(grid.patches() / (tower.projector.cell * tower.projector.cell), c.tokens);
  EXPECT_GT(VisionEncoder::scratch_bytes(tower.vit, grid.patches()),
            static_cast<std::size_t>(6 * grid.patches() * tower.vit.width) * sizeof(float));
}

void expect_refused(const VisionTower& tower, const std::vector<TensorSpec>& tensors,
                    const std::string& name, const std::string& kind) {
  const TempFolder folder;
  write_sparse_safetensors(folder / "model.safetensors", tensors);
  const Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors");
  try {
    check_tower_tensors(tower, checkpoint);
    ADD_FAILURE() << "accepted with " << kind << " " << name;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_EQ(error.info().where, name);
    EXPECT_NE(error.info().found.find(kind), std::string::npos) << error.what();
  }
}

TEST_P(PublishedTower, OneNameChangedIsRefused) {
  const PublishedNames names = published(GetParam().stem);
  VisionTower tower = tower_of(names);
  {
    const TempFolder folder;
    std::vector<TensorSpec> whole = names.tensors;
    whole.push_back({"language_model.model.embed_tokens.weight", {4, 4}});  // another part's
    write_sparse_safetensors(folder / "model.safetensors", whole);
    const Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors");
    locate_tower(tower, checkpoint);
    check_tower_tensors(tower, checkpoint);
  }
  for (std::size_t at = 1; at < names.tensors.size(); at += names.tensors.size() / 3) {
    std::vector<TensorSpec> fewer = names.tensors;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    expect_refused(tower, fewer, names.tensors[at].name, "missing");
    std::vector<TensorSpec> wrong = names.tensors;
    std::vector<std::int64_t> extents(wrong[at].shape.extents().begin(),
                                      wrong[at].shape.extents().end());
    extents.back() += 1;
    wrong[at].shape = Shape(extents);
    expect_refused(tower, wrong, names.tensors[at].name, "wrong");
  }
  std::vector<TensorSpec> more = names.tensors;
  more.push_back({tower.vit.names.prefix + "stranger.weight", {4}});
  expect_refused(tower, more, tower.vit.names.prefix + "stranger.weight", "surplus");
}

// Newer releases write the same tensors after another prefix.
TEST_P(PublishedTower, LaterNamesAreFound) {
  const Case& c = GetParam();
  if (c.later_prefix.empty()) return;
  const PublishedNames names = published(c.stem);
  VisionTower tower = tower_of(names);
  const std::string old_prefix = tower.vit.names.prefix;
  std::vector<TensorSpec> renamed = names.tensors;
  for (TensorSpec& tensor : renamed) {
    tensor.name = tensor.name.starts_with(old_prefix)
                      ? c.later_prefix + tensor.name.substr(old_prefix.size())
                      : "model." + tensor.name;
  }
  const TempFolder folder;
  write_sparse_safetensors(folder / "model.safetensors", renamed);
  const Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors");
  locate_tower(tower, checkpoint);
  EXPECT_EQ(tower.vit.names.prefix, c.later_prefix);
  check_tower_tensors(tower, checkpoint);
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedTower,
    ::testing::Values(
        Case{"llava-1.5-7b", 24, 1024, 24, 576, "model.vision_tower."},
        Case{"llava-1.5-13b", 24, 1024, 24, 576, "model.vision_tower.vision_model."},
        Case{"llava-onevision-0.5b", 26, 1152, 27, 729, "model.vision_tower."},
        Case{"llava-onevision-7b", 26, 1152, 27, 729, "model.vision_tower.vision_model."},
        Case{"janus-pro-1b", 24, 1024, 24, 576, ""}, Case{"janus-pro-7b", 24, 1024, 24, 576, ""},
        Case{"qwen2-vl-2b", 32, 1280, 16, 64, "model.visual."},
        Case{"qwen2-vl-7b", 32, 1280, 16, 64, "model.visual."},
        Case{"qwen2.5-vl-3b", 32, 1280, 16, 64, "model.visual."},
        Case{"qwen2.5-vl-7b", 32, 1280, 16, 64, "model.visual."},
        Case{"smolvlm-256m", 12, 768, 32, 64, ""}, Case{"smolvlm-500m", 12, 768, 32, 64, ""},
        Case{"smolvlm-2.2b", 27, 1152, 27, 81, ""}, Case{"idefics3-8b", 27, 1152, 26, 169, ""}));

// The original's config.json names its tower; its files, and CLIP's own, name the same tensors.
TEST(PublishedTowers, OriginalLlavaFilesAreFound) {
  const std::string config = R"({"model_type":"llava_llama","hidden_size":4096,
      "mm_hidden_size":1024,"mm_projector_type":"mlp2x_gelu","mm_vision_select_feature":"patch",
      "mm_vision_select_layer":-2,"mm_vision_tower":"openai/clip-vit-large-patch14-336"})";
  const PublishedNames port = published("llava-1.5-7b");
  for (const char* prefix : {"model.vision_tower.vision_tower.vision_model.", "vision_model."}) {
    VisionTower tower = parse_vision_tower(parse_json(config, "config"), "config");
    std::vector<TensorSpec> renamed = port.tensors;
    for (TensorSpec& tensor : renamed) {
      const auto replace = [&](const std::string& from, const std::string& to) {
        if (tensor.name.starts_with(from)) tensor.name = to + tensor.name.substr(from.size());
      };
      replace("vision_tower.vision_model.", prefix);
      replace("multi_modal_projector.linear_1.", "model.mm_projector.0.");
      replace("multi_modal_projector.linear_2.", "model.mm_projector.2.");
    }
    const TempFolder folder;
    write_sparse_safetensors(folder / "model.safetensors", renamed);
    const Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors");
    locate_tower(tower, checkpoint);
    EXPECT_EQ(tower.vit.names.prefix, prefix);
    check_tower_tensors(tower, checkpoint);
    EXPECT_EQ(tower.vit.run_layers, 23);
    EXPECT_FALSE(tower.vit.class_token_feature);
    const VisionTower same = tower_of(port);
    EXPECT_EQ(tower.vit.grid, same.vit.grid);
    EXPECT_EQ(tower.vit.activation, same.vit.activation);
    EXPECT_EQ(tower.vit.norm_eps, same.vit.norm_eps);
    EXPECT_EQ(tower.projector.activation, same.projector.activation);
  }
}

// One entry or a list, counted from either end.
TEST(PublishedTowers, FeatureLayersAndStrategies) {
  const auto tower = [](const std::string& more, const char* kind = "clip_vision_model") {
    return parse_vision_tower(
        parse_json(
            R"({"model_type":"llava","vision_config":{"num_hidden_layers":24,"model_type":")" +
                std::string(kind) + "\"}" + more + "}",
            "config"),
        "config");
  };
  EXPECT_EQ(tower("").vit.run_layers, 23);
  EXPECT_EQ(tower(R"(,"vision_feature_layer":-1)").vit.run_layers, 24);
  EXPECT_EQ(tower(R"(,"vision_feature_layer":3)").vit.run_layers, 3);
  EXPECT_EQ(tower(R"(,"vision_feature_layer":[-2])").vit.run_layers, 23);
  EXPECT_TRUE(tower(R"(,"vision_feature_layer":[-2])").vit.taps.empty());
  const VisionTower listed = tower(R"(,"vision_feature_layer":[-3,0,5])");
  EXPECT_EQ(listed.vit.run_layers, 22);
  EXPECT_EQ(listed.vit.taps, (std::vector<std::int64_t>{22, 0, 5}));
  EXPECT_EQ(listed.projector.in_width, 3 * 768);
  EXPECT_FALSE(listed.vit.class_token_feature);
  EXPECT_TRUE(tower(R"(,"vision_feature_select_strategy":"full")").vit.class_token_feature);
  const VisionTower siglip =
      tower(R"(,"vision_feature_select_strategy":"full")", "siglip_vision_model");
  EXPECT_FALSE(siglip.vit.class_token);
  const VisionTower onevision = tower_of(published("llava-onevision-7b"));
  EXPECT_EQ(onevision.vit.run_layers, 26);
  EXPECT_EQ(onevision.vit.final_norm, VitFinalNorm::kUnused);
}

TEST(PublishedTowers, AFileOfAnotherModelIsRefused) {
  VisionTower tower = tower_of(published("qwen2-vl-2b"));
  const TempFolder folder;
  write_sparse_safetensors(folder / "model.safetensors", published("smolvlm-256m").tensors);
  const Checkpoint checkpoint = Checkpoint::open(folder / "model.safetensors");
  try {
    locate_tower(tower, checkpoint);
    FAIL() << "found a tower that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_TOWER_LAYOUT");
    EXPECT_NE(error.info().expected.find("visual.patch_embed.proj.weight"), std::string::npos);
  }
}

// 384 pixels are 27 patches of 14 and six pixels that nobody reads.
TEST(PublishedTowers, PixelsAfterTheLastPatchAreNotRead) {
  const VisionTower tower = tower_of(published("smolvlm-2.2b"));
  EXPECT_EQ(vit_grid(tower.vit, {3, 384, 384}).patches(), 729);
}

// The layer that LLaVA never reads is checked for, but not loaded.
TEST(PublishedTowers, LlavaStopsBeforeTheLastLayer) {
  EXPECT_EQ(tower_of(published("llava-1.5-7b")).vit.run_layers, 23);
  EXPECT_EQ(tower_of(published("janus-pro-1b")).vit.run_layers, 24);
  const VisionTower windows = tower_of(published("qwen2.5-vl-7b"));
  EXPECT_EQ(windows.vit.window, 4);
  EXPECT_TRUE(windows.vit.has_window(0));
  EXPECT_FALSE(windows.vit.has_window(31));
}

TEST(TowerConfig, StrangeConfigurationsAreRefused) {
  const auto refused = [](const std::string& json, const std::string& where) {
    try {
      parse_vision_tower(parse_json(json, "config.json"), "config.json");
      ADD_FAILURE() << "accepted " << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what();
    }
  };
  refused(R"({"model_type":"blip"})", "model_type");
  refused(R"({"model_type":"llava","vision_config":{"model_type":"dino"}})", "model_type");
  refused(R"({"model_type":"llava","vision_config":{"model_type":"clip_vision_model",
          "hidden_act":"relu"}})",
          "hidden_act");
  refused(R"({"model_type":"llava","vision_config":{"model_type":"clip_vision_model",
          "num_attention_heads":7}})",
          "heads");
  refused(R"({"model_type":"llava","vision_feature_layer":-99,
          "vision_config":{"model_type":"clip_vision_model"}})",
          "vision_feature_layer");
  refused(R"({"model_type":"llava","vision_feature_layer":[],
          "vision_config":{"model_type":"clip_vision_model"}})",
          "vision_feature_layer");
  refused(R"({"model_type":"llava","vision_feature_layer":[-2,13],
          "vision_config":{"model_type":"clip_vision_model"}})",
          "vision_feature_layer");
  refused(R"({"model_type":"llava","vision_feature_layer":0,
          "vision_config":{"model_type":"clip_vision_model"}})",
          "feature layer");
  refused(R"({"model_type":"llava","vision_feature_select_strategy":"cls_patch",
          "vision_config":{"model_type":"clip_vision_model"}})",
          "vision_feature_select_strategy");
  // Its first row is a patch, which must not be dropped silently.
  refused(R"({"model_type":"llava","vision_config":{"model_type":"siglip_vision_model"}})",
          "vision_feature_select_strategy");
  refused(R"({"model_type":"llava","mm_vision_tower":"google/siglip"})", "mm_vision_tower");
  refused(R"({"model_type":"llava","mm_vision_tower":"openai/clip-vit-large-patch14",
          "mm_projector_type":"identity","hidden_size":64})",
          "mm_projector_type");
  refused(R"({"model_type":"qwen2_5_vl","vision_config":{"hidden_size":1280,"window_size":14}})",
          "window_size");
  refused(R"({"model_type":"qwen2_5_vl","vision_config":{"hidden_size":1280,
          "fullatt_block_indexes":[32]}})",
          "fullatt_block_indexes");
  refused(R"({"model_type":"idefics3","vision_config":{}})", "text_config");
}

}  // namespace
}  // namespace tessera::encoder_names_test
