// A text shown piece by piece is the text decoded at once, whatever the tokenizer and the pieces.
#include "apps/runtime/text_stream.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/core/utf8.h"

namespace tessera::text_stream_test {
namespace {

class Streams : public ::testing::TestWithParam<const char*> {};

TEST_P(Streams, PiecesMakeTheWhole) {
  const TextTokenizer tokenizer =
      TextTokenizer::from_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text" /
                               (std::string(GetParam()) + ".tokenizer.json"));
  const std::string text =
      "A caf\u00e9 by the sea, \u4e09\u4eba and a \U0001f3a8 \U0001f469\u200d\U0001f52c; two  "
      "spaces.\nNext line: na\u00efve r\u00e9sum\u00e9, \u00a312.50 \u2014 done.";
  const std::vector<std::int32_t> ids = tokenizer.encode(text, false);
  const std::vector<std::int32_t> none;
  for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{5}, ids.size()}) {
    TextStream stream(tokenizer);
    std::string shown;
    for (std::size_t at = 0; at < ids.size(); at += step) {
      const std::string more =
          stream.add(std::span(ids).subspan(at, std::min(step, ids.size() - at)), none);
      EXPECT_TRUE(is_valid_utf8(more)) << "half a character is shown";
      EXPECT_EQ(more.find("\xef\xbf\xbd"), std::string::npos);
      shown += more;
    }
    EXPECT_EQ(shown, tokenizer.decode(ids)) << step;
    EXPECT_EQ(stream.whole(), tokenizer.decode(ids));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Streams,
                         ::testing::Values("gpt2", "qwen2", "llama2", "llama3", "deepseek_llm"),
                         [](const auto& name) { return std::string(name.param); });

TEST(Streams, StopsAreNoPartAndBrokenTextIsShownAtLast) {
  const TextTokenizer tokenizer = TextTokenizer::from_file(
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text/llama2.tokenizer.json");
  const std::vector<std::int32_t> words = tokenizer.encode("a cup", false);
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.add(words, std::vector<std::int32_t>{words.back()}),
            tokenizer.decode({words.data(), words.size() - 1}));
  // A byte that begins a character and is never followed by the rest.
  const auto byte = tokenizer.id_of("<0xE4>");
  ASSERT_TRUE(byte.has_value());
  const std::int32_t broken[] = {*byte};
  std::string shown;
  for (int i = 0; i < 40; ++i) shown += stream.add(broken, {});
  EXPECT_NE(shown.find("\xef\xbf\xbd"), std::string::npos);
}

// This tokenizer decodes a run of bytes as a whole: one that is broken may be right with more of
// it.
TEST(Streams, NothingAfterBrokenTextIsLost) {
  const TextTokenizer tokenizer = TextTokenizer::from_file(
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text/llama2.tokenizer.json");
  const std::string broken = "\xef\xbf\xbd", three = "\u4e09";
  const auto byte = [&](const char* name) { return tokenizer.id_of(name).value(); };
  const std::vector<std::int32_t> character = {byte("<0xE4>"), byte("<0xB8>"), byte("<0x89>")};
  std::vector<std::int32_t> run;
  for (int i = 0; i < 5; ++i) run.insert(run.end(), character.begin(), character.end());
  run.push_back(character[0]);
  TextStream stream(tokenizer);
  std::string shown = stream.add(tokenizer.encode("a cup", false), {});
  EXPECT_EQ(shown, "a cup");
  const std::string first = stream.add(run, {});
  EXPECT_EQ(first.size(), run.size() * broken.size()) << "it waited for long enough";
  EXPECT_EQ(stream.add(std::span(character).subspan(1), {}), "") << "another text than was shown";
  std::string later;
  for (int i = 0; i < 12; ++i) later += stream.add(tokenizer.encode("tea cup", false), {});
  EXPECT_NE(later.find(three), std::string::npos) << "before the end";
  later += stream.add(std::span(character).first(1), {});
  EXPECT_EQ(stream.rest(), broken) << "half a character";
  EXPECT_EQ(stream.rest(), "");
  EXPECT_EQ("a cup" + later + broken, stream.whole());
}

}  // namespace
}  // namespace tessera::text_stream_test
