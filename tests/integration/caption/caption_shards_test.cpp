// Captioning jobs in shards: together they write what one process writes, are distinguished and
// counted, survive a kill, and merge into the job that one process would have left.
#include <chrono>
#include <thread>

#include "apps/captions/webdataset.h"
#include "tests/integration/caption/caption_program.h"
#include "tests/support/memory_source.h"
#include "tests/support/tar_builder.h"

namespace tessera::caption_shards_test {
namespace {

class CaptionShards : public CaptionTest {
 protected:
  ProgramResult tiny(std::vector<std::string> more, int code = 0,
                     const std::map<std::string, std::string>& extra = {}) {
    std::vector<std::string> args = {"caption", "-m", "test:tiny", "--max-tokens", "6"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args, extra);
    std::string shown;
    for (const std::string& word : more) shown += word + " ";
    EXPECT_EQ(result.exit_code, code) << shown << result.err;
    return result;
  }
  ProgramResult shard(std::vector<std::string> more, int index, int of, int code = 0) {
    more.insert(more.end(), {"--shard", std::to_string(index) + "/" + std::to_string(of)});
    return tiny(std::move(more), code);
  }
  Json status(const std::string& place, int code) {
    const ProgramResult result = run({"caption", "status", place, "--json"});
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result.json_lines().empty() ? Json() : result.json_lines().front();
  }
  ProgramResult merge(std::vector<std::string> more, int code = 0) {
    std::vector<std::string> args = {"caption", "merge"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result;
  }
  std::map<std::string, std::string> text_files() const {
    std::map<std::string, std::string> out;
    for (const std::string& name : files()) {
      if (name.ends_with(".txt")) out[name] = content(name);
    }
    return out;
  }
};

TEST_F(CaptionShards, LinesOfAllShardsAreThoseOfOneProcess) {
  put_images("in", 9);
  put("in/bad.png", "no image");
  tiny({"in", "-o", "truth.jsonl"}, 3);
  const auto truth = texts(content("truth.jsonl"));
  ASSERT_EQ(truth.size(), 9u);
  EXPECT_EQ(status("truth.jsonl", 3).at("done"), 9);
  std::size_t failed = 0, lines = 0;
  for (int i = 1; i <= 3; ++i) {
    const ProgramResult result = run({"caption", "-m", "test:tiny", "--max-tokens", "6", "in", "-o",
                                      "x.jsonl", "--shard", std::to_string(i) + "/3"});
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 3 || result.exit_code == 1);
    if (result.exit_code != 0) ++failed;
    const std::string name = "x-0000" + std::to_string(i) + "-of-00003.jsonl";
    const auto own = texts(content(name));
    for (const auto& [path, text] : own) EXPECT_EQ(text, truth.at(path)) << path;
    lines += own.size();
    if (i < 3) {
      const Json now = status("x.jsonl", 1);
      EXPECT_EQ(now.at("over"), false);
      EXPECT_EQ(now.at("shards").size(), 3u);
      EXPECT_EQ(now.at("shards")[2].at("begun"), false);
      merge({"x.jsonl"}, 1);
      EXPECT_FALSE(std::filesystem::exists(folder_ / "x.jsonl"));
    }
  }
  EXPECT_EQ(failed, 1u) << "the bad image is in one shard";
  EXPECT_EQ(lines, 9u);
  const Json whole = status("x.jsonl", 3);
  EXPECT_EQ(whole.at("over"), true);
  EXPECT_EQ(whole.at("done"), 9);
  EXPECT_EQ(whole.at("failed"), 1);

  merge({"x.jsonl"}, 3);
  EXPECT_EQ(texts(content("x.jsonl")), truth);
  std::vector<std::string> order;
  std::istringstream in(content("x.jsonl"));
  for (std::string line; std::getline(in, line);) order.push_back(Json::parse(line).at("path"));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  const std::string bytes = content("x.jsonl"), journal = content("x.jsonl.journal");
  merge({"x.jsonl"}, 3);
  EXPECT_EQ(content("x.jsonl"), bytes);
  EXPECT_EQ(content("x.jsonl.journal"), journal) << "merged already: nothing is written";
  // One process goes on from what was merged: the failed one alone.
  const ProgramResult again = tiny({"in", "-o", "x.jsonl"}, 3);
  EXPECT_EQ(again.out, "");
  put("in/bad.png", image(77));
  tiny({"in", "-o", "x.jsonl", "--retry-failed"}, 0);
  EXPECT_EQ(texts(content("x.jsonl")).size(), 10u);
}

// Whatever the number of shards: the same items, in the same order.
TEST_F(CaptionShards, MergedOutputsDoNotDependOnTheNumberOfShards) {
  put_images("in", 7);
  std::map<int, std::vector<std::string>> merged;
  for (const int of : {2, 5}) {
    const std::string name = "x" + std::to_string(of) + ".csv";
    for (int i = 1; i <= of; ++i) shard({"in", "-o", name}, i, of);
    merge({name});
    std::istringstream in(content(name));
    for (std::string row; std::getline(in, row);) {
      merged[of].push_back(row.substr(0, row.find(',', row.find(',') + 1)));
    }
  }
  EXPECT_EQ(merged.at(2), merged.at(5));
  ASSERT_EQ(merged.at(2).size(), 8u);
  EXPECT_EQ(merged.at(2).front(), "path,caption") << "one header";
}

TEST_F(CaptionShards, SamplesOfOneKeyMeetInOneShard) {
  put("in/a.jpg", "junk");
  put("in/a.png", image(1));
  put("in/b.png", image(2));
  put("s.tar", TarText().file("0.png", image(3)).file("0.cls", "7").end());
  tiny({"in", "s.tar", "-o", "truth.tar"}, 3);
  const auto samples = [&](const std::string& name) {
    std::map<std::string, std::string> out;
    const std::string bytes = content(name);
    MemorySource source(bytes);
    SampleReader reader(source, name, Carry::kEverything);
    while (auto sample = reader.next()) {
      EXPECT_FALSE(sample->failure.has_value());
      for (const SampleMember& member : sample->others) {
        if (member.extension != "caption.json") {
          out[sample->key + "." + member.extension] = member.bytes;
        }
      }
      out[sample->key + ".png"] = sample->image.bytes;
    }
    return out;
  };
  for (int i = 1; i <= 4; ++i) {
    run({"caption", "-m", "test:tiny", "--max-tokens", "6", "in", "s.tar", "-o", "x.tar", "--shard",
         std::to_string(i) + "/4"});
  }
  merge({"x.tar"}, 3);
  EXPECT_EQ(samples("x.tar"), samples("truth.tar"));
  EXPECT_EQ(content("x.tar").size() % 10240, 0u);
}

TEST_F(CaptionShards, TextFilesAreWrittenOnceAndLeaveNoJournals) {
  put_images("in", 8);
  put("in/p1.txt", "mine");
  put("in/p4.txt", "mine");
  tiny({"in", "-o", "truth.jsonl"});
  const auto truth = texts(content("truth.jsonl"));
  for (int round = 0; round < 2; ++round) {  // the second finds all done
    for (int i = 1; i <= 3; ++i) {
      const ProgramResult result = shard({"in", "--existing", "append"}, i, 3);
      EXPECT_EQ(result.out.empty(), round == 1) << i;
    }
  }
  const auto written = text_files();
  ASSERT_EQ(written.size(), 8u);
  for (const auto& [path, text] : truth) {
    const std::string name = path.substr(0, path.size() - 4) + ".txt";
    const bool mine = name == "in/p1.txt" || name == "in/p4.txt";
    EXPECT_EQ(written.at(name), mine ? text.empty() ? "mine" : "mine " + text : text);
  }
  const Json now = status("in", 0);
  EXPECT_EQ(now.at("done"), 8);
  EXPECT_EQ(now.at("shards").size(), 3u);
  // In another number of shards captions would be added twice.
  EXPECT_NE(shard({"in", "--existing", "append"}, 1, 2, 2).err.find("3 shards"), std::string::npos);
  EXPECT_NE(tiny({"in", "--existing", "append"}, 2).err.find("3 shards"), std::string::npos);
  EXPECT_EQ(text_files(), written);
  merge({"in"});
  tiny({"in", "--existing", "append"});
  EXPECT_EQ(text_files(), written) << "one process goes on from what was merged";
  EXPECT_EQ(status("in", 0).at("shards").size(), 1u);

  put_images("plain", 4);
  for (int i = 1; i <= 2; ++i) shard({"plain"}, i, 2);
  EXPECT_EQ(status("plain", 0).at("done"), 4);
  merge({"plain"});
  for (const std::string& name : files()) {
    EXPECT_FALSE(name.starts_with("plain/.")) << name << " is left";
  }
}

TEST_F(CaptionShards, AnotherNumberOfShardsIsRefused) {
  put_images("in", 3);
  shard({"in", "-o", "x.jsonl"}, 1, 2);
  EXPECT_NE(shard({"in", "-o", "x.jsonl"}, 1, 3, 2).err.find("2 shards"), std::string::npos);
  shard({"in", "-o", "x.jsonl"}, 2, 2);
  EXPECT_NE(shard({"in", "-o", "y.jsonl"}, 4, 3, 2).err.find("--shard"), std::string::npos);
  tiny({"--image", "in/p1.png", "--shard", "1/2"}, 2);
}

TEST_F(CaptionShards, SchedulersTellTheShard) {
  put_images("in", 4);
  for (int i = 1; i <= 2; ++i) {
    tiny({"in", "-o", "x.jsonl", "--shard", "auto"}, 0,
         {{"SLURM_ARRAY_TASK_ID", std::to_string(i)},
          {"SLURM_ARRAY_TASK_MIN", "1"},
          {"SLURM_ARRAY_TASK_MAX", "2"},
          {"SLURM_ARRAY_TASK_COUNT", "2"}});
  }
  merge({"x.jsonl"});
  EXPECT_EQ(texts(content("x.jsonl")).size(), 4u);
}

// Machines that share no folder.
TEST_F(CaptionShards, ShardsOfSeveralPlacesAreMerged) {
  put_images("in", 6);
  tiny({"in", "-o", "truth.jsonl"});
  for (int i = 1; i <= 2; ++i) {
    const std::string host = "host" + std::to_string(i);
    std::filesystem::create_directories(folder_ / host);
    shard({"in", "-o", host + "/x.jsonl"}, i, 2);
  }
  merge({"host1/x.jsonl"}, 1);
  merge({"host1/x.jsonl", "host2/x.jsonl"}, 2);
  merge({"host1/x.jsonl", "host2/x.jsonl", "-o", "all.jsonl"});
  EXPECT_EQ(texts(content("all.jsonl")), texts(content("truth.jsonl")));
}

TEST_F(CaptionShards, AKilledShardGoesOn) {
  put_images("in", 24);
  const std::vector<std::string> job = {"in", "--batch-size", "2"};
  const auto with = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> out = job;
    out.insert(out.end(), {"-o", name});
    out.insert(out.end(), more.begin(), more.end());
    return words(out, "24");
  };
  ASSERT_EQ(run(with("truth.jsonl", {})).exit_code, 0);
  const std::string part = "x-00001-of-00002.jsonl.part";
  const ProgramResult killed = run(with("x.jsonl", {"--shard", "1/2"}), {}, [&](pid_t child) {
    const auto enough = [&] {
      const std::string text = content(part);
      return std::count(text.begin(), text.end(), '\n') >= 2;
    };
    for (int i = 0; i < 30000 && !enough(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, SIGKILL);
  });
  ASSERT_EQ(killed.exit_code, -1);
  EXPECT_EQ(status("x.jsonl", 1).at("shards")[0].at("over"), false);
  for (const char* shard : {"1/2", "2/2"}) {
    ASSERT_EQ(run(with("x.jsonl", {"--shard", shard})).exit_code, 0);
  }
  merge({"x.jsonl"});
  EXPECT_EQ(texts(content("x.jsonl")), texts(content("truth.jsonl")));
}

TEST_F(CaptionShards, ReportsRefuseWhatIsNoJob) {
  put_images("in", 1);
  for (const char* word : {"status", "merge"}) {
    EXPECT_EQ(run({"caption", word}).exit_code, 2);
    EXPECT_EQ(run({"caption", word, "in"}).exit_code, 2) << "text files need no journal";
    EXPECT_EQ(run({"caption", word, "x.jsonl"}).exit_code, 2);
    EXPECT_EQ(run({"caption", word, "x.png"}).exit_code, 2);
  }
  put("y.jsonl.journal", "my diary\n");
  EXPECT_EQ(status("y.jsonl", 1).value("over", true), false);
}

}  // namespace
}  // namespace tessera::caption_shards_test
