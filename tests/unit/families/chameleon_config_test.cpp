// Configurations of Chameleon and Lumina-mGPT: what is read from them, and what is refused by key.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/core/json.h"
#include "engine/families/registry.h"

namespace tessera::chameleon_config_test {
namespace {

Json chameleon() {
  Json config = parse_json(R"({"model_type": "chameleon", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
    "vq_config": {"base_channels": 32, "channel_multiplier": [1, 2], "num_embeddings": 16,
                  "embed_dim": 8, "latent_channels": 8, "resolution": 8},
    "vocabulary_map": {"<eoss>": 40, "<racm3:break>": 41, "<reserved08799>": 42}})",
                           "c");
  for (int code = 0; code < 16; ++code) {
    const std::string digits = code < 10 ? "" : "B";
    const std::string name = "IMGIMG" + digits + static_cast<char>('A' + code % 10) + "Z";
    config["vocabulary_map"][name] = 4 + code;
  }
  return config;
}

TEST(ChameleonConfig, TheVocabularySaysWhereCodesStand) {
  const ModelSpec spec = parse_family_config(chameleon().dump(), "c");
  EXPECT_EQ(spec.family, "chameleon");
  EXPECT_EQ(spec.model.image_tokens(), 17);
  EXPECT_EQ(spec.model.unconditional, UnconditionalRule::kEnds);
  ASSERT_EQ(spec.names.code_rows.size(), 2u);
  EXPECT_EQ(spec.names.code_rows[0].first, 4);
  EXPECT_EQ(spec.names.code_rows[0].count, 16);
  EXPECT_EQ(spec.names.code_rows[1].first, 40);
  Json moved = chameleon();
  moved["vocabulary_map"]["IMGIMGDZ"] = 30;  // code 3
  const ModelSpec other = parse_family_config(moved.dump(), "c");
  ASSERT_EQ(other.names.head_rows.size(), 3u);
  EXPECT_EQ(other.names.head_rows[1].first, 30);
  EXPECT_EQ(other.names.head_rows[2].first, 8);
}

TEST(ChameleonConfig, OlderKeysOfTheImageTokenizerAreRead) {
  Json config = chameleon();
  config["vq_config"] = {{"ch", 32},       {"ch_mult", {1, 2, 2}}, {"n_embed", 16},
                         {"embed_dim", 8}, {"z_channels", 4},      {"double_z", false},
                         {"out_ch", 3},    {"resolution", 16},     {"attn_resolutions", {4}}};
  const ModelSpec spec = parse_family_config(config.dump(), "c");
  EXPECT_EQ(spec.vq.latent_channels, 4);
  EXPECT_EQ(spec.vq.downsample(), 4);
  EXPECT_TRUE(spec.vq.attention_last_level);
  EXPECT_FALSE(spec.vq.l2_normalize);
  EXPECT_EQ(spec.model.grid_rows, 4);
}

TEST(ChameleonConfig, ASwinNormStandsAfterItsPart) {
  Json config = chameleon();
  config["swin_norm"] = true;
  const ModelSpec spec = parse_family_config(config.dump(), "c");
  EXPECT_FALSE(spec.model.transformer.input_norms);
  EXPECT_TRUE(spec.names.attention_norm.empty());
  EXPECT_EQ(spec.names.attention_result_norm, "input_layernorm.weight");
  EXPECT_EQ(spec.names.ffn_result_norm, "post_attention_layernorm.weight");
}

TEST(ChameleonConfig, ATiedHeadIsTheTable) {
  Json config = chameleon();
  config["tie_word_embeddings"] = true;
  EXPECT_EQ(parse_family_config(config.dump(), "c").names.head_out, "model.embed_tokens");
}

struct Bad {
  const char* place;  // in the message
  std::function<void(Json&)> edit;
};

TEST(ChameleonConfig, WhatCannotBeIsRefusedByKey) {
  const std::vector<Bad> cases = {
      {"vocabulary_map", [](Json& c) { c.erase("vocabulary_map"); }},
      {"IMGIMG", [](Json& c) { c["vocabulary_map"].erase("IMGIMGDZ"); }},
      {"IMGIMG", [](Json& c) { c["vq_config"]["num_embeddings"] = 17; }},
      {"IMGIMGBFZ", [](Json& c) { c["vq_config"]["num_embeddings"] = 15; }},
      {"IMGIMGADZ", [](Json& c) { c["vocabulary_map"]["IMGIMGADZ"] = 30; }},  // 3 once more
      {"IMGIMGKZ", [](Json& c) { c["vocabulary_map"]["IMGIMGKZ"] = 30; }},
      {"IMGIMGDZ", [](Json& c) { c["vocabulary_map"]["IMGIMGDZ"] = 64; }},
      {"<eoss>", [](Json& c) { c["vocabulary_map"].erase("<eoss>"); }},
      {"attn_resolutions", [](Json& c) { c["vq_config"]["attn_resolutions"] = {8}; }},
      {"base_channels", [](Json& c) { c["vq_config"]["base_channels"] = 33; }},
      {"double_latent", [](Json& c) { c["vq_config"]["double_latent"] = true; }},
      {"resolution", [](Json& c) { c["vq_config"]["resolution"] = 9; }},
      {"in_channels", [](Json& c) { c["vq_config"]["in_channels"] = 1; }},
      {"max_position_embeddings", [](Json& c) { c["max_position_embeddings"] = 18; }},
      {"head_dim", [](Json& c) { c["head_dim"] = 16; }},
      {"num_key_value_heads", [](Json& c) { c["num_key_value_heads"] = 3; }},
      {"hidden_act", [](Json& c) { c["hidden_act"] = "gelu"; }},
  };
  for (const Bad& bad : cases) {
    Json config = chameleon();
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

// A class of the port or a key of it, each alone; then every size token must be there.
TEST(ChameleonConfig, LuminaIsToldByItsClassOrItsKey) {
  for (const auto& [key, value] :
       {std::pair<const char*, Json>{"architectures", {"ChameleonXLLMXModel"}},
        {"z_loss_weight", 0.0}}) {
    Json config = chameleon();
    config["max_position_embeddings"] = 128;
    config[key] = Json(value);
    try {
      parse_family_config(config.dump(), "c");
      ADD_FAILURE() << "no token tells a size";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("max_position_embeddings"), std::string::npos);
    }
    config["vocabulary_map"]["<reserved08802>"] = 44;
    const ModelSpec spec = parse_family_config(config.dump(), "c");
    EXPECT_EQ(spec.image_width(), 8);
    EXPECT_EQ(spec.model.image_tokens(), 4 * 5 + 1);
    EXPECT_EQ(spec.names.code_rows[1].first, 42);
  }
}

}  // namespace
}  // namespace tessera::chameleon_config_test
