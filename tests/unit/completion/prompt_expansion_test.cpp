// Prompts rewritten by a text model: one answer a prompt whatever stands next to it, as one line.
#include "apps/runtime/prompt_expansion.h"

#include <gtest/gtest.h>

namespace tessera::prompt_expansion_test {
namespace {

TEST(PromptExpansion, AnswerBecomesOneLine) {
  EXPECT_EQ(expansion_of("  A red\n\ncube. \t", false), "A red cube.");
  EXPECT_EQ(expansion_of("\"A red cube.\"", false), "A red cube.");
  EXPECT_EQ(expansion_of("\" A \"red\" cube \"\n", false), "A \"red\" cube");
  EXPECT_EQ(expansion_of("\"", false), "\"");
  EXPECT_EQ(expansion_of(" \n ", false), "");
}

TEST(PromptExpansion, UnfinishedSentenceIsCutOff) {
  EXPECT_EQ(expansion_of("A red cube. It stands on", true), "A red cube.");
  EXPECT_EQ(expansion_of("Who? A red", true), "Who?");
  EXPECT_EQ(expansion_of("A red cube on", true), "A red cube on");
  EXPECT_EQ(expansion_of("A red cube. It stands", false), "A red cube. It stands");
}

TEST(PromptExpansion, AnswersAreThoseOfTheModelAlone) {
  CompleteOptions options;
  options.model = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/gguf_text/qwen2_tied_bf16.gguf";
  options.threads = 2;
  options.storage = DType::kF32;
  const std::vector<std::string> prompts = {"a red cube", "\xc3\xa9", "two dogs"};
  const auto all = expand_prompts(options, prompts, [] { return false; });
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = expand_prompts(options, {&prompts[i], 1}, [] { return false; });
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->at(0).text, all->at(i).text);
    EXPECT_EQ(all->at(i).expansion->from, prompts[i]);
    EXPECT_FALSE(all->at(i).expansion->model.empty());
    EXPECT_NE(all->at(i).text, all->at((i + 1) % prompts.size()).text);
  }
  EXPECT_FALSE(expand_prompts(options, prompts, [] { return true; }));
}

}  // namespace
}  // namespace tessera::prompt_expansion_test
