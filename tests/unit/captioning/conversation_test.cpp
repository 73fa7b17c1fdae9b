// Conversations about images: the turns' own prompt, each image at its part.
#include <gtest/gtest.h>

#include "apps/runtime/caption_model.h"
#include "engine/core/index.h"
#include "vision/image/preprocess.h"

namespace tessera::conversation_test {
namespace {

ChatTurn turn(ChatRole role, std::vector<ChatPart> parts) { return {role, std::move(parts)}; }
ChatPart text(std::string words) { return {false, std::move(words)}; }

class Conversations : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<CaptionModel> model_ = CaptionModel::open(
      std::filesystem::path(TESSERA_SOURCE_DIR) / "assets/models" / GetParam());
  PreprocessPlan image_ = plan_preprocess(model_->describe().policy, 96, 64);
  std::vector<std::int32_t> ids(std::vector<ChatTurn> turns, std::size_t images) const {
    return model_->prompt_ids({"", std::move(turns)}, std::vector(images, image_));
  }
  std::int64_t placeholders(const std::vector<std::int32_t>& of) const {
    return std::count(of.begin(), of.end(), model_->describe().image_id);
  }
};

TEST_P(Conversations, OneTurnIsTheQuestion) {
  const std::vector<PreprocessPlan> one{image_};
  EXPECT_EQ(ids({turn(ChatRole::kUser, {ChatPart::image(), text("What is it?")})}, 1),
            model_->prompt_ids("What is it?", one));
}

TEST_P(Conversations, TurnsAreThoseOfTheModelsOwnForm) {
  const std::vector<ChatTurn> turns = {
      turn(ChatRole::kUser, {text("Hello.")}), turn(ChatRole::kAssistant, {text("Yes?")}),
      turn(ChatRole::kUser, {text("Look: "), ChatPart::image(), text("what is it?")})};
  const auto made = ids(turns, 1);
  EXPECT_EQ(placeholders(made), image_.tokens);
  // Encoded by hand: the form's own text, and a token for each visual row.
  const Prompt prompt = model_->chat().expanded(
      turns, {{.tokens = image_.tokens,
               .grid_rows = image_.view_rows,
               .grid_columns = image_.view_cols}});
  EXPECT_EQ(made, encode_prompt(model_->tokenizer(), prompt));
  // An earlier answer counts.
  std::vector<ChatTurn> other = turns;
  other[1].parts[0].text = "No.";
  EXPECT_NE(made, ids(other, 1));
}

TEST_P(Conversations, EachImageStandsAtItsPart) {
  const auto made = ids({turn(ChatRole::kUser, {ChatPart::image(), text("One.")}),
                         turn(ChatRole::kAssistant, {text("A cube.")}),
                         turn(ChatRole::kUser, {ChatPart::image(), text("Another?")})},
                        2);
  EXPECT_EQ(placeholders(made), 2 * image_.tokens);
  const auto first = std::find(made.begin(), made.end(), model_->describe().image_id);
  const auto between = first + image_.tokens;
  EXPECT_NE(*between, model_->describe().image_id) << "the answer stands between them";
}

TEST_P(Conversations, WithoutImagesTheirPartsAreLeftOut) {
  EXPECT_EQ(ids({turn(ChatRole::kUser, {ChatPart::image(), text("What is it?")})}, 0),
            ids({turn(ChatRole::kUser, {text("What is it?")})}, 0));
}

INSTANTIATE_TEST_SUITE_P(Models, Conversations, ::testing::Values("tabletop-llava"),
                         [](const auto&) { return std::string("tabletop_llava"); });

}  // namespace
}  // namespace tessera::conversation_test
