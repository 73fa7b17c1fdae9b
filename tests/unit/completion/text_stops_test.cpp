// Which ids end a text: generation_config.json decides where there is one, as in transformers.
#include "apps/runtime/text_stops.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::text_stops_test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

Ids stops(const Json& generation, const Json& config, const UnnamedEnd& unnamed = {}) {
  static const fs::path kFolder =
      fs::path(TESSERA_SOURCE_DIR) / "tests/golden/text_folders/llama_legacy";
  static const TextTokenizer kTokenizer = TextTokenizer::from_folder(kFolder);
  return read_stops(kFolder, generation, config, kTokenizer, unnamed);
}

TEST(TextStops, AGenerationConfigurationDecidesAlone) {
  const Json config = {{"eos_token_id", 7}};
  EXPECT_EQ(stops({{"eos_token_id", {5, 6}}}, config), (Ids{5, 6}));
  EXPECT_EQ(stops({{"eos_token_id", nullptr}}, config), Ids{});
  EXPECT_EQ(stops({{"eos_token_id", Json::array()}}, config), Ids{});
  EXPECT_EQ(stops({{"top_k", 5}}, config), Ids{});
}

TEST(TextStops, WithoutItTheModelsConfigurationElseWhatItsClassHas) {
  EXPECT_EQ(stops(Json(), {{"eos_token_id", 7}, {"text_config", {{"eos_token_id", 8}}}}), Ids{7});
  EXPECT_EQ(stops(Json(), {{"text_config", {{"eos_token_id", 8}}}}), Ids{8});
  EXPECT_EQ(stops(Json(), {{"eos_token_id", nullptr}, {"text_config", {{"eos_token_id", 8}}}}),
            Ids{8});
  EXPECT_EQ(stops(Json(), Json::object(), {.id = 9}), Ids{9});
  EXPECT_EQ(stops(Json(), {{"text_config", Json::object()}}, {.id = 9}), Ids{9});
  EXPECT_EQ(stops(Json(), {{"eos_token_id", nullptr}}, {.id = 9}), Ids{});
  EXPECT_EQ(stops(Json(), {{"text_config", {{"eos_token_id", nullptr}}}}, {.id = 9}), Ids{});
  EXPECT_EQ(stops(Json(), {{"eos_token_id", nullptr}, {"text_config", Json::object()}}, {.id = 9}),
            Ids{9});
  EXPECT_EQ(stops(Json(), Json::object()), Ids{});
}

TEST(TextStops, AuthorsFoldersEndAtATokenWithoutAnId) {
  EXPECT_EQ(stops(Json(), Json::object(), {.token = "</s>", .id = 9}), Ids{2});
  EXPECT_EQ(stops(Json(), {{"eos_token_id", 7}}, {.token = "</s>"}), Ids{7});
  EXPECT_THROW(stops(Json(), Json::object(), {.token = "<|none|>"}), Error);
}

TEST(TextStops, WhatIsNoIdIsRefusedByFileAndKey) {
  try {
    stops({{"eos_token_id", "</s>"}}, Json::object());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().where, "eos_token_id");
    EXPECT_NE(error.info().file.find("generation_config.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::text_stops_test
