// The scorer's configuration: what is read from it, and what is refused with which words.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "apps/lab/scorer/scorer.h"
#include "engine/core/error.h"

namespace tessera::scorer_config_test {
namespace {

using nlohmann::json;

json words(std::span<const std::string_view> names) {
  json list = json::array();
  for (const std::string_view name : names) list.push_back(name);
  return list;
}

json good_config() {
  json heads = {{"count", 4}, {"floor", 4}};
  for (const char* slot : {"_1", "_2", "_3", "_4"}) {
    heads[std::string("kind") + slot] = 4;
    heads[std::string("colour") + slot] = 8;
    heads[std::string("size") + slot] = 2;
    heads[std::string("material") + slot] = 2;
  }
  return {{"model_type", "tabletop-judge"},
          {"image_size", 64},
          {"base_channels", 32},
          {"channel_multiplier", {1, 2, 3}},
          {"num_res_blocks", 2},
          {"heads", heads},
          {"labels",
           {{"floor", words(floor_names())},
            {"kind", words(kind_names())},
            {"colour", words(colour_names())},
            {"size", words(size_names())},
            {"material", words(material_names())}}}};
}

TEST(ScorerConfig, Reads) {
  const ScorerConfig config = parse_scorer_config(good_config().dump(), "config.json");
  EXPECT_EQ(config.image_size, 64);
  EXPECT_EQ(config.multipliers, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(config.columns(), 16);
  EXPECT_EQ(config.feature_count(), 96 * 16);
  EXPECT_EQ(config.heads.size(), 18u);
  // conv_in, 3 levels of 2 blocks, 2 attentions in the last, 2 strides, norm.
  EXPECT_EQ(scorer_steps(config).size(), 1u + 6u + 2u + 2u + 1u);
}

TEST(ScorerConfig, RefusesByName) {
  const struct {
    const char* what;
    std::function<void(json&)> spoil;
    const char* word;
  } cases[] = {
      {"type", [](json& c) { c["model_type"] = "janus"; }, "model_type"},
      {"no size", [](json& c) { c.erase("image_size"); }, "image_size"},
      {"size does not halve", [](json& c) { c["image_size"] = 66; }, "image_size"},
      {"channels", [](json& c) { c["base_channels"] = 40; }, "base_channels"},
      {"no levels", [](json& c) { c["channel_multiplier"] = json::array(); }, "channel_multiplier"},
      {"level of text", [](json& c) { c["channel_multiplier"][1] = "2"; }, "channel_multiplier"},
      {"head missing", [](json& c) { c["heads"].erase("size_3"); }, "size_3"},
      {"head of another width", [](json& c) { c["heads"]["colour_2"] = 7; }, "colour_2"},
      {"labels in another order",
       [](json& c) { std::swap(c["labels"]["kind"][0], c["labels"]["kind"][1]); }, "kind"},
      {"a label more", [](json& c) { c["labels"]["floor"].push_back("green"); }, "floor"},
  };
  for (const auto& bad : cases) {
    json config = good_config();
    bad.spoil(config);
    try {
      parse_scorer_config(config.dump(), "judge/config.json");
      ADD_FAILURE() << bad.what << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4) << bad.what;
      const std::string text = error.what();
      EXPECT_NE(text.find(bad.word), std::string::npos) << text;
      EXPECT_NE(text.find("judge/config.json"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tessera::scorer_config_test
