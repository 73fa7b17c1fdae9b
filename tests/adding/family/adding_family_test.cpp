// The page docs/adding-a-model.md adds a family in three files, and a folder of it gives one model
// that writes image codes and text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/lab/models/random_weights.h"
#include "engine/families/describe.h"
#include "engine/families/open_model.h"
#include "tests/adding/page.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

using testing::files_of;
using testing::lines_of;

TEST(AddingAFamily, TakesThreeFiles) {
  EXPECT_EQ(files_of("adding-a-model"),
            (std::set<std::string>{"engine/families/sketch.cpp", "engine/families/registry.cpp",
                                   "tests/unit/families/sketch_config_test.cpp"}));
}

TEST(AddingAFamily, OnlyAddsLines) {
  EXPECT_TRUE(lines_of("adding-a-model", '-').empty());
  EXPECT_EQ(lines_of("adding-a-model", '+', "registry.cpp").size(), 2u)
      << "a declaration and a place in the table";
}

TEST(AddingAFamily, TheTableHasIt) {
  EXPECT_NE(describing_types().find("sketch"), std::string::npos);
  EXPECT_EQ(preprocess_policy("sketch").mode, ResizeMode::kStretch);
  EXPECT_EQ(chat_forms().back()->name, "sketch");
  EXPECT_EQ(family_names().back(), "sketch");
}

TEST(AddingAFamily, OneModelWritesCodesAndText) {
  const TempFolder folder;
  put_file(folder / "config.json", R"({"model_type": "sketch",
    "text_config": {"model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
      "vocab_size": 40, "max_position_embeddings": 64},
    "image_config": {"codes": 64, "grid": 4, "vq_groups": 1},
    "vision_config": {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 3, "image_size": 16, "patch_size": 4}})");
  ModelSpec spec = load_model_spec(folder.path(), {.use = ModelUse::kAll});
  std::map<std::string, Tensor> tensors;
  for (const auto& list : {spec.tensors, describing_tensors(spec)}) {
    for (const TensorSpec& tensor : list) {
      tensors.emplace(tensor.name, random_weight(tensor.name, tensor.shape, {.matrix_std = 0}));
    }
  }
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
  write_safetensors(folder / "model.safetensors", views);
  OpenedModel opened = open_model(std::move(spec));
  const auto backend = make_backend("cpu", {.threads = 1});
  const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
  for (const TokenSpace space : {TokenSpace::kImage, TokenSpace::kText}) {
    ModelRunner runner(model.space(space), 1, 8);
    const auto logits = runner.logits(runner.forward({{0, runner.prompt_rows({3, 1, 4})}}));
    EXPECT_EQ(logits.size(), space == TokenSpace::kImage ? 3u * 64 : 3u * 40);
    for (const float value : logits) EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace tessera
