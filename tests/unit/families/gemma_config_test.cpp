// Gemma 3's layers with and without windows: which are which, and their two rotary embeddings, as
// transformers 5.24 reads them of files of either release.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/families/language.h"

namespace tessera::gemma_config_test {
namespace {

constexpr std::string_view kGemma[] = {"gemma3_text"};

LanguageConfig parsed(const Json& keys) {
  Json config = {{"model_type", "gemma3_text"}, {"hidden_size", 32},       {"head_dim", 8},
                 {"num_hidden_layers", 4},      {"intermediate_size", 48}, {"vocab_size", 64}};
  config.update(keys);
  return parse_language(JsonReader(config, "config.json"), kGemma);
}

std::string refused_key(const Json& keys) {
  try {
    parsed(keys);
  } catch (const Error& error) {
    return error.info().where;
  }
  return "none";
}

TEST(GemmaConfig, WindowsFollowLayerTypesElseThePatternByItsPublicName) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(parsed({{"sliding_window_pattern", 2}}).model.windowed,
            (Layers{true, false, true, false}));
  // The class keeps its pattern under another name and does not read it back.
  EXPECT_EQ(parsed({{"sliding_window_pattern", 2}, {"_sliding_window_pattern", 3}}).model.windowed,
            (Layers{true, false, true, false}));
  EXPECT_EQ(parsed({{"_sliding_window_pattern", 2}}).model.windowed, Layers(4, true));
  const Json listed = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(parsed({{"layer_types", listed}, {"sliding_window_pattern", 2}}).model.windowed,
            (Layers{false, true, false, false}));
  EXPECT_EQ(refused_key({{"sliding_window", nullptr}}), "sliding_window");
}

TEST(GemmaConfig, EachKindOfLayerHasItsRotaryEmbedding) {
  const Json both = {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}}},
                     {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 55.0}}}};
  const ModelConfig newer = parsed({{"rope_parameters", both}, {"rope_theta", 777.0}}).model;
  EXPECT_EQ(newer.rope.stretch.factor, 4.0);
  EXPECT_EQ(newer.rope.theta, 777.0);
  EXPECT_EQ(newer.window_rope.theta, 55.0);
  const Json scaling = {{"rope_type", "linear"}, {"factor", 8.0}};
  const ModelConfig older =
      parsed({{"rope_scaling", scaling}, {"rope_local_base_freq", 99.0}}).model;
  EXPECT_EQ(older.rope.stretch.factor, 8.0);
  EXPECT_EQ(older.window_rope.stretch.kind, RopeKind::kPlain);
  EXPECT_EQ(older.window_rope.theta, 99.0);
  // The reference puts one over the other, and does not read one object for both kinds.
  EXPECT_EQ(refused_key({{"rope_scaling", scaling}, {"rope_parameters", both}}), "rope_scaling");
  EXPECT_EQ(refused_key({{"rope_parameters", scaling}}), "rope_parameters");
}

}  // namespace
}  // namespace tessera::gemma_config_test
