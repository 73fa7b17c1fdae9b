// Configurations of Emu3 and of small models of videos: what is read from them, and what is refused
// by key.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "apps/lab/models/test_models.h"
#include "engine/core/json.h"
#include "engine/families/registry.h"
#include "tests/support/temp_folder.h"

namespace tessera::emu3_config_test {
namespace {

Json video_spec(const char* name = "clip-rows") { return parse_json(test_model_config(name), "clip"); }

TEST(Emu3Config, ControlIdsAreThoseThatTheConfigurationAsksFor) {
  const ModelSpec rows = parse_family_config(video_spec().dump(), "c");
  const ModelSpec plain = parse_family_config(video_spec("clip").dump(), "c");
  EXPECT_EQ(rows.model.grids, 4);
  EXPECT_EQ(rows.model.image_codes(), 4 * 4 * 6);
  EXPECT_EQ(plain.model.image_tokens(), 4 * 4 * 6);
  EXPECT_EQ(rows.model.image_tokens(), 4 * (4 * 7 + 1) + 2);
  EXPECT_EQ(rows.model.image_vocabulary(), 64 + 4);
  EXPECT_EQ(rows.names.code_rows.size(), 5u);
  EXPECT_EQ(plain.names.code_rows.size(), 1u);
  EXPECT_EQ(rows.video->rate, 8);
  EXPECT_EQ(rows.image_width(), 24);
  EXPECT_EQ(rows.image_height(), 16);
  EXPECT_EQ(rows.prompt.forms.front().after, "<|image start|>4*4*6<|image token|>");
  EXPECT_EQ(rows.prompt.negative_text, "");
  Json some = video_spec();
  some["clip_config"]["grid_tokens"] = false;
  some["vocabulary_map"].erase("<|extra_201|>");  // not asked for, not needed
  EXPECT_EQ(parse_family_config(some.dump(), "c").model.image_tokens(), 4 * 4 * 7 + 2);
}

TEST(Emu3Config, ATiedHeadIsTheTable) {
  Json config = video_spec();
  config["tie_word_embeddings"] = true;
  const ModelSpec spec = parse_family_config(config.dump(), "c");
  EXPECT_EQ(spec.names.head_out, "model.text_model.embed_tokens");
  EXPECT_EQ(spec.optional_tensors, std::vector<std::string>{"lm_head.weight"});
}

struct Bad {
  const char* place;  // in the message
  std::function<void(Json&)> edit;
};

TEST(Emu3Config, WhatCannotBeIsRefusedByKey) {
  const std::vector<Bad> cases = {
      {"embed_dim", [](Json& c) { c["vq_config"]["embed_dim"] = 8; }},
      {"attn_resolutions", [](Json& c) { c["vq_config"]["attn_resolutions"] = {0}; }},
      {"base_channels", [](Json& c) { c["vq_config"]["base_channels"] = 33; }},
      {"hidden_size", [](Json& c) { c["vq_config"]["hidden_size"] = 32; }},
      {"temporal_downsample_factor",
       [](Json& c) { c["vq_config"]["temporal_downsample_factor"] = 3; }},
      {"double_latent", [](Json& c) { c["vq_config"]["double_latent"] = true; }},
      {"vocabulary_map", [](Json& c) { c["vq_config"]["codebook_size"] = 63; }},
      {"vocabulary_map", [](Json& c) { c.erase("vocabulary_map"); }},
      {"vocabulary_map", [](Json& c) { c["text_config"]["vocab_size"] = 400; }},
      {"<|extra_200|>", [](Json& c) { c["vocabulary_map"].erase("<|extra_200|>"); }},
      {"vocabulary_map", [](Json& c) { c["vocabulary_map"]["<|extra_200|>"] = 300; }},
      {"<|visual token 000007|>",
       [](Json& c) { c["vocabulary_map"]["<|visual token 000007|>"] = 9; }},
      {"<|visual token 7|>", [](Json& c) { c["vocabulary_map"]["<|visual token 7|>"] = 270; }},
      {"grids", [](Json& c) { c["clip_config"]["grids"] = 0; }},
      {"grids", [](Json& c) { c["clip_config"].erase("grids"); }},
      {"grid_rows", [](Json& c) { c["clip_config"]["grid_rows"] = 5000; }},
      {"fps", [](Json& c) { c["clip_config"]["fps"] = 0; }},
      {"max_position_embeddings",
       [](Json& c) { c["text_config"]["max_position_embeddings"] = 120; }},
      {"num_key_value_heads", [](Json& c) { c["text_config"]["num_key_value_heads"] = 3; }},
      {"model_type", [](Json& c) { c["text_config"]["model_type"] = "llama"; }},
  };
  for (const Bad& bad : cases) {
    Json config = video_spec();
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

TEST(Emu3Config, TheNegativePromptIsTheFoldersOwn) {
  const TempFolder folder;
  put_file(folder / "config.json", Json{{"model_type", "Emu3"}, {"image_area", 512 * 512}}.dump());
  EXPECT_THROW(load_model_spec(folder.path()), Error);  // the tokenizer's folder is missing
  std::filesystem::create_directory(folder / "vision_tokenizer");
  put_file(folder / "vision_tokenizer" / "config.json", "{}");
  const ModelSpec spec = load_model_spec(folder.path());
  EXPECT_EQ(spec.model.grid_rows, 64);
  EXPECT_TRUE(spec.prompt.negative_text.starts_with("lowres"));
  EXPECT_FALSE(spec.video.has_value());
  put_file(folder / "generation_config.json", R"({"negative_prompt": "fog", "top_k": 10})");
  EXPECT_EQ(load_model_spec(folder.path()).prompt.negative_text, "fog");
  EXPECT_EQ(load_model_spec(folder.path()).sampling.top_k, 10);
}

}  // namespace
}  // namespace tessera::emu3_config_test
