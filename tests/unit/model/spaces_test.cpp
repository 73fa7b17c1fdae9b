// Token spaces: a model with both halves of a Janus gives each space what it has alone, over one
// transformer, and a stream may go from one to the other.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/both_spaces.h"

namespace tessera::spaces_test {
namespace {

using Ids = std::vector<std::int32_t>;

const Ids kText = {3, 17, 40, 8, 61}, kCodes = {5, 63, 0, 22};

class TokenSpaces : public ::testing::Test {
 protected:
  StreamModel load(ModelUse use) const { return spaces_.load(*backend_, use); }

  BothSpaces spaces_;
  const TempFolder& folder_ = spaces_.folder();
  std::unique_ptr<Backend> backend_ = make_backend("cpu", {.threads = 1});
};

struct Written {
  std::vector<float> prompt, tokens;  // logits after each
  bool operator==(const Written&) const = default;
};

Written write(const TokenModel& model, const Ids& tokens) {
  ModelRunner runner(model, 1, 32);
  Written out;
  out.prompt = runner.logits(runner.forward({{0, runner.prompt_rows(kText)}}));
  out.tokens = runner.logits(runner.forward({{0, runner.token_rows(tokens)}}));
  return out;
}

TEST_F(TokenSpaces, EachGivesWhatItsModelGivesAlone) {
  const StreamModel image = load(ModelUse::kGenerate), text = load(ModelUse::kDescribe);
  const StreamModel both = load(ModelUse::kAll);
  EXPECT_TRUE(image.writes(TokenSpace::kImage) && !image.writes(TokenSpace::kText));
  EXPECT_TRUE(text.writes(TokenSpace::kText) && !text.writes(TokenSpace::kImage));
  ASSERT_TRUE(both.writes(TokenSpace::kText) && both.writes(TokenSpace::kImage));
  EXPECT_EQ(both.space(TokenSpace::kImage).logit_ids(), 64);
  EXPECT_EQ(both.space(TokenSpace::kText).logit_ids(), 96);
  const Written codes = write(image, kCodes), words = write(text, kText);
  EXPECT_EQ(write(both.space(TokenSpace::kImage), kCodes), codes);
  EXPECT_EQ(write(both.space(TokenSpace::kText), kText), words);
  EXPECT_EQ(write(both, kCodes), codes) << "its own stream is images";
  EXPECT_NE(codes.prompt, words.prompt) << "the heads differ";
}

TEST_F(TokenSpaces, TheTransformerIsHeldOnce) {
  const StreamModel image = load(ModelUse::kGenerate), text = load(ModelUse::kDescribe);
  const StreamModel both = load(ModelUse::kAll);
  const auto around = [](const StreamModel& model) {
    return model.weight_bytes() - model.transformer().weight_bytes();
  };
  const std::size_t table = 96 * 32 * sizeof(float);
  EXPECT_EQ(around(both), around(image) + around(text) - table);
  EXPECT_EQ(both.transformer().weight_bytes(),
            std::max(image.transformer().weight_bytes(), text.transformer().weight_bytes()));
}

// Text first, then image codes of the same sequence: what the model of images gives of that prompt.
TEST_F(TokenSpaces, AStreamGoesFromTextToImage) {
  StreamModel loaded = load(ModelUse::kAll);
  const TokenModel& text = loaded.space(TokenSpace::kText);
  const StreamModel both = std::move(loaded);
  EXPECT_EQ(&both.space(TokenSpace::kText), &text) << "spaces stay where they are";
  ModelRunner writer(text, 1, 32), generator(both.space(TokenSpace::kImage), 1, 32);
  // One cache: the rows of the text were written as tokens, one after another.
  for (const std::int32_t id : kText) writer.forward({{0, writer.token_rows({id})}});
  const std::vector<float> switched =
      generator.logits(writer.forward({{0, generator.token_rows(kCodes)}}));
  EXPECT_EQ(switched, write(load(ModelUse::kGenerate), kCodes).tokens);
}

TEST_F(TokenSpaces, OneHalfAloneIsReadWhereTheOtherHasAFault) {
  Json config = parse_json(get_file(BothSpaces::recorded() / "config.json"), "config.json");
  config["vq_config"]["double_latent"] = true;
  put_file(folder_ / "config.json", config.dump());
  EXPECT_NO_THROW(load(ModelUse::kDescribe));
  EXPECT_THROW(load(ModelUse::kGenerate), Error);
  EXPECT_THROW(load(ModelUse::kAll), Error);
  config["vq_config"]["double_latent"] = false;
  config["image_token_id"] = -2;
  put_file(folder_ / "config.json", config.dump());
  EXPECT_NO_THROW(load(ModelUse::kGenerate));
  EXPECT_THROW(load(ModelUse::kDescribe), Error);
  EXPECT_THROW(load(ModelUse::kAll), Error);
}

}  // namespace
}  // namespace tessera::spaces_test
