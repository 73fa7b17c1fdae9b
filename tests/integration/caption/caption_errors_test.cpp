// What goes wrong costs one image, or ends before anything is written; the code says which.
#include "tests/integration/caption/caption_program.h"
#include "tests/support/tar_builder.h"

namespace tessera::caption_errors_test {
namespace {

class CaptionErrors : public CaptionTest {
 protected:
  // Codes of failed items by path, from stdout with --json.
  static std::map<std::string, std::string> failures(const ProgramResult& result) {
    std::map<std::string, std::string> out;
    for (const Json& line : result.json_lines()) {
      if (!line.contains("error")) continue;
      const std::string path = line.contains("path") ? line["path"] : line["id"];
      EXPECT_FALSE(out.contains(path)) << path;
      out[path] = line["error"].at("code");
    }
    return out;
  }
  // Refused as a whole: one line, and nothing left over.
  void expect_refused(const std::vector<std::string>& more, int code,
                      const std::vector<std::string>& parts) {
    const std::vector<std::string> before = files();
    const ProgramResult result = caption(more, code);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    for (const std::string& part : parts) {
      EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
    }
    EXPECT_EQ(files(), before) << "something was left over";
  }
};

TEST_F(CaptionErrors, OneBadImageIsOneFailedItem) {
  put_images("in", 3);
  put("in/cut.png", image(1).substr(0, 200));
  put("in/text.png", "hello, I am no image");
  put("in/zero.png", "");
  std::filesystem::create_symlink("nowhere", folder_ / "in/dangling.png");
  const std::map<std::string, std::string> expected = {{"in/cut.png", "E_PICTURE_CUT"},
                                                       {"in/dangling.png", "E_IO_OPEN"},
                                                       {"in/text.png", "E_PICTURE_FORMAT"},
                                                       {"in/zero.png", "E_PICTURE_FILE"},
                                                       {"none.png", "E_IO_OPEN"}};
  const ProgramResult first = caption({"in", "none.png", "-o", "x.jsonl", "--json"}, 3);
  EXPECT_EQ(failures(first), expected);
  EXPECT_EQ(first.error_lines(), expected.size()) << first.err;
  EXPECT_EQ(texts(content("x.jsonl")).size(), 3u);

  const std::string bytes = content("x.jsonl");
  const ProgramResult second = caption({"in", "none.png", "-o", "x.jsonl", "--json"}, 3);
  EXPECT_EQ(failures(second).size(), 0u) << "they are not tried again";
  EXPECT_NE(second.err.find("--retry-failed"), std::string::npos) << second.err;
  EXPECT_EQ(content("x.jsonl"), bytes);

  put("in/zero.png", image(9));
  put("none.png", image(8));
  const ProgramResult third =
      caption({"in", "none.png", "-o", "x.jsonl", "--json", "--retry-failed"}, 3);
  EXPECT_EQ(failures(third).size(), 3u);
  EXPECT_EQ(texts(content("x.jsonl")).size(), 5u) << "added to the three";
}

TEST_F(CaptionErrors, TextFilesOfTheOthersAreWritten) {
  put_images("in", 2);
  put("in/bad.png", "x");
  put("in/p2.jpg", image(5));  // comes before in/p2.png, and in/p2.txt is its own
  const ProgramResult result = caption({"in", "--json"}, 3);
  const auto failed = failures(result);
  EXPECT_EQ(failed.size(), 2u);
  EXPECT_EQ(failed.at("in/bad.png"), "E_PICTURE_FORMAT");
  EXPECT_EQ(failed.at("in/p2.png"), "E_SIDECAR_SHARED");
  EXPECT_EQ(result.json_lines().size(), 4u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "in/p1.txt"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "in/p2.txt"));
  EXPECT_EQ(caption({"in"}, 3).out, "");
}

TEST_F(CaptionErrors, WhenAllFailTheCodeIsOne) {
  put("in/bad.png", "x");
  caption({"in", "-o", "x.jsonl"}, 1);
  caption({"in"}, 1);
  caption({"nowhere"}, 1);
  const ProgramResult one = caption({"--image", "in/bad.png", "--json"}, 1);
  EXPECT_EQ(failures(one).size(), 1u);
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_EQ(caption({"empty"}).out, "") << "nothing to do is no error";
}

TEST_F(CaptionErrors, ArchivesAreReadAsFarAsTheyGo) {
  put_images("in", 4);
  const auto truth = texts_of("truth.jsonl", {"in"});
  TarText tar;
  for (int i = 1; i <= 4; ++i) tar.file("p" + std::to_string(i) + ".png", image(i));
  const std::string whole = tar.end();
  const std::string third = TarText().file("x", image(1)).file("x", image(2)).text();
  put("cut.tar", std::string_view(whole).substr(0, third.size() + 600));
  const ProgramResult result = caption({"cut.tar", "-o", "x.jsonl", "--json"}, 3);
  EXPECT_EQ(failures(result), (std::map<std::string, std::string>{{"cut.tar", "E_TAR_CUT"}}));
  auto found = texts(content("x.jsonl"));
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(found["cut.tar/p1.png"], truth.at("in/p1.png"));
  EXPECT_EQ(found["cut.tar/p2.png"], truth.at("in/p2.png"));

  put("odd.tar", TarText()
                     .file("p1.png", image(1))
                     .file("p2.png", image(2))
                     .file("p1.png", image(3))
                     .file("two.png", image(1))
                     .file("two.jpg", image(2))
                     .file("zero.png", "")
                     .file("p4.png", image(4))
                     .end());
  const auto failed = failures(caption({"odd.tar", "-o", "y.tar", "--json"}, 3));
  EXPECT_EQ(failed.size(), 3u);
  EXPECT_EQ(failed.at("odd.tar/two"), "E_SAMPLE_PICTURE");
  EXPECT_EQ(failed.at("odd.tar/zero.png"), "E_PICTURE_FILE");
  EXPECT_EQ(failed.count("odd.tar/p1") + failed.count("odd.tar/p1.png"), 1u);
  EXPECT_NE(content("y.tar").find("p4.txt"), std::string::npos) << "the last one is there";
  caption({"odd.tar"}, 2);  // a shard has no place for text files
}

TEST_F(CaptionErrors, AFolderThatMayNotBeReadIsOneFailure) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  put_images("in", 2);
  put_images("in/locked", 1);
  std::filesystem::permissions(folder_ / "in/locked", std::filesystem::perms::none);
  const ProgramResult result = caption({"in", "--recursive", "-o", "x.jsonl", "--json"}, 3);
  std::filesystem::permissions(folder_ / "in/locked", std::filesystem::perms::owner_all);
  EXPECT_EQ(failures(result).size(), 1u);
  EXPECT_EQ(texts(content("x.jsonl")).size(), 2u);
}

TEST_F(CaptionErrors, ListsAreCheckedWholeBeforeTheModelIsOpened) {
  put("in/p1.png", image(1));
  put("a.jsonl",
      "{\"image\":\"in/p1.png\"}\n"
      "{\"image\":\"/etc/passwd.png\"}\n"
      "{\"image\":\"in/p1.png\",\"colour\":\"red\"}\n"
      "{\"image\":\"in/p1.png\"}\n"
      "{\"image\": 7}\n"
      "not json\n");
  const std::vector<std::string> before = files();
  const ProgramResult result =
      run({"caption", "-m", "no-such-model", "a.jsonl", "-o", "x.jsonl"});  // 4 comes later than 2
  EXPECT_EQ(result.exit_code, 2) << result.err;
  for (const char* part :
       {"a.jsonl: line 2, column 10", "a.jsonl: line 3, column 22", "a.jsonl: line 4, column 1",
        "a.jsonl: line 5, column 11", "a.jsonl: line 6, column 1"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
  }
  EXPECT_EQ(result.error_lines(), 5u) << result.err;
  EXPECT_EQ(files(), before);
  expect_refused({"none.jsonl", "-o", "x.jsonl"}, 2, {"none.jsonl"});
}

TEST_F(CaptionErrors, UsageIsTwo) {
  put("in/p1.png", image(1));
  expect_refused({}, 2, {"--image"});
  expect_refused({"in", "--image", "in/p1.png"}, 2, {"both"});
  expect_refused({"--image", "in/p1.png", "-o", "x.jsonl"}, 2, {"--output"});
  expect_refused({"in", "-o", "x.txt"}, 2, {".jsonl, .csv or .tar", "x.txt"});
  expect_refused({"in", "--no-such-flag"}, 2, {"--no-such-flag"});
  expect_refused({"in", "--existing", "perhaps"}, 2, {"--existing", "append", "perhaps"});
  expect_refused({"in", "--existing", "append", "-o", "x.jsonl"}, 2, {"--existing"});
  expect_refused({"in", "--csv-raw", "-o", "x.jsonl"}, 2, {"--csv-raw"});
  expect_refused({"in", "--decode", "magic"}, 2, {"--decode", "lookup", "magic"});
  expect_refused({"in", "--decode", "plain", "--window", "4"}, 2, {"--window", "plain"});
  expect_refused({"in", "--window", "0"}, 2, {"--window"});
  expect_refused({"in", "--batch-size", "0"}, 2, {"--batch-size"});
  expect_refused({"in", "--caption-ext", "png"}, 2, {"--caption-ext", "png"});
  expect_refused({"in", "--caption-ext", "jpg", "-o", "x.tar"}, 2, {"--caption-ext", "jpg"});
  expect_refused({"in", "--caption-ext", "../x"}, 2, {"--caption-ext"});
  expect_refused({"in", "-p", "What is {colour}?"}, 2, {"{colour}", "{name}"});
  expect_refused({"in", "--temp", "-1"}, 2, {"--temp"});
  expect_refused({"in", "--device", "tpu"}, 2, {"tpu"});
  const ProgramResult result = run(words({"in"}, "4000"));
  EXPECT_EQ(result.exit_code, 2) << "more tokens than the model has positions: " << result.err;
  EXPECT_NE(result.err.find("--max-tokens"), std::string::npos) << result.err;
  EXPECT_EQ(files(), std::vector<std::string>{"in/p1.png"});
}

TEST_F(CaptionErrors, ModelsAreFour) {
  put("in/p1.png", image(1));
  const auto refused = [&](const std::string& model, const std::string& part) {
    const ProgramResult result = run({"caption", "-m", model, "in", "-o", "x.jsonl"});
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(files(), std::vector<std::string>{"in/p1.png"});
  };
  refused("nowhere", "nowhere");
  const std::string janus = TESSERA_SOURCE_DIR "/assets/models/tabletop-janus";
  if (std::filesystem::exists(janus)) refused(janus, "describes images");
}

TEST_F(CaptionErrors, AnOutputOfSomebodyElseIsSix) {
  put("in/p1.png", image(1));
  put("x.jsonl", "mine\n");
  expect_refused({"in", "-o", "x.jsonl"}, 6, {"x.jsonl", "a file"});
  EXPECT_EQ(content("x.jsonl"), "mine\n");
  expect_refused({"in", "-o", "nowhere/x.jsonl"}, 6, {"nowhere"});
  caption({"in", "-o", "x.jsonl", "--anew"});
  EXPECT_EQ(texts(content("x.jsonl")).size(), 1u);
  const ProgramResult other = caption({"in", "-o", "x.jsonl", "-p", "Another question."}, 2);
  EXPECT_NE(other.err.find("Another question."), std::string::npos) << "the difference is named";
}

TEST_F(CaptionErrors, AProgramWithoutItsHelperSaysSoOnce) {
  put_images("in", 3);
  std::filesystem::copy_file(TESSERA_PROGRAM, home_ / "tessera");
  for (const std::vector<std::string>& what :
       {std::vector<std::string>{"in", "-o", "x.jsonl"}, {"in"}, {"--image", "in/p1.png"}}) {
    const std::vector<std::string> before = files();
    const ProgramResult result = run_program((home_ / "tessera").string(), words(what));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    EXPECT_NE(result.err.find("tessera-helper"), std::string::npos) << result.err;
    EXPECT_EQ(files(), before) << "no image is marked as failed";
  }
}

TEST_F(CaptionErrors, FullStdoutIsSixAndTheJobGoesOn) {
  put_images("in", 3);
  const auto truth = texts_of("truth.jsonl", {"in"});
  const ProgramResult result =
      run(words({"in", "-o", "x.jsonl", "--json"}), {}, nullptr, "/dev/full");
  EXPECT_EQ(result.exit_code, 6);
  caption({"in", "-o", "x.jsonl"});
  EXPECT_EQ(texts(content("x.jsonl")), truth);
}

}  // namespace
}  // namespace tessera::caption_errors_test
