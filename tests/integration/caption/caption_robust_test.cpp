// What must not be lost, mixed or destroyed: answers of one image, files of others, jobs whose
// stdout goes away, inputs that cannot be had.
#include <fstream>

#include "apps/captions/webdataset.h"
#include "tests/integration/caption/caption_program.h"
#include "tests/support/memory_source.h"
#include "tests/support/tar_builder.h"

namespace tessera::caption_robust_test {
namespace {

class CaptionRobust : public CaptionTest {
 protected:
  // `script` sees the program and its first words as $T.
  ProgramResult shell(const std::string& script) {
    return run_program("/bin/sh", {"-c", "T='" TESSERA_PROGRAM " caption -m test:tiny " +
                                             std::string("--max-tokens 4'; ") + script});
  }
  ProgramResult tiny(std::vector<std::string> more, int code = 0) {
    std::vector<std::string> args = {"caption", "-m", "test:tiny", "--max-tokens", "4"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result;
  }
  std::vector<Json> lines_of(const std::string& name) const {
    std::vector<Json> out;
    std::istringstream in(content(name));
    for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
    return out;
  }
};

TEST_F(CaptionRobust, AnswersOfOneImageCanBeHeardApart) {
  put_images(".", 1);
  put("l.jsonl",
      "{\"image\":\"p1.png\",\"id\":\"first\",\"prompt\":\"What?\"}\n"
      "{\"image\":\"p1.png\",\"id\":\"p2.png\"}\n{\"image\":\"none.png\",\"id\":\"third\"}\n");
  put("p2.png", image(2));
  const ProgramResult result = tiny({"l.jsonl", "p2.png", "-o", "x.jsonl", "--json"}, 3);
  std::map<std::string, Json> found;
  for (const Json& line : lines_of("x.jsonl")) {
    found[line.value("id", line.at("path").get<std::string>()) + line.at("path").dump()] = line;
  }
  ASSERT_EQ(found.size(), 3u) << content("x.jsonl");
  EXPECT_EQ(found.at("first\"p1.png\"").at("prompt"), "What?");
  EXPECT_FALSE(found.at("p2.png\"p1.png\"").contains("prompt"));
  EXPECT_FALSE(found.at("p2.png\"p2.png\"").contains("id"));
  bool heard = false;
  for (const Json& line : result.json_lines()) {
    if (line.contains("error")) heard = line.at("id") == "third" && line.at("path") == "none.png";
  }
  EXPECT_TRUE(heard) << result.out;
  const std::string shown = tiny({"l.jsonl", "-o", "x.csv"}, 3).out;
  EXPECT_NE(shown.find("p1.png [first]: "), std::string::npos) << shown;
  EXPECT_NE(content("x.csv").find(",first,What?\r\n"), std::string::npos) << content("x.csv");
}

// A file opened in the place of a closed stdout would be printed into.
TEST_F(CaptionRobust, ClosedStandardFilesTakeNothingFromOutputs) {
  put_images(".", 2);
  tiny({"p1.png", "p2.png", "-o", "truth.jsonl"});
  EXPECT_EQ(shell("$T p1.png p2.png none.png -o x.jsonl <&- >&- 2>&-").exit_code, 3);
  EXPECT_EQ(texts(content("x.jsonl")), texts(content("truth.jsonl")));
  EXPECT_EQ(shell("$T p1.png p2.png none.png -o x.jsonl").exit_code, 3) << "the journal is whole";
}

TEST_F(CaptionRobust, AReaderOfStdoutMayLeave) {
  put_images("in", 60);
  const ProgramResult file =
      shell("{ $T in --json --batch-size 1 -o x.jsonl; echo $? >code; } | head -n 1");
  EXPECT_EQ(content("code"), "0\n") << file.err;
  EXPECT_EQ(texts(content("x.jsonl")).size(), 60u);
  EXPECT_NE(file.err.find("stdout"), std::string::npos);
  shell("{ $T in --json --batch-size 1; echo $? >code; } | head -n 1");
  EXPECT_EQ(content("code"), "6\n") << "nobody reads, and there is no file";
}

// Two items of one id, one after the other, next to failing ones: described once.
TEST_F(CaptionRobust, NothingIsDescribedTwice) {
  put_images(".", 1);
  std::vector<std::string> more;
  for (int i = 0; i < 2000; ++i) more.insert(more.end(), {"p1.png", "no.tar"});
  more.insert(more.end(), {"-o", "x.jsonl", "--batch-size", "1"});
  tiny(more, 3);
  EXPECT_EQ(lines_of("x.jsonl").size(), 1u);
}

TEST_F(CaptionRobust, ResumedJobsAreTheSameJob) {
  put_images("in", 1);
  std::filesystem::create_directories(folder_ / "one");
  std::filesystem::copy(model_, folder_ / "one/m", std::filesystem::copy_options::recursive);
  const auto with = [&](std::vector<std::string> more, int code) {
    std::vector<std::string> args = {"caption", "-m", "one/m",   "--max-tokens", "4",
                                     "in",      "-o", "x.jsonl", "--prune"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result.err;
  };
  with({"hired"}, 0);
  with({"hired", "--decode", "lookup"}, 0);
  EXPECT_NE(with({"hired", "--parity"}, 2).find("parity"), std::string::npos);
  // Other weights under the same name.
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "one/m")) {
    if (entry.path().extension() != ".safetensors") continue;
    std::string bytes = get_file(entry.path());
    for (std::size_t at = bytes.size() / 2; at < bytes.size(); at += 2) bytes[at] ^= 1;
    put_file(entry.path(), bytes);
  }
  EXPECT_NE(with({"hired"}, 2).find("model_files.weights"), std::string::npos);
  tiny({"in", "-o", "t.jsonl"});
  tiny({"in/", "-o", "t.jsonl"});
}

TEST_F(CaptionRobust, ABadFirstInputIsOneFailure) {
  put_images("pics", 2);
  const std::string longer(300, 'n');
  tiny({longer + ".png", "nosuch/x/n.png", "pics"}, 3);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "pics/p2.txt"));
  tiny({"nosuch/x/n.png"}, 1);
}

TEST_F(CaptionRobust, ArchivesNeedAnOutput) {
  put("s.TAR",
      TarText().file("1.png", image(1)).file("a/../../2.png", "x").file("README", "x").end());
  const ProgramResult result = tiny({"s.TAR"}, 2);
  EXPECT_NE(result.err.find("--output"), std::string::npos) << result.err;
  EXPECT_EQ(files(), std::vector<std::string>{"s.TAR"});
  const ProgramResult more = tiny({"s.TAR", "-o", "x.jsonl"});
  EXPECT_EQ(lines_of("x.jsonl").size(), 1u);
  EXPECT_NE(more.err.find("1 members of archives passed over: links"), std::string::npos);
  EXPECT_NE(more.err.find("1 members of archives passed over: names"), std::string::npos);
}

TEST_F(CaptionRobust, NamesakesStandInForOneAnother) {
  put("in/a.jpg", "junk");
  put("in/a.png", image(1));
  put("in/b.jpg", image(2));
  put("in/b.png", image(3));
  const ProgramResult result = tiny({"in", "--json"}, 3);
  std::set<std::string> failed;
  for (const Json& line : result.json_lines()) {
    if (line.contains("error")) failed.insert(line.at("path"));
  }
  EXPECT_EQ(failed, (std::set<std::string>{"in/a.jpg", "in/b.png"}));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "in/a.txt"));
}

TEST_F(CaptionRobust, FoldersOfOneArchiveKeepTheirNames) {
  put_images("f1", 1);
  put_images("f2", 1);
  tiny({"f1", "f2", "-o", "x.tar"});
  MemorySource source(content("x.tar"));
  SampleReader reader(source, "x.tar", Carry::kEverything);
  std::set<std::string> keys;
  while (auto sample = reader.next()) keys.insert(sample->key);
  EXPECT_EQ(keys, (std::set<std::string>{"f1/p1", "f2/p1"}));
}

TEST_F(CaptionRobust, AFinishedJobThatAddedCaptionsAddsNoMore) {
  put_images("in", 2);
  put("in/p1.txt", "mine");
  tiny({"in", "--existing", "append"});
  const std::string once = content("in/p1.txt");
  tiny({"in", "--existing", "append"});
  EXPECT_EQ(content("in/p1.txt"), once);
  tiny({"in", "--existing", "append", "--anew"});
  EXPECT_GT(content("in/p1.txt").size(), once.size());
}

TEST_F(CaptionRobust, QuestionsTakeNoFlagsOfJobsAndFillTheirPrompt) {
  put_images("pets", 2);
  for (const std::vector<std::string>& flag : {std::vector<std::string>{"--retry-failed"},
                                               {"--recursive"},
                                               {"--existing", "append"},
                                               {"--csv-raw"},
                                               {"--caption-ext", "cap"},
                                               {"--anew"}}) {
    std::vector<std::string> more = {"--image", "pets/p1.png"};
    more.insert(more.end(), flag.begin(), flag.end());
    EXPECT_NE(tiny(more, 2).err.find(flag.front()), std::string::npos) << flag.front();
  }
  tiny({"--image", "pets/p1.png", "--image", "pets/p2.png", "-p", "Is {name} here?"}, 2);
  const auto asked = [&](const std::string& prompt) {
    const Json line =
        caption({"--image", "pets/p1.png", "-p", prompt, "--json"}).json_lines().at(0);
    return line.at("caption").get<std::string>();
  };
  EXPECT_EQ(asked("Name {name} in {directory}."), asked("Name p1 in pets."));
  const std::string shown = caption({"--image", "pets/p1.png"}).out;
  const Json same = caption({"--image", "pets/p1.png", "--json"}).json_lines().at(0);
  EXPECT_EQ(shown, same.at("caption").get<std::string>() + "\n");
}

TEST_F(CaptionRobust, SeedsSizesAndKeptTokensAreHeard) {
  put_images("in", 1);
  const ProgramResult drawn = tiny({"in", "-o", "x.jsonl", "--temp", "1", "-s", "-1"});
  const Json line = lines_of("x.jsonl").at(0);
  EXPECT_NE(drawn.err.find("seed " + line.at("seed").dump()), std::string::npos) << drawn.err;
  tiny({"in", "-o", "y.jsonl", "--temp", "1", "-s", line.at("seed").dump()});
  EXPECT_EQ(lines_of("y.jsonl").at(0).at("caption"), line.at("caption"));
  const ProgramResult pruned = caption({"in", "-o", "z.jsonl", "--prune", "random"});
  const Json kept = lines_of("z.jsonl").at(0);
  EXPECT_NE(pruned.err.find(kept.at("kept_tokens").dump() + " of " +
                            kept.at("visual_tokens").dump() + " visual tokens"),
            std::string::npos)
      << pruned.err;
  EXPECT_EQ(kept.at("sizes"), Json::parse("[[41,36]]"));
  EXPECT_GT(kept.at("seen_sizes").at(0).at(0), 41) << "resized for the encoder";
}

}  // namespace
}  // namespace tessera::caption_robust_test
