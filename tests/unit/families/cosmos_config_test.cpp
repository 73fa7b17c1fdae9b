// Configurations of Cosmos: what is read from them, what is taken from shapes without them, where
// the tokenizer is looked for, and what is refused by key.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "apps/lab/models/test_models.h"
#include "engine/core/json.h"
#include "engine/families/open_model.h"
#include "engine/families/registry.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/temp_folder.h"

namespace tessera::cosmos_config_test {
namespace {

namespace fs = std::filesystem;

Json cosmos(const char* name = "cosmos") { return parse_json(test_model_config(name), "cosmos"); }

TEST(CosmosConfig, FormsDifferAsTheConfigurationSays) {
  const ModelSpec plain = parse_family_config(cosmos().dump(), "c");
  EXPECT_EQ(plain.family, "cosmos");
  EXPECT_EQ(plain.model.prompt, PromptKind::kFrames);
  EXPECT_EQ(plain.model.max_prompt, 0);
  EXPECT_EQ(plain.model.grids, 3);
  EXPECT_EQ(plain.image_width(), 48);
  EXPECT_EQ(plain.image_height(), 32);
  EXPECT_EQ(plain.video->frames_of(3), 17);
  EXPECT_EQ(plain.video->grids_of(16), 2);
  EXPECT_EQ(plain.video->grids_of(17), 3);
  EXPECT_EQ(plain.video->rate, 25);
  EXPECT_EQ(plain.model.transformer.rope.rows(), 64);
  EXPECT_DOUBLE_EQ(plain.model.transformer.rope.yarn.factor, 1.0);
  EXPECT_DOUBLE_EQ(plain.sampling.guidance, 1.0);
  EXPECT_DOUBLE_EQ(plain.sampling.top_p, 0.8);
  EXPECT_FALSE(plain.context.has_value());
  EXPECT_FALSE(plain.names.cross.has_value());
  const ModelSpec text = parse_family_config(cosmos("cosmos-text").dump(), "c");
  EXPECT_EQ(text.model.max_prompt, 1);
  EXPECT_EQ(text.names.prompt_rows.front().first, 60);
  EXPECT_EQ(text.model.transformer.rope.condition_rows, 1);
  EXPECT_TRUE(text.model.transformer.added_places);
  EXPECT_EQ(text.context->rows, 512);
  EXPECT_EQ(text.context->width, 24);
}

// Nothing but the two fields that tell the family: the rest is the published 4B's.
TEST(CosmosConfig, AbsentKeysAreTheAuthorsOwn) {
  const ModelSpec spec =
      parse_family_config(R"({"dim": 4096, "n_layers": 16, "use_qk_normalization": true})", "c");
  EXPECT_EQ(spec.size, "4B");
  EXPECT_EQ(spec.model.codes, 64000);
  EXPECT_EQ(spec.model.grids, 5);
  EXPECT_EQ(spec.model.grid_rows, 40);
  EXPECT_EQ(spec.model.grid_cols, 64);
  EXPECT_EQ(spec.model.image_tokens(), 12800);
  EXPECT_EQ(spec.image_width(), 1024);
  EXPECT_EQ(spec.video->frames_of(5), 33);
  EXPECT_DOUBLE_EQ(spec.model.transformer.rope.theta, 500000.0);
  EXPECT_TRUE(spec.model.transformer.rope.rounded);
}

struct Bad {
  const char* place;  // in the message
  std::function<void(Json&)> edit;
};

TEST(CosmosConfig, WhatCannotBeIsRefusedByKey) {
  const std::vector<Bad> cases = {
      {"n_kv_heads", [](Json& c) { c["n_kv_heads"] = 3; }},
      {"head_dim", [](Json& c) { c["head_dim"] = 15; }},
      {"head_dim",
       [](Json& c) {
         c["n_heads"] = 32;
         c["n_kv_heads"] = 32;
       }},
      {"dim", [](Json& c) { c["dim"] = 0; }},
      {"norm_type", [](Json& c) { c["norm_type"] = "layernorm"; }},
      {"causal_mask", [](Json& c) { c["causal_mask"] = false; }},
      {"rope_dim", [](Json& c) { c["rope_dim"] = "1D"; }},
      {"pytorch_rope_version", [](Json& c) { c["pytorch_rope_version"] = "v1"; }},
      {"yarn_beta_fast",
       [](Json& c) {
         c["apply_yarn"] = true;
         c["yarn_beta_fast"] = 1;
       }},
      {"original_latent_shape",
       [](Json& c) {
         c["apply_yarn"] = true;
         c["original_latent_shape"] = {3, 40};
       }},
      {"insert_cross_attn_every_k_layers",
       [](Json& c) {
         c["insert_cross_attn"] = true;
         c["insert_cross_attn_every_k_layers"] = 2;
       }},
      {"video_latent_shape",
       [](Json& c) {
         c["video_latent_shape"] = {3, 2};
       }},
      {"video_height",
       [](Json& c) {
         c["video_latent_shape"] = {3, 2000, 3};
       }},
      {"vocab_size", [](Json& c) { c["vocab_size"] = 64; }},
      {"levels",
       [](Json& c) {
         c["video_tokenizer"]["levels"] = {256, 256, 256};
       }},
      {"levels",
       [](Json& c) {
         c["video_tokenizer"]["levels"] = {5, 4, 1};
       }},
      {"patch_size", [](Json& c) { c["video_tokenizer"]["patch_size"] = 3; }},
      {"spatial_compression", [](Json& c) { c["video_tokenizer"]["spatial_compression"] = 64; }},
      {"temporal_compression", [](Json& c) { c["video_tokenizer"]["temporal_compression"] = 2; }},
      {"temporal_compression", [](Json& c) { c["video_tokenizer"]["temporal_compression"] = 16; }},
      {"channels_mult", [](Json& c) { c["video_tokenizer"]["channels_mult"] = Json::array(); }},
  };
  for (const Bad& bad : cases) {
    Json config = cosmos();
    bad.edit(config);
    try {
      parse_family_config(config.dump(), "c");
      ADD_FAILURE() << bad.place << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      EXPECT_NE(std::string(error.what()).find(bad.place), std::string::npos) << error.what();
    }
  }
}

void write_weights(const fs::path& path, const std::vector<TensorSpec>& list,
                   const std::string& root) {
  const std::map<std::string, Tensor> tensors = hashed_weights(list);
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const bool tokenizer = name.starts_with("tokenizer.");
    if (tokenizer == (root == "tokenizer.")) {
      views.emplace(tokenizer ? name.substr(root.size()) : root + name, tensor.view());
    }
  }
  write_safetensors(path, views);
}

// Weights under names with a prefix, a tokenizer next to them that needs its own file.
TEST(CosmosConfig, TheTokenizerIsAFolderOfItsOwn) {
  const ModelSpec made = parse_family_config(cosmos("cosmos-text").dump(), "c");
  const TempFolder folder;
  const fs::path model = folder / "model";
  fs::create_directory(model);
  put_file(model / "config.json", cosmos("cosmos-text").dump());
  write_weights(model / "model.safetensors", made.tensors, "model.");
  const auto refused = [&] {
    try {
      open_model(model.string());
    } catch (const Error& error) {
      return error.info().code + " " + error.what();
    }
    return std::string("accepted");
  };
  EXPECT_TRUE(refused().starts_with("E_COSMOS_TOKENIZER")) << refused();
  const fs::path next_to = folder / "Cosmos-Tokenize1-DV8x16x16-720p";
  fs::create_directory(next_to);
  put_file(next_to / "autoencoder.jit", "PK");
  EXPECT_NE(refused().find("TorchScript"), std::string::npos) << refused();
  EXPECT_NE(refused().find("state_dict()"), std::string::npos);
  write_weights(next_to / "model.safetensors", made.tensors, "tokenizer.");
  const OpenedModel opened = open_model(model.string());
  EXPECT_EQ(opened.spec.names.head_out, "model.output");
  EXPECT_EQ(fs::canonical(opened.spec.vq_weights), fs::canonical(next_to));
  EXPECT_EQ(opened.spec.fsq->prefix, "");
  EXPECT_EQ(opened.spec.model.max_prompt, 1);
}

// Without config.json the shapes tell everything but the grid, the tokenizer and the number of
// codes, which are the published ones: a small file is found out by its head.
TEST(CosmosConfig, WithoutAConfigurationTheShapesTell) {
  Json config = cosmos();
  const ModelSpec made = parse_family_config(config.dump(), "c");
  const TempFolder folder;
  write_weights(folder / "model.safetensors", made.tensors, "");
  try {
    load_model_spec(folder.path());
    FAIL() << "60 codes are no 64000";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_COSMOS_TOKENIZER");
  }
  fs::create_directory(folder / "tokenizer");
  write_weights(folder / "tokenizer" / "model.safetensors", made.tensors, "tokenizer.");
  try {
    load_model_spec(folder.path());
    FAIL() << "60 codes are no 64000";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("vocab_size"), std::string::npos) << error.what();
  }
  put_file(folder / "config.json",
           Json{{"video_tokenizer", config["video_tokenizer"]}, {"video_latent_shape", {3, 2, 3}}}
               .dump());
  const ModelSpec spec = load_model_spec(folder.path());
  const ModelConfig& model = spec.model.transformer;
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.width, 64);
  EXPECT_EQ(model.heads, 4);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.ffn_width, 96);
  EXPECT_EQ(model.context_width, 0);
  EXPECT_NO_THROW(open_model(folder.path().string()));
}

}  // namespace
}  // namespace tessera::cosmos_config_test
