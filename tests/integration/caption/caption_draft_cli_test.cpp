// Draft models through the real program: flags, fields, refusals, and the same texts in every form.
#include "tests/integration/caption/caption_program.h"

namespace tessera::caption_draft_cli_test {
namespace {

class CaptionDraftCli : public CaptionTest {
 protected:
  void expect_refused(const std::vector<std::string>& more, const std::string& part, int code = 2) {
    const std::vector<std::string> before = files();
    const ProgramResult result = caption(more, code);
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
    EXPECT_EQ(files(), before);
  }
};

TEST_F(CaptionDraftCli, TextsAndFieldsOfAJobWithADraft) {
  put_images("in", 5);
  const auto plain = texts_of("plain.jsonl", {"in", "--decode", "plain"});
  const std::string name = model_.string();
  struct Case {
    std::vector<std::string> flags;
    int kept;  // of 144
  };
  for (const Case& one : {Case{{"--decode", "draft", "--window", "5", "--batch-size", "1"}, 144},
                          Case{{"--draft-keep", "36", "--batch-size", "3"}, 36},
                          Case{{"--draft-keep", "12.5%", "--draft-prune", "vispruner"}, 18},
                          Case{{"--draft-prune", "fastv", "--decode", "draft"}, 48},
                          Case{{"--draft-keep", "0", "--decode", "draft"}, 0}}) {
    std::vector<std::string> words = {"in", "--anew", "-o", "x.jsonl", "--model-draft", name};
    words.insert(words.end(), one.flags.begin(), one.flags.end());
    caption(words);
    const auto lines = by_path(content("x.jsonl"));
    ASSERT_EQ(lines.size(), plain.size());
    for (const auto& [path, line] : lines) {
      EXPECT_EQ(line.at("caption"), plain.at(path));
      EXPECT_EQ(line.at("draft"), "tabletop-llava");
      EXPECT_EQ(line.at("draft_kept_tokens"), one.kept) << one.flags[1];
      EXPECT_EQ(line.at("kept_tokens"), 144);
      EXPECT_LE(line.at("draft_seconds"), line.at("encode_seconds"));
      if (one.kept == 144) {
        EXPECT_EQ(line.at("passes"), 1 + (line.at("tokens").get<int>() - 1 + 4) / 5);
      }
    }
  }
}

TEST_F(CaptionDraftCli, AnswersAreDraftedForToo) {
  put("in.png", image(3));
  const std::vector<std::string> question = {"--image", "in.png", "-p", "What is there?", "--temp",
                                             "0.8",     "-s",     "4",  "--json"};
  std::vector<std::string> drafted = question;
  drafted.insert(drafted.end(), {"--model-draft", "tabletop-llava", "--draft-keep", "20%",
                                 "--prune", "divprune", "--decode", "draft"});
  std::vector<std::string> plain = question;
  plain.insert(plain.end(), {"--prune", "divprune", "--decode", "plain"});
  const Json one = caption(drafted).json_lines().at(0), other = caption(plain).json_lines().at(0);
  EXPECT_EQ(one.at("caption"), other.at("caption"));
  EXPECT_EQ(one.at("kept_tokens"), other.at("kept_tokens"));
  EXPECT_EQ(one.at("draft_kept_tokens"), 29);
  EXPECT_FALSE(other.contains("draft"));
}

TEST_F(CaptionDraftCli, WhatCannotDraftIsRefused) {
  put("in.png", image(3));
  const std::string name = model_.string();
  expect_refused({"in.png", "--draft-keep", "10"}, "--model-draft");
  expect_refused({"in.png", "--draft-prune", "divprune"}, "--model-draft");
  expect_refused({"in.png", "--decode", "draft"}, "--model-draft");
  expect_refused({"in.png", "--model-draft", name, "--decode", "lookup"}, "--decode");
  expect_refused({"in.png", "--model-draft", name, "--decode", "plain"}, "--decode");
  expect_refused({"in.png", "--model-draft", name, "--draft-prune", "nobody"}, "divprune");
  for (const char* count : {"-1", "1.5", "101%", "%", "many", "1e30", "nan%"}) {
    expect_refused({"in.png", "--model-draft", name, std::string("--draft-keep=") + count},
                   "--draft-keep");
  }
  expect_refused({"in.png", "--model-draft", "nowhere"}, "nowhere", 4);
  expect_refused({"in.png", "--model-draft", "tabletop-janus"}, "model_type", 4);
}

}  // namespace
}  // namespace tessera::caption_draft_cli_test
