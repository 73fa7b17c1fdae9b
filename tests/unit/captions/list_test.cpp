// Lists of images: every way to write one wrong is notified with line and column, before anything
// runs.
#include <gtest/gtest.h>

#include "apps/captions/caption_list.h"
#include "tests/support/temp_folder.h"

namespace tessera::list_test {
namespace {

std::vector<ErrorInfo> errors_of(const std::string& text,
                                 OutsidePaths outside = OutsidePaths::kRefused) {
  TempFolder folder;
  put_file(folder / "l.jsonl", text);
  IdPlaces places;
  return check_caption_list(folder / "l.jsonl", outside, places, 20).errors;
}

std::string first_error(const std::string& text, OutsidePaths outside = OutsidePaths::kRefused) {
  const auto errors = errors_of(text, outside);
  if (errors.empty()) return "";
  EXPECT_EQ(errors[0].kind, ErrorKind::kUsage);
  return errors[0].code + " " + errors[0].where;
}

TEST(CaptionList, ReadsFields) {
  TempFolder folder;
  put_file(folder / "l.jsonl",
           "{\"image\": \"a.jpg\"}\r\n\n  \n"
           "{\"prompt\":\"what?\\nsay\",\"image\":\"d/b \\u00e4.png\",\"id\":\"b-1\"}");
  CaptionListReader reader(folder / "l.jsonl", OutsidePaths::kRefused);
  const auto first = reader.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->line, 1u);
  EXPECT_EQ(first->image, "a.jpg");
  EXPECT_FALSE(first->id || first->prompt);
  const auto second = reader.next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->line, 4u);
  EXPECT_EQ(second->image, "d/b \xc3\xa4.png");
  EXPECT_EQ(second->id, "b-1");
  EXPECT_EQ(second->prompt, "what?\nsay");
  EXPECT_FALSE(reader.next());
}

TEST(CaptionList, EveryErrorHasLineAndColumn) {
  const std::string good = "{\"image\":\"a.jpg\"}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"{\"image\":\"b.jpg\",\"seed\":1}", "E_LIST_FIELD line 2, column 18"},
      {"{\"\xc3\xa4\":1}", "E_LIST_FIELD line 2, column 2"},
      {"{\"image\":\"\xc3\xa4\xc3\xa4.jpg\",\"x\":1}", "E_LIST_FIELD line 2, column 19"},
      {"{\"image\":7}", "E_LIST_FIELD line 2, column 10"},
      {"{\"image\":\"b.jpg\",\"prompt\":null}", "E_LIST_FIELD line 2, column 27"},
      {"{\"image\":\"b.jpg\",\"image\":\"c.jpg\"}", "E_LIST_FIELD line 2, column 18"},
      {"{\"prompt\":\"x\"}", "E_LIST_FIELD line 2, column 1"},
      {"[\"b.jpg\"]", "E_LIST_FIELD line 2, column 1"},
      {"\"b.jpg\"", "E_LIST_FIELD line 2, column 1"},
      {"{\"image\":\"b.jpg\"", "E_JSON line 2, column 17"},
      {"{\"image\":\"b.jpg\"} x", "E_JSON line 2, column 19"},
      {"{image:\"b.jpg\"}", "E_JSON line 2, column 2"},
      {"{\"image\":\"b\xff.jpg\"}", "E_JSON_UTF8 line 2, column 12"},
      {"{\"image\":\"/etc/b.jpg\"}", "E_LIST_PATH line 2, column 10"},
      {"{\"image\":\"../b.jpg\"}", "E_LIST_PATH line 2, column 10"},
      {"{\"image\":\"a/../../b.jpg\"}", "E_LIST_PATH line 2, column 10"},
      {"{\"image\":\"\"}", "E_LIST_PATH line 2, column 10"},
      {"{\"image\":\"a\\u0000b.jpg\"}", "E_LIST_PATH line 2, column 10"},
      {"{\"image\":\"a\\u001bb.jpg\"}", "E_LIST_PATH line 2, column 10"},
      {"{\"image\":\"" + std::string(4097, 'p') + "\"}", "E_LIST_PATH line 2, column 10"},
      {"{\"image\":\"b.jpg\",\"id\":\"\"}", "E_LIST_ID line 2, column 23"},
      {"{\"image\":\"b.jpg\",\"id\":\".b\"}", "E_LIST_ID line 2, column 23"},
      {"{\"image\":\"b.jpg\",\"id\":\"a/b\"}", "E_LIST_ID line 2, column 23"},
      {"{\"image\":\"b.jpg\",\"id\":\"" + std::string(121, 'i') + "\"}",
       "E_LIST_ID line 2, column 23"},
      {"{\"image\":\"b.jpg\",\"prompt\":\"" + std::string(65'537, 'p') + "\"}",
       "E_LIST_FIELD line 2, column 27"},
      {"{\"image\":\"a.jpg\"}", "E_LIST_DUPLICATE line 2, column 1"},
      {"{\"image\":\"./a.jpg\"}", "E_LIST_DUPLICATE line 2, column 1"},
      {std::string(2'000'000, ' '), "E_LIST_LINE line 2, column 1"},
      {"{\"image\":" + std::string(20, '['), "E_LIST_FIELD line 2, column 10"},
  };
  for (const auto& [line, want] : cases) {
    SCOPED_TRACE(line.substr(0, 80));
    EXPECT_EQ(first_error(good + line + "\n"), want);
  }
  EXPECT_EQ(first_error(good), "");
  EXPECT_EQ(first_error("{\"image\":\"../b.jpg\"}", OutsidePaths::kAllowed), "");
}

TEST(CaptionList, AllErrorsUpToTwenty) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += i % 2 == 0 ? "{\"image\":1}\n" : "nonsense\n";
  const auto errors = errors_of(text);
  ASSERT_EQ(errors.size(), 20u);
  EXPECT_EQ(errors[19].where, "line 20, column 1");
  const auto few = errors_of("x\n{\"image\":\"a.jpg\"}\n" + std::string(1'500'000, 'y') + "\n{}\n");
  ASSERT_EQ(few.size(), 3u) << "reading goes on after a bad line";
  EXPECT_EQ(few[1].where, "line 3, column 1");
  EXPECT_EQ(few[2].where, "line 4, column 1");
}

TEST(CaptionList, DuplicatesNameBothLinesOverAllLists) {
  TempFolder folder;
  put_file(folder / "1.jsonl", "{\"image\":\"a.jpg\",\"id\":\"x\"}\n");
  put_file(folder / "2.jsonl", "\n{\"image\":\"b.jpg\",\"id\":\"x\"}\n");
  IdPlaces places;
  EXPECT_TRUE(check_caption_list(folder / "1.jsonl", {}, places, 20).errors.empty());
  const auto errors = check_caption_list(folder / "2.jsonl", {}, places, 20).errors;
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].where, "line 2, column 1");
  EXPECT_EQ(errors[0].found, "\"x\" here and in " + (folder / "1.jsonl").string() + " line 1");
}

TEST(CaptionList, LinesAcrossReadBuffers) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += "{\"image\":\"" + std::to_string(i) + ".jpg\",\"prompt\":\"" +
            std::string(static_cast<std::size_t>(i % 97), 'p') + "\"}\n";
  }
  TempFolder folder;
  put_file(folder / "l.jsonl", text);
  CaptionListReader reader(folder / "l.jsonl", OutsidePaths::kRefused);
  for (int i = 0; i < 5000; ++i) {
    const auto entry = reader.next();
    ASSERT_TRUE(entry);
    ASSERT_EQ(entry->image, std::to_string(i) + ".jpg");
    ASSERT_EQ(entry->prompt->size(), static_cast<std::size_t>(i % 97));
  }
  EXPECT_FALSE(reader.next());
}

}  // namespace
}  // namespace tessera::list_test
