// Captions cleaned as the authors' script cleans them (assets/recipes/fixtures_captions.py).
#include "tokenizers/text/caption_cleaning.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace tessera::caption_cleaning_test {
namespace {

TEST(CaptionCleaning, EqualsTheAuthorsOnRandomTexts) {
  const CaptionCleaner cleaner;
  std::ifstream file(TESSERA_SOURCE_DIR "/tests/golden/text/captions.jsonl");
  std::size_t lines = 0, changed = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto pair = nlohmann::json::parse(line).get<std::vector<std::string>>();
    EXPECT_EQ(cleaner.clean(pair.at(0)), pair.at(1)) << pair.at(0);
    changed += pair.at(0) != pair.at(1);
  }
  EXPECT_GE(lines, 400u);
  EXPECT_GT(changed, lines / 2);
}

TEST(CaptionCleaning, MarkupIsFound) {
  const CaptionCleaner cleaner;
  EXPECT_EQ(cleaner.markup("a <B class=x> cube"), "<b");
  EXPECT_EQ(cleaner.markup("a</b>"), "</b>");
  EXPECT_EQ(cleaner.markup("a <!-- c"), "<!--");
  EXPECT_EQ(cleaner.markup("salt &amp; pepper"), "&amp;");
  EXPECT_EQ(cleaner.markup("&#x27;a"), "&#x27;");
  for (const char* text : {"a <person> & a dog", "1 < 2 > 0", "<3", "r&b", "&#a", "a; b"}) {
    EXPECT_EQ(cleaner.markup(text), "") << text;
  }
}

TEST(CaptionCleaning, ManyMarksAreBounded) {
  const CaptionCleaner cleaner;
  EXPECT_EQ(cleaner.clean(std::string(60'000, '(')), "");
  EXPECT_EQ(cleaner.clean("A Red Cube"), "a red cube");
}

}  // namespace
}  // namespace tessera::caption_cleaning_test
