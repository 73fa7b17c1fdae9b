// Texts that end before a text that stops them, whatever the pieces they come in.
#include "apps/runtime/written_text.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/core/error.h"
#include "engine/core/utf8.h"

namespace tessera::written_text_test {
namespace {

using Ends = WrittenText::Ends;

TextTokenizer tokenizer_of(const std::string& name) {
  return TextTokenizer::from_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text" /
                                  (name + ".tokenizer.json"));
}

const std::string kText = "One, two  two three;\nna\u00efve \U0001f3a8 one\u4e09two, three.  ";

// What should be shown of a text, and its whole.
std::string expected(const std::string& text, const std::string& stop, Ends ends) {
  std::string out = text.substr(0, text.find(stop));
  if (ends == Ends::kAsWritten) return out;
  const std::size_t first = out.find_first_not_of(" \n");
  if (first == std::string::npos) return "";
  return out.substr(first, out.find_last_not_of(" \n") - first + 1);
}

class Tokenizers : public ::testing::TestWithParam<const char*> {};

TEST_P(Tokenizers, EveryPartOfATextStopsItInPiecesOfAnySize) {
  const TextTokenizer tokenizer = tokenizer_of(GetParam());
  const std::vector<std::int32_t> ids = tokenizer.encode(kText, false), none;
  const std::string text = tokenizer.decode(ids);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const std::size_t length : {1, 3, 7}) {
      const std::string stop = text.substr(at, length);
      for (const Ends ends : {Ends::kAsWritten, Ends::kTrimmed}) {
        for (const std::size_t step : {std::size_t{1}, std::size_t{4}, ids.size()}) {
          WrittenText written(tokenizer, {"absent", stop}, ends);
          std::string shown;
          for (std::size_t i = 0; i < ids.size() && !written.ended(); i += step) {
            shown += written.add(std::span(ids).subspan(i, std::min(step, ids.size() - i)), none);
          }
          shown += written.rest();
          // A character that is not whole is not shown: a stop within one comes with its end.
          if (!written.ended()) {
            EXPECT_EQ(shown, expected(text, "\x01", ends));
            continue;
          }
          EXPECT_EQ(shown, expected(text, stop, ends)) << "'" << stop << "' " << step;
          EXPECT_EQ(written.whole(), shown);
          // No token after the one that completes it counts.
          const std::span<const std::int32_t> used(ids.data(),
                                                   static_cast<std::size_t>(written.tokens()));
          EXPECT_NE(tokenizer.decode(used).find(stop), std::string::npos);
          const std::string before = tokenizer.decode(used.first(used.size() - 1));
          // What ends within a character is not looked at before that is whole.
          if (!is_valid_utf8(stop) || before.ends_with("\xef\xbf\xbd")) continue;
          EXPECT_EQ(before.find(stop), std::string::npos) << "'" << stop << "'";
        }
      }
    }
  }
}

TEST_P(Tokenizers, WithoutStopsItIsTheWholeText) {
  const TextTokenizer tokenizer = tokenizer_of(GetParam());
  const std::vector<std::int32_t> ids = tokenizer.encode(kText, false), none;
  for (const Ends ends : {Ends::kAsWritten, Ends::kTrimmed}) {
    WrittenText written(tokenizer, {}, ends);
    std::string shown;
    for (const std::int32_t id : ids) shown += written.add({&id, 1}, none);
    shown += written.rest();
    EXPECT_EQ(shown, expected(tokenizer.decode(ids), "\x01", ends));
    EXPECT_EQ(shown, written.whole());
    EXPECT_EQ(written.tokens(), std::ssize(ids));
    EXPECT_FALSE(written.ended());
  }
}

// Tokens are listed with the text that shows them: those before a stop, none after it.
TEST_P(Tokenizers, TokensAreListedWithWhatIsShown) {
  const TextTokenizer tokenizer = tokenizer_of(GetParam());
  const std::vector<std::int32_t> ids = tokenizer.encode(kText, false), none;
  const auto bytes_of = [](std::span<const TextToken> tokens) {
    std::string out;
    for (const TextToken& one : tokens) out += one.token.bytes;
    return out;
  };
  const auto logged = [](std::span<const std::int32_t> tokens) {
    std::vector<TokenLogprobs> out;
    for (const std::int32_t id : tokens) out.push_back({{id, -0.5}, {{id, -0.5}, {id, -1}}});
    return out;
  };
  for (const std::string stop : {"", "two", "na\u00efve", "\U0001f3a8", " three"}) {
    for (const std::size_t step : {std::size_t{1}, std::size_t{4}, ids.size()}) {
      std::vector<std::string> stops;
      if (!stop.empty()) stops.push_back(stop);
      WrittenText written(tokenizer, stops, Ends::kAsWritten);
      std::string shown, listed;
      const auto take = [&](const std::string& more) {
        shown += more;
        listed += bytes_of(written.newly_listed());
        if (more.empty()) {
          EXPECT_TRUE(written.newly_listed().empty());
        }
      };
      for (std::size_t i = 0; i < ids.size() && !written.ended(); i += step) {
        const auto part = std::span(ids).subspan(i, std::min(step, ids.size() - i));
        take(written.add(part, none, logged(part)));
      }
      take(written.rest());
      EXPECT_EQ(shown, expected(kText, stop.empty() ? "\x01" : stop, Ends::kAsWritten));
      // Bytes are those of a text in front of which others stand: a space may come first.
      const std::size_t lead = listed.starts_with(' ') ? 1 : 0;
      EXPECT_TRUE(listed.substr(lead).starts_with(shown)) << listed << "|" << shown;
      const std::vector<TextToken> all = written.take_listed();
      EXPECT_EQ(bytes_of(all), listed);
      ASSERT_FALSE(all.empty());
      EXPECT_EQ(all[0].top.size(), 2u);
      // The last one has a byte in the text.
      EXPECT_LT(listed.size() - all.back().token.bytes.size(), shown.size() + lead) << stop;
      if (stop.empty()) {
        EXPECT_EQ(listed.substr(lead), shown);
        EXPECT_EQ(all.size(), ids.size());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WrittenText, Tokenizers,
                         ::testing::Values("gpt2", "qwen2", "llama2", "deepseek_llm"),
                         [](const auto& name) { return std::string(name.param); });

TEST(WrittenText, ThePartThatCouldStopItIsHeldBack) {
  const TextTokenizer tokenizer = tokenizer_of("gpt2");
  const std::vector<std::int32_t> none;
  WrittenText written(tokenizer, {"two three"}, Ends::kAsWritten);
  EXPECT_EQ(written.add(tokenizer.encode("one two", false), none), "one ");
  EXPECT_EQ(written.add(tokenizer.encode(" th", false), none), "");
  EXPECT_EQ(written.add(tokenizer.encode("ings", false), none), "two things");
  EXPECT_FALSE(written.ended());
}

TEST(WrittenText, StopTextsThatCannotBeAreRefused) {
  const auto code = [](const std::vector<std::string>& stop) -> std::string {
    try {
      check_stop_texts(stop);
    } catch (const Error& error) {
      return error.info().code;
    }
    return "";
  };
  EXPECT_EQ(code({}), "");
  EXPECT_EQ(code(std::vector<std::string>(16, "a")), "");
  EXPECT_EQ(code(std::vector<std::string>(17, "a")), "E_STOP_TEXT");
  EXPECT_EQ(code({""}), "E_STOP_TEXT");
  EXPECT_EQ(code({std::string(256, 'a')}), "");
  EXPECT_EQ(code({std::string(257, 'a')}), "E_STOP_TEXT");
}

}  // namespace
}  // namespace tessera::written_text_test
