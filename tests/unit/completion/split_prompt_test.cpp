// Prompts of models without a token for images: what a form expands is encoded around its images.
#include "apps/runtime/split_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace tessera::split_prompt_test {
namespace {

TEST(SplitPrompt, ImagesThatAFormExpandsAreIdsAndThoseOfAUsersTextAreNot) {
  const TextTokenizer tokenizer = TextTokenizer::from_folder(
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text_folders/llama_legacy");
  ChatForm form;
  form.layout = ChatLayout::kImagesFirst;
  form.user_open = "USER: ";
  form.image = "<image>";
  const std::vector<ChatTurn> turn = {
      {ChatRole::kUser, {ChatPart::image(), {false, "what <image> is it?"}}}};
  const Prompt whole =
      expand_images(form, chat_prompt(form, turn, true), std::vector<ImageLayout>{{.tokens = 3}});
  const std::int32_t image = 9999;
  const auto ids = encode_around_images(tokenizer, whole, form.image, image);
  ASSERT_EQ(std::count(ids.begin(), ids.end(), image), 3);
  const auto first = std::find(ids.begin(), ids.end(), image);
  EXPECT_EQ(std::vector<std::int32_t>(ids.begin(), first), tokenizer.encode("USER: ", true));
  EXPECT_EQ(std::count(first, first + 3, image), 3);
}

}  // namespace
}  // namespace tessera::split_prompt_test
