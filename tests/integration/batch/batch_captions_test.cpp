// Images that are described as they are generated: the text that `tessera caption` writes about the
// file, next to it, in the lines, in the merged list, however the job was split or disturbed.
#include <set>

#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_captions_test {
namespace {

class BatchCaptions : public BatchTest {
 protected:
  static std::vector<std::string> described(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--captioner", "test:tiny", "--captions"});
    return more;
  }
  static std::string next_to(const nlohmann::ordered_json& line, const std::string& ending) {
    const std::string path = line["path"];
    return path.substr(0, path.size() - 4) + ending;
  }
  // All files of a folder but those of the job's state.
  std::map<std::string, std::string> tree(const std::string& out) const {
    std::map<std::string, std::string> all;
    for (const std::string& name : files()) {
      const bool state = name.find("/.tessera/") != std::string::npos;
      if (name.starts_with(out + "/") && !state) all[name.substr(out.size() + 1)] = content(name);
    }
    return all;
  }
};

TEST_F(BatchCaptions, TextsAreThoseOfTheCaptioner) {
  const std::string job = put_job(3);
  const ProgramResult result = batch(job, "out", described({"--json", "--batch-size", "2"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = result.json_lines();
  ASSERT_EQ(lines.size(), 3u);
  std::vector<std::string> args = {"caption", "-m",     "test:tiny", "-t",
                                   "1",       "--json", "-o",        "c.jsonl"};
  for (const auto& line : lines) {
    EXPECT_EQ(line["caption"], content(next_to(line, ".txt")));
    EXPECT_FALSE(line["caption"].get<std::string>().empty());
    args.push_back(line["path"]);
  }
  const ProgramResult captions = run(args);
  ASSERT_EQ(captions.exit_code, 0) << captions.err;
  std::map<std::string, std::string> by_path;
  for (const auto& line : captions.json_lines()) by_path[line["path"]] = line["caption"];
  for (const auto& line : lines) {
    const std::string name = line["path"];
    const auto found = std::find_if(by_path.begin(), by_path.end(),
                                    [&](const auto& one) { return one.first.ends_with(name); });
    ASSERT_NE(found, by_path.end()) << name;
    EXPECT_EQ(found->second, line["caption"]);
  }
  // The images are those of a job without captions.
  ASSERT_EQ(batch(job, "bare").exit_code, 0);
  EXPECT_EQ(images("bare"), images("out"));
}

TEST_F(BatchCaptions, AnyShardsAndBatchesMergeToTheSame) {
  const std::string job = put_job(7);
  ASSERT_EQ(batch(job, "whole", described({"--batch-size", "4", "--sidecar"})).exit_code, 0);
  ASSERT_EQ(run({"batch", "merge", "whole"}).exit_code, 0);
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const ProgramResult part =
        batch(job, std::string("host") + shard[0], described({"--shard", shard, "--sidecar"}));
    ASSERT_EQ(part.exit_code, 0) << part.err;
  }
  const ProgramResult merged =
      run({"batch", "merge", "host2", "host3", "host1", "--output-dir", "all", "--json"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(merged.json_lines().at(0)["copied"], 21) << "text, facts and image of each";
  EXPECT_EQ(tree("all"), tree("whole"));
  std::istringstream results(content("all/results.jsonl"));
  std::size_t count = 0;
  for (std::string line; std::getline(results, line); ++count) {
    auto item = nlohmann::ordered_json::parse(line);
    item["path"] = "all/" + item["path"].get<std::string>();
    EXPECT_EQ(item["caption"], content(next_to(item, ".txt")));
  }
  EXPECT_EQ(count, 7u);
}

TEST_F(BatchCaptions, GoneAndChangedTextsAreWrittenAgain) {
  const std::string job = put_job(3);
  const std::vector<std::string> flags = described({"--name", "{id}.png"});
  ASSERT_EQ(batch(job, "out", flags).exit_code, 0);
  const auto truth = tree("out");
  ASSERT_EQ(truth.size(), 6u);
  std::filesystem::remove(folder_ / "out/p1.txt");
  const ProgramResult gone = batch(job, "out", flags);
  EXPECT_EQ(gone.exit_code, 0) << gone.err;
  EXPECT_NE(gone.err.find("p1.txt is gone"), std::string::npos) << gone.err;
  EXPECT_EQ(tree("out"), truth);
  // Other bytes of the same length: only --verify sees them, and they are somebody's work.
  std::string changed = truth.at("p2.txt");
  changed[0] = changed[0] == 'x' ? 'y' : 'x';
  put_file(folder_ / "out/p2.txt", changed);
  EXPECT_EQ(batch(job, "out", flags).exit_code, 0);
  std::vector<std::string> verify = {"--verify"};
  verify.insert(verify.end(), flags.begin(), flags.end());
  EXPECT_EQ(batch(job, "out", verify).exit_code, 3);
  EXPECT_EQ(content("out/p2.txt"), changed);
  verify.insert(verify.begin(), {"--overwrite", "--retry-failed"});
  EXPECT_EQ(batch(job, "out", verify).exit_code, 0);
  EXPECT_EQ(tree("out"), truth);
}

TEST_F(BatchCaptions, SeveralMethodsWriteATextEach) {
  const std::string job = put_job(2);
  const ProgramResult result = batch(job, "out",
                                     {"--captioner", "test:tiny", "--json", "--name", "{id}.png",
                                      "--captions", "none", "uniform", "random"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const auto& line : result.json_lines()) {
    EXPECT_EQ(line["caption"], content(next_to(line, ".txt")));
    for (const char* method : {"uniform", "random"}) {
      EXPECT_EQ(line["captions"][method],
                content(next_to(line, std::string(".") + method + ".txt")));
    }
  }
  EXPECT_EQ(tree("out").size(), 8u);
  const ProgramResult other = batch(job, "out", described({"--name", "{id}.png"}));
  EXPECT_EQ(other.exit_code, 2) << "other texts are another job";
  EXPECT_NE(other.err.find("options.captions.methods"), std::string::npos) << other.err;
}

// The text by a method is the one that `tessera caption --prune METHOD` writes about the file.
TEST_F(BatchCaptions, TextsOfMethodsAreThoseOfTheCaptioner) {
  const std::string job = put_job(3);
  const ProgramResult result = batch(job, "out",
                                     {"--captioner", "test:tiny", "--name", "{id}.png",
                                      "--batch-size", "2", "--captions", "uniform", "divprune"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, std::set<std::string>> texts;  // of a method
  for (const std::string method : {"uniform", "divprune"}) {
    const ProgramResult captions =
        run({"caption", "-m", "test:tiny", "-t", "1", "--json", "-o", method + ".jsonl", "--prune",
             method, "out/p1.png", "out/p2.png", "out/p3.png"});
    ASSERT_EQ(captions.exit_code, 0) << captions.err;
    const auto lines = captions.json_lines();
    ASSERT_EQ(lines.size(), 3u);
    for (const auto& line : lines) {
      const std::string stem = std::filesystem::path(line["path"].get<std::string>()).stem();
      const std::string ending = method == "uniform" ? ".txt" : ".divprune.txt";
      EXPECT_EQ(line["caption"], content("out/" + stem + ending)) << method;
      texts[method].insert(line["caption"].get<std::string>());
    }
  }
  EXPECT_NE(texts["uniform"], texts["divprune"]) << "or one method could stand for the other";
}

TEST_F(BatchCaptions, FlagsAndDryRun) {
  const std::string job = put_job(2);
  const auto refused = [&](const std::vector<std::string>& more, const char* part) {
    const ProgramResult result = batch(job, "out", more);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  };
  refused({"--captioner", "test:tiny"}, "--captions");
  refused(described({"--captions", "nonsense"}), "nonsense");
  refused({"--captioner", "test:tiny", "--captions", "random", "random"}, "twice");
  put_file(folder_ / "dots.jsonl",
           "{\"id\":\"a\",\"prompt\":\"p\"}\n{\"id\":\"a.random\",\"prompt\":\"q\"}\n");
  const ProgramResult clash =
      batch("dots.jsonl", "out",
            {"--name", "{id}.png", "--captioner", "test:tiny", "--captions", "none", "random"});
  EXPECT_EQ(clash.exit_code, 2);
  EXPECT_NE(clash.err.find("a.random.txt"), std::string::npos) << clash.err;
  EXPECT_NE(clash.err.find("dots.jsonl: line 2, column 1"), std::string::npos) << clash.err;
  const auto bytes = [&](const std::vector<std::string>& more) {
    const ProgramResult dry = batch(job, "out", more);
    EXPECT_EQ(dry.exit_code, 0) << dry.err;
    return dry.json_lines().at(0);
  };
  const auto bare = bytes({"--dry-run", "--json"});
  const auto whole = bytes(described({"--dry-run", "--json"}));
  EXPECT_FALSE(bare.contains("captioner_bytes"));
  const std::int64_t captioner = whole["captioner_bytes"];
  EXPECT_GT(captioner, 100'000);
  EXPECT_EQ(whole["memory_bytes"].get<std::int64_t>(),
            bare["memory_bytes"].get<std::int64_t>() + captioner);
  // Time as bytes that are read, as the rate is measured anew by each run.
  const auto read = [](const auto& line, const char* what) {
    return line[what].template get<double>() * line["read_bytes_per_second"].template get<double>();
  };
  EXPECT_FALSE(bare.contains("caption_seconds_one_pass"));
  const double one = read(whole, "caption_seconds_one_pass");
  const double full = read(whole, "caption_seconds_full_length");
  EXPECT_GT(one, 1e5);
  EXPECT_GT(full, 100 * one);
  const auto methods =
      bytes({"--dry-run", "--json", "--captioner", "test:tiny", "--captions", "none", "uniform"});
  EXPECT_NEAR(read(methods, "caption_seconds_full_length"), 2 * full, 1e-6 * full);
  const auto pairs = bytes(described({"--dry-run", "--json", "--batch-size", "2"}));
  EXPECT_NEAR(read(pairs, "caption_seconds_one_pass"), one / 2, 1e-6 * one);
}

}  // namespace
}  // namespace tessera::batch_captions_test
