// `tessera caption` through the real program: where texts go, and what leaves them as they are.
#include <cmath>

#include "apps/captions/webdataset.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/integration/caption/caption_program.h"
#include "tests/support/memory_source.h"
#include "tests/support/tar_builder.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::caption_cli_test {
namespace {

class CaptionCli : public CaptionTest {
 protected:
  // Samples of an archive, all of them whole.
  std::vector<TarSample> samples(const std::string& name) const {
    MemorySource source(content(name));
    SampleReader reader(source, name, Carry::kEverything);
    std::vector<TarSample> out;
    while (auto sample = reader.next()) {
      EXPECT_FALSE(sample->failure.has_value()) << sample->key;
      out.push_back(std::move(*sample));
    }
    return out;
  }
  static std::string member(const TarSample& sample, const std::string& extension) {
    for (const SampleMember& other : sample.others) {
      if (other.extension == extension) return other.bytes;
    }
    return "(none)";
  }
};

TEST_F(CaptionCli, TextFilesStandNextToImagesAndASecondRunWritesNothing) {
  put_images("in", 3);
  put_images("in/deep", 2, 4);
  put("in/notes.md", "no image");
  caption({"in"});
  EXPECT_EQ(files(), (std::vector<std::string>{"in/deep/p4.png", "in/deep/p5.png", "in/notes.md",
                                               "in/p1.png", "in/p1.txt", "in/p2.png", "in/p2.txt",
                                               "in/p3.png", "in/p3.txt"}));
  const auto time = [&] { return std::filesystem::last_write_time(folder_ / "in/p2.txt"); };
  const auto before = time();
  EXPECT_EQ(caption({"in"}).out, "");
  EXPECT_EQ(time(), before);
  const ProgramResult deep = caption({"in", "--recursive", "--json"});
  ASSERT_EQ(deep.json_lines().size(), 2u) << "the others were there";
  EXPECT_EQ(deep.json_lines()[0].at("caption"), content("in/deep/p4.txt"));
  EXPECT_EQ(files().size(), 11u) << "no journal is left";
}

TEST_F(CaptionCli, WhatIsThereIsKeptReplacedOrJoined) {
  put_images("in", 2);
  caption({"in"});
  const std::string one = content("in/p1.txt"), two = content("in/p2.txt");
  put("in/p1.txt", "mine\n");
  EXPECT_NE(one, "mine");
  caption({"in", "--existing", "skip"});
  EXPECT_EQ(content("in/p1.txt"), "mine\n");
  caption({"in", "--existing", "append"});
  EXPECT_EQ(content("in/p1.txt"), one.empty() ? "mine" : "mine " + one);
  put("in/p1.txt", "mine");
  caption({"in", "--existing", "prepend"});
  EXPECT_EQ(content("in/p1.txt"), one.empty() ? "mine" : one + " mine");
  caption({"in", "--existing", "overwrite"});
  EXPECT_EQ(content("in/p1.txt"), one);
  EXPECT_EQ(content("in/p2.txt"), two);
  put("in/p1.txt", "mine");
  caption({"in", "--caption-ext", "caption"});
  EXPECT_EQ(content("in/p1.caption"), one);
  EXPECT_EQ(content("in/p1.txt"), "mine");
}

TEST_F(CaptionCli, JsonLinesHaveTheContractsFields) {
  put_images("in", 3);
  const ProgramResult result = caption({"in", "-o", "x.jsonl", "--json"});
  const auto lines = by_path(content("x.jsonl"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(by_path(result.out), lines) << "the terminal and the file say the same";
  const std::vector<std::string> contract = {"path",          "caption",     "tokens", "passes",
                                             "visual_tokens", "kept_tokens", "prune",  "seconds"};
  for (const auto& [path, line] : lines) {
    std::size_t at = 0;
    for (const auto& [name, value] : line.items()) {
      if (at < contract.size()) {
        EXPECT_EQ(name, contract[at]);
      }
      ++at;
    }
    EXPECT_LE(line["tokens"], 8);
    EXPECT_GE(line["tokens"], line["passes"]);
    EXPECT_EQ(line["kept_tokens"], line["visual_tokens"]);
    EXPECT_EQ(line["prune"], "none");
    EXPECT_TRUE(line["tokens"] == 8 || line["cut_short"] == false);
  }
  EXPECT_EQ(lines.at("in/p2.png")["sizes"], Json::parse("[[42,36]]"));
  EXPECT_EQ(files(), (std::vector<std::string>{"in/p1.png", "in/p2.png", "in/p3.png", "x.jsonl",
                                               "x.jsonl.journal"}));
  const std::string bytes = content("x.jsonl");
  EXPECT_EQ(caption({"in", "-o", "x.jsonl"}).out, "");
  EXPECT_EQ(content("x.jsonl"), bytes) << "a job that is over writes nothing";
}

TEST_F(CaptionCli, CsvHasAHeaderAndARowForEach) {
  put_images("in", 3);
  caption({"in", "-o", "x.csv"});
  const std::string text = content("x.csv");
  EXPECT_EQ(text.substr(0, text.find('\r')),
            "path,caption,tokens,passes,prune,visual_tokens,kept_tokens,seconds,id,prompt");
  for (const char* name : {"\nin/p1.png,", "\nin/p2.png,", "\nin/p3.png,"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
}

TEST_F(CaptionCli, ArchivesOfFoldersHoldTheImagesThatWereDescribed) {
  put_images("in", 2);
  put_images("in/deep", 1, 3);
  caption({"in", "--recursive", "-o", "x.tar"});
  const auto truth = texts_of("x.jsonl", {"in", "--recursive"});
  const auto all = samples("x.tar");
  ASSERT_EQ(all.size(), 3u);
  std::set<std::string> keys;
  for (const TarSample& sample : all) {
    keys.insert(sample.key);
    EXPECT_EQ(sample.image.extension, "png");
    EXPECT_EQ(sample.image.bytes, content("in/" + sample.key + ".png"));
    EXPECT_EQ(member(sample, "txt"), truth.at("in/" + sample.key + ".png"));
    EXPECT_EQ(Json::parse(member(sample, "caption.json")).at("path"), "in/" + sample.key + ".png");
  }
  EXPECT_EQ(keys, (std::set<std::string>{"deep/p3", "p1", "p2"}));
}

TEST_F(CaptionCli, ArchivesOfArchivesCarryWhatWasThere) {
  put("in.tar", TarText()
                    .file("a/0001.png", image(1))
                    .file("a/0001.txt", "mine")
                    .file("a/0001.cls", "7")
                    .file("a/0002.seg.json", "[1]")
                    .file("a/0002.png", image(2))
                    .end());
  put_images("in", 2);
  const auto truth = texts_of("x.jsonl", {"in"});
  const auto from_tar = texts_of("y.jsonl", {"in.tar"});
  EXPECT_EQ(from_tar.at("in.tar/a/0001.png"), truth.at("in/p1.png")) << "a file or a member";
  EXPECT_EQ(from_tar.at("in.tar/a/0002.png"), truth.at("in/p2.png"));

  const auto first = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"in.tar", "-o", out});
    caption(more);
    return samples(out).at(0);
  };
  const std::string text = truth.at("in/p1.png");
  const TarSample over = first("over.tar", {});
  EXPECT_EQ(over.key, "a/0001");
  EXPECT_EQ(over.image.bytes, image(1));
  EXPECT_EQ(member(over, "cls"), "7");
  EXPECT_EQ(member(over, "txt"), text);
  EXPECT_EQ(member(samples("over.tar").at(1), "seg.json"), "[1]");
  EXPECT_EQ(member(samples("over.tar").at(1), "txt"), truth.at("in/p2.png"));
  const TarSample kept = first("skip.tar", {"--existing", "skip"});
  EXPECT_EQ(member(kept, "txt"), "mine");
  const TarSample joined = first("append.tar", {"--existing", "append"});
  EXPECT_EQ(member(joined, "txt"), text.empty() ? "mine" : "mine " + text);
}

TEST_F(CaptionCli, ListsHavePromptsOfTheirOwn) {
  put_images("lists/in", 2);
  put("lists/a.jsonl",
      "{\"image\":\"in/p1.png\",\"id\":\"first\",\"prompt\":\"What is left of the cube?\"}\n"
      "\n"
      "{\"image\":\"in/p2.png\"}\n"
      "{\"image\":\"in/p1.png\",\"id\":\"second\"}\n");
  caption({"lists/a.jsonl", "-o", "x.jsonl", "-p", "Name {name} in {directory}."});
  std::vector<Json> lines;
  std::istringstream in(content("x.jsonl"));
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  const auto asked = [&](const std::string& image, const std::string& prompt) {
    return std::string(
        caption({"--image", image, "-p", prompt, "--json"}).json_lines().at(0).at("caption"));
  };
  std::map<std::string, std::multiset<std::string>> found;
  for (const Json& line : lines) {
    found[line.at("path")].insert(line.at("caption").get<std::string>());
  }
  const std::string one = "lists/in/p1.png", two = "lists/in/p2.png";
  EXPECT_EQ(found[one], (std::multiset<std::string>{asked(one, "What is left of the cube?"),
                                                    asked(one, "Name p1 in in.")}));
  EXPECT_EQ(found[two], (std::multiset<std::string>{asked(two, "Name p2 in in.")}));
}

// A scale of 1 is none; a question and a job are guided alike; the negative prompt is part of both.
TEST_F(CaptionCli, TextsAreGuided) {
  put_images("in", 2);
  const auto asked = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--image", "in/p1.png", "--json"});
    return std::string(caption(more).json_lines().at(0).at("caption"));
  };
  EXPECT_EQ(asked({"--cfg-scale", "1"}), asked({}));
  const std::string guided = asked({"--cfg-scale", "40"});
  const std::string away = asked({"--cfg-scale", "40", "-n", "a red cube on a table"});
  EXPECT_NE(guided, asked({}));
  EXPECT_NE(away, guided);
  caption({"in", "-o", "x.jsonl", "--cfg-scale", "40"});
  EXPECT_EQ(texts(content("x.jsonl")).at("in/p1.png"), guided);
  caption({"in", "-o", "y.jsonl", "--cfg-scale", "40", "-n", "a red cube on a table"});
  EXPECT_EQ(texts(content("y.jsonl")).at("in/p1.png"), away);
  const ProgramResult refused = caption({"in", "-o", "z.jsonl", "-n", "a red cube"}, 2);
  EXPECT_NE(refused.err.find("--cfg-scale"), std::string::npos) << refused.err;
}

TEST_F(CaptionCli, OneQuestionAboutSeveralImages) {
  put_images("in", 2);
  const auto lines =
      caption({"--image", "in/p1.png", "--image", "in/p2.png", "-p", "Which one is red?", "--json"})
          .json_lines();
  ASSERT_EQ(lines.size(), 1u);
  const Json one =
      caption({"--image", "in/p1.png", "-p", "Which one is red?", "--json"}).json_lines().at(0);
  EXPECT_EQ(lines[0].at("visual_tokens"), 2 * one.at("visual_tokens").get<int>());
  EXPECT_EQ(lines[0].at("sizes"), Json::parse("[[41,36],[42,36]]"));
  EXPECT_EQ(files(), (std::vector<std::string>{"in/p1.png", "in/p2.png"})) << "nothing is written";
}

// What others compare with: its tokens are the text that is written.
TEST_F(CaptionCli, DumpHoldsWhatTheModelComputes) {
  put_images("in", 2);
  const std::vector<std::string> question = {"--image", "in/p1.png", "--image", "in/p2.png"};
  std::vector<std::string> dumped = question, answered = question;
  dumped.insert(dumped.end(), {"--dump", "dump.safetensors"});
  answered.push_back("--json");
  EXPECT_EQ(caption(dumped).out, "");
  const std::string text = caption(answered).json_lines().at(0).at("caption");
  const Checkpoint dump = Checkpoint::open(folder_ / "dump.safetensors");
  ASSERT_EQ(dump.tensors().size(), 5u);
  const auto ints = [&](const char* name) {
    const ConstTensorView* view = dump.find(name);
    return std::vector<std::int32_t>(view->as<std::int32_t>(),
                                     view->as<std::int32_t>() + view->shape.elements());
  };
  const ConstTensorView& logits = *dump.find("logits");
  const std::vector<std::int32_t> tokens = ints("tokens"), ids = ints("input_ids");
  ASSERT_EQ(logits.shape.rank(), 2);
  ASSERT_EQ(logits.shape[0], std::ssize(tokens));
  for (std::int64_t i = 0; i < logits.shape[0]; ++i) {
    const float* row = logits.f32() + i * logits.shape[1];
    EXPECT_EQ(std::max_element(row, row + logits.shape[1]) - row,
              tokens[static_cast<std::size_t>(i)]);
  }
  // A placeholder a row of features, both images alike in number and not in what they are.
  const ConstTensorView &one = *dump.find("features.0"), &other = *dump.find("features.1");
  const auto tokenizer = TextTokenizer::from_file(model_ / "tokenizer.json");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer.id_of("<image>")),
            one.shape[0] + other.shape[0]);
  EXPECT_FALSE(std::equal(one.f32(), one.f32() + one.shape.elements(), other.f32()));
  const auto end = std::find(tokens.begin(), tokens.end(), *tokenizer.id_of("</s>"));
  const std::string written = tokenizer.decode({tokens.begin(), end});
  EXPECT_NE(written.find(text), std::string::npos) << written << " | " << text;
  EXPECT_FALSE(text.empty());
  caption({"in", "--dump", "dump.safetensors"}, 2);
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--temp", "0.5"}, {"--repetition-penalty", "1.5"}, {"--cfg-scale", "2"},
           {"--prune", "divprune"}, {"--logprobs", "2", "--json"}}) {
    std::vector<std::string> words = dumped;
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_NE(caption(words, 2).err.find(flags[0]), std::string::npos);
  }
}

// Those of the logits that --dump writes.
TEST_F(CaptionCli, LogprobsAreThoseOfTheLogits) {
  put_images("in", 1);
  const std::vector<std::string> question = {"--image", "in/p1.png"};
  std::vector<std::string> dumped = question, listed = question;
  dumped.insert(dumped.end(), {"--dump", "dump.safetensors"});
  listed.insert(listed.end(), {"--json", "--logprobs", "3"});
  caption(dumped);
  const Checkpoint dump = Checkpoint::open(folder_ / "dump.safetensors");
  const ConstTensorView& logits = *dump.find("logits");
  const Json line = caption(listed).json_lines().at(0);
  const Json& tokens = line.at("logprobs");
  ASSERT_GT(tokens.size(), 3u);
  ASSERT_GE(logits.shape[0], std::ssize(tokens));
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const float* row = logits.f32() + static_cast<std::int64_t>(i) * logits.shape[1];
    std::vector<double> sorted(row, row + logits.shape[1]);
    std::sort(sorted.rbegin(), sorted.rend());
    double sum = 0;
    for (const double logit : sorted) sum += std::exp(logit - sorted[0]);
    ASSERT_EQ(tokens[i].at("top_logprobs").size(), 3u);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_NEAR(tokens[i].at("top_logprobs")[rank].at("logprob").get<double>(),
                  sorted[rank] - sorted[0] - std::log(sum), 0.02);  // its rows are computed at once
    }
    EXPECT_EQ(tokens[i].at("logprob"), tokens[i].at("top_logprobs")[0].at("logprob"));
    for (const Json& byte : tokens[i].at("bytes")) text += static_cast<char>(byte.get<int>());
  }
  EXPECT_NE(text.find(line.at("caption").get<std::string>()), std::string::npos) << text;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--image", "in/p1.png", "--logprobs", "1"},
                                             {"in", "--json", "--logprobs", "1"}}) {
    EXPECT_NE(caption(words, 2).err.find("--logprobs"), std::string::npos);
  }
}

TEST_F(CaptionCli, AWellKnownImageIsDescribedOnceHoweverOftenItIsNamed) {
  put_images("in", 2);
  const ProgramResult result =
      caption({"in/p1.png", "in/p1.png", "in", "./in/p2.png", "-o", "x.jsonl", "--json"});
  EXPECT_EQ(by_path(result.out).size(), 2u);
  EXPECT_EQ(by_path(content("x.jsonl")).size(), 2u);
}

// The same texts, whatever is drafted, and however many are written at once.
TEST_F(CaptionCli, BatchThreadsAndDecodingLeaveTextsAlone) {
  put_images("in", 9);
  put("in/other.jpg",
      get_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/image/files/rgb444.jpg"));
  for (const std::vector<std::string>& prune : {std::vector<std::string>{},
                                                {"--prune", "random", "--keep-tokens", "20"},
                                                {"--prune", "fastv", "--prune-rate", "0.5"}}) {
    int number = 0;
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), prune.begin(), prune.end());
      more.push_back("in");
      return texts_of(std::to_string(number++) + (prune.empty() ? "" : prune[1]) + ".jsonl", more);
    };
    const auto truth = with({"--decode", "plain", "--batch-size", "1", "-t", "1"});
    ASSERT_EQ(truth.size(), 10u);
    EXPECT_EQ(with({"--decode", "plain", "--batch-size", "8", "-t", "2"}), truth);
    EXPECT_EQ(with({"--decode", "lookup", "--window", "5", "--batch-size", "8"}), truth);
    EXPECT_EQ(with({"--decode", "recycle", "--window", "4", "--batch-size", "3"}), truth);
    EXPECT_EQ(with({"--decode", "auto", "--batch-size", "8", "-t", "1"}), truth);
    if (!prune.empty() && prune[1] == "fastv") continue;  // cuts inside the language model
    EXPECT_EQ(with({"--decode", "gumbel-tree", "--batch-size", "3"}), truth);
  }
}

// Drawn texts belong to the image and the seed, not to the place in the run.
TEST_F(CaptionCli, DrawnTextsDoNotMindTheirNeighbours) {
  put_images("in", 6);
  const std::vector<std::string> drawn = {"--temp", "1.5", "-s", "4"};
  const auto with = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), drawn.begin(), drawn.end());
    return texts_of(out, more);
  };
  const auto all = with("a.jsonl", {"in", "--batch-size", "4", "--decode", "lookup"});
  const auto last = with("b.jsonl", {"in/p6.png", "in/p5.png", "--decode", "plain"});
  EXPECT_EQ(last.at("in/p6.png"), all.at("in/p6.png"));
  EXPECT_EQ(last.at("in/p5.png"), all.at("in/p5.png"));
  EXPECT_NE(texts_of("c.jsonl", {"in", "--temp", "1.5", "-s", "5"}), all);
}

// Log and progress are on stderr: nothing, lines of JSON whose last one has the whole count, or,
// off a terminal, a line every five seconds.
TEST_F(CaptionTest, ProgressIsWhatItIsAskedToBe) {
  put_images("in", 5);
  put("in/bad.png", "no image");
  for (const char* mode : {"none", "json", "auto"}) {
    const ProgramResult result =
        caption({"in", "-o", std::string(mode) + ".jsonl", "--progress", mode}, 3);
    std::vector<Json> lines;
    std::istringstream in(result.err);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("{")) lines.push_back(Json::parse(line));
    }
    if (std::string_view(mode) != "json") {
      EXPECT_TRUE(lines.empty());
      // One of the bad image; a slow machine's lines come next to it.
      EXPECT_GE(result.error_lines(), 1u) << result.err;
      if (std::string_view(mode) == "none") {
        EXPECT_EQ(result.error_lines(), 1u) << result.err;
      }
      continue;
    }
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back().at("progress").at("done"), 5);
    EXPECT_EQ(lines.back().at("progress").at("failed"), 1);
  }
}

}  // namespace
}  // namespace tessera::caption_cli_test
