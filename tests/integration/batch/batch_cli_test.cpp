// Whole jobs: the contract of their lines, the same images in any order, batch and shard, and
// what a second run does.
#include "tests/integration/batch/batch_program.h"
#include "vision/image/png.h"

namespace tessera::batch_cli_test {
namespace {

using BatchCli = BatchTest;

TEST_F(BatchCli, JsonHasTheContractsFields) {
  const ProgramResult result = batch(put_job(3), "out", {"--json", "--batch-size", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = result.json_lines();
  ASSERT_EQ(lines.size(), 3u);
  for (const auto& line : lines) {
    for (const char* name : kImageLine) EXPECT_TRUE(line.contains(name)) << name;
    EXPECT_EQ(line["path"], "out/" + line["id"].get<std::string>() + "_" +
                                std::to_string(line["seed"].get<std::int64_t>()) + ".png");
    EXPECT_EQ(read_own_png(folder_ / line["path"].get<std::string>()).width, 32);
  }
  EXPECT_EQ(images("out").size(), 3u);
}

// The image of an item is the one that `generate` generates with its seed.
TEST_F(BatchCli, ImagesAreThoseOfGenerate) {
  put_file(folder_ / "job.csv",
           "id,prompt,seed,temp,negative-prompt\na,\"a red, cube\",7,0.7,\nb,two,8,,\n");
  ASSERT_EQ(batch("job.csv", "out", {"--top-k", "50", "--name", "{id}.png"}).exit_code, 0);
  const auto one = run({"generate", "-m", "test:tiny", "-p", "a red, cube", "-s", "7", "--temp",
                        "0.7", "--top-k", "50", "-o", "a.png"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(content("a.png"), content("out/a.png"));
  const auto two =
      run({"generate", "-m", "test:tiny", "-p", "two", "-s", "8", "--top-k", "50", "-o", "b.png"});
  EXPECT_EQ(content("b.png"), content("out/b.png"));
}

TEST_F(BatchCli, FormsOrdersBatchesThreadsAndShardsGenerateTheSame) {
  put_file(folder_ / "a.txt", "a red cube\n# no prompt\ntwo cones\n\na ball\n");
  put_file(folder_ / "b.jsonl",
           "{\"prompt\":\"a ball\"}\n{\"prompt\":\"two cones\"}\n{\"prompt\":\"a red cube\"}\n");
  put_file(folder_ / "c.csv", "prompt\ntwo cones\na ball\n\"a red cube\"\n");
  ASSERT_EQ(batch("a.txt", "one").exit_code, 0);
  const auto truth = images("one");
  ASSERT_EQ(truth.size(), 3u);
  ASSERT_EQ(batch("b.jsonl", "two", {"--batch-size", "3"}).exit_code, 0);
  EXPECT_EQ(images("two"), truth);
  ASSERT_EQ(run({"batch", "c.csv", "--output-dir", "three", "-m", "test:tiny", "-t", "2",
                 "--batch-size", "2"})
                .exit_code,
            0);
  EXPECT_EQ(images("three"), truth);
  // A job in another order is the same job.
  EXPECT_EQ(batch("c.csv", "one", {"--json"}).out, "") << "nothing to do";
}

TEST_F(BatchCli, ShardsMergeToTheOneProcessRun) {
  const std::string job = put_job(9);
  ASSERT_EQ(batch(job, "whole", {"--batch-size", "4"}).exit_code, 0);
  ASSERT_EQ(run({"batch", "merge", "whole"}).exit_code, 0);
  const auto truth = images("whole");
  ASSERT_EQ(truth.size(), 9u);

  // In one folder.
  for (const char* shard : {"3/3", "1/3"}) {
    ASSERT_EQ(batch(job, "parts", {"--shard", shard}).exit_code, 0);
  }
  const ProgramResult status = run({"batch", "status", "parts", "--json"});
  EXPECT_EQ(status.exit_code, 1);
  const auto report = status.json_lines().at(0);
  EXPECT_EQ(report["total"], 9);
  EXPECT_EQ(report["done"].get<int>() + report["pending"].get<int>(), 9);
  EXPECT_FALSE(report["shards"][1]["begun"].get<bool>());
  const ProgramResult early = run({"batch", "merge", "parts"});
  EXPECT_EQ(early.exit_code, 1);
  EXPECT_NE(early.err.find("nobody worked on"), std::string::npos) << early.err;
  ASSERT_EQ(run(words(job, "parts", {"--shard", "auto"}), {{"SLURM_ARRAY_TASK_ID", "5"},
                                                           {"SLURM_ARRAY_TASK_MIN", "4"},
                                                           {"SLURM_ARRAY_TASK_COUNT", "3"}})
                .exit_code,
            0);
  EXPECT_EQ(run({"batch", "status", "parts"}).exit_code, 0);
  ASSERT_EQ(run({"batch", "merge", "parts"}).exit_code, 0);
  EXPECT_EQ(images("parts"), truth);
  EXPECT_EQ(content("parts/results.jsonl"), content("whole/results.jsonl"));

  // Each in a folder of its own, merged in any order, and again.
  for (const char* shard : {"1", "2", "3"}) {
    ASSERT_EQ(
        batch(job, std::string("host") + shard, {"--shard", shard + std::string("/3")}).exit_code,
        0);
  }
  for (int times = 0; times < 2; ++times) {
    const auto merged =
        run({"batch", "merge", "host2", "host3", "host1", "--output-dir", "all", "--json"});
    ASSERT_EQ(merged.exit_code, 0) << merged.err;
    EXPECT_EQ(merged.json_lines().at(0)["copied"], times == 0 ? 9 : 0);
    EXPECT_EQ(images("all"), truth);
    EXPECT_EQ(content("all/results.jsonl"), content("whole/results.jsonl"));
  }
  const auto other = run({"batch", "merge", "host2", "whole", "--output-dir", "all"});
  EXPECT_EQ(other.exit_code, 1) << "another number of shards is another job";
}

TEST_F(BatchCli, SidecarsSheetAndDryRun) {
  const std::string job = put_job(5);
  const auto dry = batch(job, "out", {"--dry-run", "--json"});
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  const auto estimate = dry.json_lines().at(0);
  EXPECT_EQ(estimate["items"], 5);
  EXPECT_EQ(estimate["wanted"], 5);
  EXPECT_GT(estimate["memory_bytes"].get<std::int64_t>(), 1 << 20);
  EXPECT_GT(estimate["seconds_at_least"].get<double>(), 0);
  EXPECT_EQ(files(), (std::vector<std::string>{job})) << "nothing was written";

  ASSERT_EQ(batch(job, "out", {"--sidecar", "--sheet", "sheet.png"}).exit_code, 0);
  const Image sheet = read_own_png(folder_ / "out/sheet.png");
  EXPECT_EQ(sheet.width, 3 * 32 + 4 * 4);
  EXPECT_EQ(sheet.height, 2 * 32 + 3 * 4);
  for (const auto& [name, bytes] : images("out")) {
    if (name == "sheet.png") continue;
    const auto facts =
        nlohmann::ordered_json::parse(content("out/" + name.substr(0, name.size() - 4) + ".json"));
    EXPECT_EQ(facts["picture"], name);
    EXPECT_EQ(facts["facts"]["width"], 32);
  }
}

// One sheet with all images, whoever ends the job; a stranger's file stays.
TEST_F(BatchCli, SheetsAreWholeAndReplaceNobody) {
  const std::string job = put_job(5);
  ASSERT_EQ(batch(job, "out").exit_code, 0);
  ASSERT_EQ(batch(job, "out", {"--sheet", "sheet.png"}).exit_code, 0) << "of a finished job";
  const std::string whole = content("out/sheet.png");
  std::filesystem::remove(folder_ / "out/sheet.png");
  ASSERT_EQ(batch(job, "out", {"--sheet", "sheet.png"}).exit_code, 0) << "ended before the sheet";
  EXPECT_EQ(content("out/sheet.png"), whole);

  put_file(folder_ / "out/mine.png", "not a sheet");
  const auto refused = batch(job, "out", {"--sheet", "mine.png"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("mine.png"), std::string::npos) << refused.err;
  EXPECT_EQ(content("out/mine.png"), "not a sheet");
  ASSERT_EQ(batch(job, "out", {"--sheet", "mine.png", "--overwrite"}).exit_code, 0);
  EXPECT_EQ(content("out/mine.png"), whole);

  EXPECT_EQ(batch(job, "parts", {"--shard", "1/2", "--sheet", "sheet.png"}).exit_code, 2);
  for (const char* shard : {"1/2", "2/2"}) {
    ASSERT_EQ(batch(job, "parts", {"--shard", shard}).exit_code, 0);
  }
  ASSERT_EQ(run({"batch", "merge", "parts", "--sheet", "sheet.png"}).exit_code, 0);
  const Image sheet = read_own_png(folder_ / "parts/sheet.png");
  EXPECT_EQ(sheet.width, 3 * 32 + 4 * 4);
  EXPECT_EQ(sheet.height, 2 * 32 + 3 * 4);
}

// Not even --overwrite lets a sheet take an image's place, and nothing is copied before that is
// known.
TEST_F(BatchCli, SheetsOfMergesTakeNoImage) {
  const std::string job = put_job(2);
  ASSERT_EQ(batch(job, "out", {"--name", "{seed}.png"}).exit_code, 0);
  std::string image;
  for (const auto& [name, bytes] : images("out")) image = name;
  const std::string bytes = content("out/" + image);
  for (const bool overwrite : {true, false}) {
    std::vector<std::string> call = {"batch", "merge", "out", "--sheet", image};
    if (overwrite) call.push_back("--overwrite");
    const auto refused = run(call);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.err.find("a name that no image has"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(run({"batch", "merge", "out", "--output-dir", "copy", "--sheet", image}).exit_code,
            2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "copy" / image));
  EXPECT_EQ(content("out/" + image), bytes);
  for (const std::string& name : {std::string("{id}.png"), std::string(300, 'x') + ".png"}) {
    const auto refused = batch(job, "new", {"--sheet", name});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("--sheet"), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "new")) << "refused before anything is generated";
  }
}

// A sheet of fewer images is made anew when the others are there.
TEST_F(BatchCli, SheetsFollowTheImages) {
  const std::string job = put_job(3);
  ASSERT_EQ(batch(job, "truth", {"--sheet", "s.png"}).exit_code, 0);
  std::string image;
  for (const auto& [name, bytes] : images("truth")) image = name != "s.png" ? name : image;
  std::filesystem::create_directory(folder_ / "out");
  put_file(folder_ / "out" / image, "somebody's");
  ASSERT_EQ(batch(job, "out", {"--sheet", "s.png"}).exit_code, 3);
  EXPECT_NE(content("out/s.png"), content("truth/s.png"));
  std::filesystem::remove(folder_ / "out" / image);
  ASSERT_EQ(batch(job, "out", {"--retry-failed"}).exit_code, 0);
  ASSERT_EQ(batch(job, "out", {"--sheet", "s.png"}).exit_code, 0);
  EXPECT_EQ(content("out/s.png"), content("truth/s.png"));
}

// Without syncs the images are the same, and whoever asks is notified.
TEST_F(BatchCli, WithoutSyncs) {
  const std::string job = put_job(3);
  ASSERT_EQ(batch(job, "truth").exit_code, 0);
  ASSERT_EQ(batch(job, "out", {"--fsync", "off"}).exit_code, 0);
  EXPECT_EQ(images("out"), images("truth"));
  const auto fsync = [&](const char* out) {
    return run({"batch", "status", out, "--json"}).json_lines().at(0)["fsync"];
  };
  EXPECT_EQ(fsync("truth"), "on");
  EXPECT_EQ(fsync("out"), "off");
  EXPECT_NE(run({"batch", "status", "out"}).out.find("--fsync off"), std::string::npos);
  ASSERT_EQ(run({"batch", "merge", "out"}).exit_code, 0);
  ASSERT_EQ(run({"batch", "merge", "truth"}).exit_code, 0);
  EXPECT_EQ(content("out/results.jsonl"), content("truth/results.jsonl"));
  EXPECT_EQ(batch(job, "other", {"--fsync", "maybe"}).exit_code, 2);
}

TEST_F(BatchCli, AFinishedJobIsLeftAlone) {
  const std::string job = put_job(3);
  ASSERT_EQ(batch(job, "out").exit_code, 0);
  std::map<std::string, std::filesystem::file_time_type> times;
  for (const std::string& name : files()) {
    times[name] = std::filesystem::last_write_time(folder_ / name);
  }
  const ProgramResult again = batch(job, "out");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_EQ(again.out, "");
  ASSERT_EQ(files().size(), times.size());
  for (const auto& [name, time] : times) {
    EXPECT_EQ(std::filesystem::last_write_time(folder_ / name), time) << name;
  }
  std::filesystem::remove(folder_ / images("out").begin()->first);
  const std::string gone = images("out").begin()->first;
  const std::string bytes = content("out/" + gone);
  std::filesystem::remove(folder_ / ("out/" + gone));
  const ProgramResult repaired = batch(job, "out");
  EXPECT_EQ(repaired.exit_code, 0);
  EXPECT_NE(repaired.err.find("is gone"), std::string::npos) << repaired.err;
  EXPECT_EQ(content("out/" + gone), bytes);
}

}  // namespace
}  // namespace tessera::batch_cli_test
