// Names, captions and cells that try to be more than text.
#include "apps/captions/text_forms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/captions/existing_caption.h"
#include "apps/captions/prompt_template.h"
#include "engine/core/philox.h"

namespace tessera::text_forms_test {
namespace {

TEST(NaturalOrder, NumbersCompareAsNumbers) {
  std::vector<std::string> names = {"img10",
                                    "img9",
                                    "IMG2",
                                    "img02",
                                    "img2",
                                    "a",
                                    "img",
                                    "img2b",
                                    "img99999999999999999999",
                                    "img100000000000000000000",
                                    "B"};
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "B", "img", "IMG2", "img02", "img2", "img2b",
                                             "img9", "img10", "img99999999999999999999",
                                             "img100000000000000000000"}));
}

// Random short names over an alphabet of ties: the order must be strict and total.
TEST(NaturalOrder, IsAStrictTotalOrder) {
  std::set<std::string> made;
  for (std::uint32_t i = 0; made.size() < 120; ++i) {
    const auto draw = philox4x32({i, 0, 0, 0}, {1, 2});
    std::string name;
    for (std::uint32_t k = 0; k < draw[0] % 5; ++k) name += "0012aA."[(draw[1] >> (3 * k)) % 7];
    made.insert(name);
  }
  const std::vector<std::string> names(made.begin(), made.end());
  for (const auto& a : names) {
    EXPECT_FALSE(natural_less(a, a));
    for (const auto& b : names) {
      EXPECT_EQ(natural_less(a, b) + natural_less(b, a), a != b) << a << " " << b;
      for (const auto& c : names) {
        EXPECT_TRUE(!natural_less(a, b) || !natural_less(b, c) || natural_less(a, c));
      }
    }
  }
}

TEST(StableText, NeverMeetsAndComesBack) {
  const std::vector<std::string> names = {"a.jpg",        "a\n.jpg", "a\xff.jpg", "raw:a%0A.jpg",
                                          "a%0A.jpg",     "\x1b[0m", "raw:",      "\xc3\xa4",
                                          "\xe2\x80\xae", "a b.jpg", "raw:raw:",  "\xff%FF"};
  std::set<std::string> texts;
  for (const std::string& name : names) {
    const std::string text = stable_text(name);
    EXPECT_TRUE(is_printable(text)) << text;
    EXPECT_EQ(name_of_stable(text), name);
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), names.size());
  EXPECT_EQ(stable_text("a b.jpg"), "a b.jpg");
  EXPECT_EQ(stable_text("a\n%.jpg"), "raw:a%0A%25.jpg");
}

TEST(CleanCaption, HasNoControlCharacters) {
  EXPECT_EQ(clean_caption("  a cat\x1b[31m\r\n on\ta mat\x07 \n"), "a cat [31m \n on\ta mat");
  EXPECT_EQ(clean_caption("a\xc2\x9b\xe2\x80\xae"
                          "b\xff"),
            "a b\xef\xbf\xbd");
  EXPECT_EQ(clean_caption(" \n\t"), "");
  EXPECT_EQ(clean_caption("\xe7\x8c\xab"), "\xe7\x8c\xab");
}

TEST(JsonLine, IsOneLineSafeOnATerminalAndComesBack) {
  std::string all;
  for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
  all += "\xc2\x9b\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xef\xbb\xbf\xe7\x8c\xab\xf0\x9f\x90\x88";
  Json value = Json::object();
  value["caption"] = all;
  value["key\x1b"] = 1;
  const std::string line = json_line(value);
  EXPECT_TRUE(is_printable(line)) << line;
  EXPECT_EQ(Json::parse(line), value);
  EXPECT_EQ(parse_json(line, "line"), value);
  EXPECT_EQ(json_line(Json("\xff")), "\"\xef\xbf\xbd\"");
  EXPECT_NE(line.find("\\u009b"), std::string::npos);
}

std::string one_cell(const std::string& text, bool is_text = true, bool safe = true) {
  const CsvCell cell{text, is_text};
  return csv_row(std::span(&cell, 1), safe);
}

TEST(Csv, QuotesAndDisarms) {
  EXPECT_EQ(one_cell("plain"), "plain\r\n");
  EXPECT_EQ(one_cell("a,b"), "\"a,b\"\r\n");
  EXPECT_EQ(one_cell("say \"hi\""), "\"say \"\"hi\"\"\"\r\n");
  EXPECT_EQ(one_cell("two\nlines"), "\"two\nlines\"\r\n");
  for (const std::string start : {"=", "+", "-", "@", "\t"}) {
    EXPECT_EQ(one_cell(start + "1"), "'" + start + "1\r\n");
    EXPECT_EQ(one_cell(start + "1", true, false), start + "1\r\n");
    EXPECT_EQ(one_cell(start + "1,2"), "\"'" + start + "1,2\"\r\n");
  }
  EXPECT_EQ(one_cell("\r1"), "\"'\r1\"\r\n");
  EXPECT_EQ(one_cell("=HYPERLINK(\"http://x\",\"y\")"),
            "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"\r\n");
  EXPECT_EQ(one_cell("-1.5", false), "-1.5\r\n") << "numbers stay numbers";
  EXPECT_EQ(one_cell("a=b"), "a=b\r\n");
  const std::vector<CsvCell> cells = {{"a"}, {""}, {"c"}};
  EXPECT_EQ(csv_row(cells), "a,,c\r\n");
}

// A plain reader of RFC 4180, to see every row come back.
std::vector<std::string> read_row(const std::string& row) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i + 2 < row.size(); ++i) {
    if (quoted && row[i] == '"' && row[i + 1] == '"') {
      cells.back() += row[i++];
    } else if (row[i] == '"') {
      quoted = !quoted;
    } else if (row[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += row[i];
    }
  }
  return cells;
}

TEST(Csv, RandomCellsComeBack) {
  for (std::uint32_t i = 0; i < 2000; ++i) {
    std::vector<CsvCell> cells;
    for (std::uint32_t c = 0; c < 3; ++c) {
      const auto draw = philox4x32({i, c, 0, 0}, {3, 4});
      CsvCell cell;
      for (std::uint32_t k = 0; k < draw[0] % 6; ++k) {
        cell.text += ",\"\n\r=a b"[(draw[1] >> (3 * k)) % 8];
      }
      cells.push_back(cell);
    }
    const auto got = read_row(csv_row(cells, false));
    ASSERT_EQ(got.size(), 3u);
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(got[c], cells[c].text);
  }
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // RFC 3720, B.4 uses the same polynomial
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(content_hash(""), "cbf29ce484222325");
  EXPECT_EQ(content_hash("a"), "af63dc4c8601ec8c");
}

TEST(CaptionPrompt, FillsAndRefuses) {
  EXPECT_EQ(CaptionPrompt("{name} in {directory}/{name}").fill("cat", "pets"), "cat in pets/cat");
  EXPECT_EQ(CaptionPrompt("no places").fill("cat", "pets"), "no places");
  EXPECT_EQ(CaptionPrompt("").fill("a", "b"), "");
  EXPECT_EQ(CaptionPrompt("{name}").fill("{directory}", "secret"), "{directory}")
      << "what is put in is not read again";
  EXPECT_EQ(CaptionPrompt("{} { name } {\"json\": 1} {name").fill("a", "b"),
            "{} { name } {\"json\": 1} {name");
  EXPECT_EQ(CaptionPrompt("{{name}}").fill("a", "b"), "{a}");
  for (const std::string word : {"nam", "Name", "x", "0", "file_name", "name2"}) {
    try {
      CaptionPrompt("a {" + word + "}");
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_EQ(error.info().found, "{" + word + "}");
      EXPECT_EQ(error.info().where, "prompt, byte 2");
    }
  }
}

TEST(JoinCaptions, FourPolicies) {
  using enum ExistingCaption;
  EXPECT_EQ(join_captions("old", "new", kSkip), "old");
  EXPECT_EQ(join_captions("old", "new", kOverwrite), "new");
  EXPECT_EQ(join_captions("old\n", " new ", kAppend), "old new");
  EXPECT_EQ(join_captions("old\n", "new", kPrepend), "new old");
  EXPECT_EQ(join_captions(" \n", "new", kAppend), "new");
  EXPECT_EQ(join_captions("old", "", kPrepend), "old");
}

}  // namespace
}  // namespace tessera::text_forms_test
