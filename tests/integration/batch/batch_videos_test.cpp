// `tessera batch` with items of kind video, on the seeded video model: videos as `tessera video`
// generates them, reports, shards, signals, full disks, and every way to ask for what cannot be.
#include <chrono>
#include <thread>

#include "engine/core/philox.h"
#include "tests/integration/batch/batch_program.h"
#include "video/frame_reader.h"

namespace tessera::batch_videos_test {
namespace {

using Json = nlohmann::ordered_json;

class BatchVideos : public BatchTest {
 protected:
  static std::vector<std::string> words(const std::string& job, const std::string& out,
                                        const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"batch", job,         "--output-dir", out,
                                     "-m",    "test:clip", "-t",           "1"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  ProgramResult videos(const std::string& job, const std::string& out,
                      const std::vector<std::string>& more = {}) {
    return run(words(job, out, more));
  }
  std::string put_videos(int count, std::int64_t frames, const std::string& name = "job.jsonl") {
    std::string text;
    for (int i = 1; i <= count; ++i) {
      const std::string number = std::to_string(i);
      text += "{\"id\":\"c" + number + "\",\"kind\":\"video\",\"prompt\":\"clip " + number +
              "\",\"frames\":" + std::to_string(frames) + "}\n";
    }
    put_file(folder_ / name, text);
    return name;
  }
  std::vector<std::vector<std::uint8_t>> frames_of(const std::string& name) const {
    FrameReader reader(folder_ / name, {.process = {.program = VIDEO_HELPER}});
    std::vector<std::vector<std::uint8_t>> frames;
    while (auto frame = reader.next()) frames.push_back(std::move(frame->rgb));
    return frames;
  }
  void expect_refused(const ProgramResult& result, const std::string& part) {
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err << "\nwanted: " << part;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  }
  std::size_t records(const std::string& part) const {
    const std::string name = "out/.tessera/shard-00001-of-00001.jnl";
    if (!std::filesystem::exists(folder_ / name)) return 0;
    const std::string text = content(name);
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }
  std::size_t leftovers() const {
    const auto names = files();
    return static_cast<std::size_t>(
        std::count_if(names.begin(), names.end(), [](const std::string& name) {
          return name.find("/clip-") != std::string::npos ||
                 name.find(".tmp-") != std::string::npos;
        }));
  }
};

TEST_F(BatchVideos, VideosAreThoseOfVideo) {
  put_file(folder_ / "job.csv",
           "id,kind,prompt,seed,frames,fps,container\r\n"
           "one,video,a red cube,7,24,,\r\ntwo,video,a blue ball,8,6,5,webm\r\n");
  const ProgramResult made = videos("job.csv", "out", {"--json", "--name", "{id}.mkv"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_EQ(run({"video", "-m", "test:clip", "-p", "a red cube", "-s", "7", "--frames", "24", "-o",
                 "one.mkv"})
                .exit_code,
            0);
  ASSERT_EQ(run({"video", "-m", "test:clip", "-p", "a blue ball", "-s", "8", "--frames", "6",
                 "--fps", "5", "-o", "two.webm"})
                .exit_code,
            0);
  EXPECT_EQ(content("out/one.mkv"), content("one.mkv"));
  EXPECT_EQ(content("out/two.webm"), content("two.webm"));
  EXPECT_EQ(leftovers(), 0u);
  const auto lines = made.json_lines();
  ASSERT_EQ(lines.size(), 2u);
  std::size_t at = 0;
  for (const auto& [name, value] : lines[0].items()) {
    if (at < std::size(kImageLine)) {
      EXPECT_EQ(name, kImageLine[at]);
    }
    ++at;
  }
  EXPECT_EQ(lines[0]["frames"], 24);
  EXPECT_EQ(lines[0]["passes"], 6 * 24);
  EXPECT_EQ(lines[0]["segments"], 6);
  EXPECT_EQ(lines[0]["segments_taken_over"], 0);
  EXPECT_EQ(lines[1]["fps"], 5);
  EXPECT_DOUBLE_EQ(lines[1]["duration"], 1.2);
  const ProgramResult again = videos("job.csv", "out", {"--json", "--name", "{id}.mkv"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_EQ(again.out, "") << "a finished job writes nothing";
}

// Of several lengths, more of them than slots.
TEST_F(BatchVideos, SeveralAtOnceAreWhatTheyAreOneByOne) {
  std::string text;
  for (int i = 0; i < 7; ++i) {
    text += "{\"kind\":\"video\",\"prompt\":\"clip " + std::string(i % 3, '!') +
            "\",\"frames\":" + std::to_string(4 + 9 * i % 31) + "}\n";
  }
  put_file(folder_ / "job.jsonl", text);
  ASSERT_EQ(videos("job.jsonl", "one").exit_code, 0);
  for (const char* size : {"2", "3", "16"}) {
    const std::string out = std::string("at-once-") + size;
    const ProgramResult made =
        videos("job.jsonl", out, {"--batch-size", size, "--json", "--progress", "json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.json_lines().size(), 7u);
    EXPECT_NE(made.err.find("\"pictures\":" + std::string(size == std::string("16") ? "7" : size)),
              std::string::npos)
        << made.err;
    EXPECT_EQ(tree(out), tree("one"));
  }
}

TEST_F(BatchVideos, FirstFramesAreTheContentOfTheirFile) {
  ASSERT_EQ(run({"video", "-m", "test:clip", "-p", "x", "-s", "1", "--frames", "8", "-o",
                 "jobs/first.mkv"})
                .exit_code,
            0);
  put_file(folder_ / "jobs/job.jsonl",
           "{\"id\":\"a\",\"kind\":\"video\",\"prompt\":\"x\",\"seed\":2,"
           "\"first-frames\":\"first.mkv\"}\n");
  ASSERT_EQ(videos("jobs/job.jsonl", "out", {"--name", "{id}.mkv"}).exit_code, 0);
  ASSERT_EQ(run({"video", "-m", "test:clip", "-p", "x", "-s", "2", "--first-frames",
                 "jobs/first.mkv", "-o", "a.mkv"})
                .exit_code,
            0);
  EXPECT_EQ(content("out/a.mkv"), content("a.mkv"));
  // Another file of that name is another job.
  std::filesystem::copy_file(folder_ / "a.mkv", folder_ / "jobs/first.mkv",
                             std::filesystem::copy_options::overwrite_existing);
  const ProgramResult changed = videos("jobs/job.jsonl", "out", {"--name", "{id}.mkv"});
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_NE(changed.err.find("first-frames-sha256"), std::string::npos) << changed.err;
}

TEST_F(BatchVideos, ShardsMergeSheetAndSidecars) {
  const std::string job = put_videos(5, 8);
  const std::vector<std::string> flags = {"--sidecar", "--sheet", "sheet.png", "--json"};
  ASSERT_EQ(videos(job, "one", flags).exit_code, 0);
  for (const char* shard : {"1/2", "2/2"}) {
    ASSERT_EQ(videos(job, "two", {"--sidecar", "--shard", shard}).exit_code, 0);
  }
  ASSERT_EQ(run({"batch", "merge", "two", "--sheet", "sheet.png"}).exit_code, 0);
  ASSERT_EQ(run({"batch", "merge", "one", "--sheet", "sheet.png"}).exit_code, 0);
  EXPECT_EQ(tree("one"), tree("two"));
  EXPECT_EQ(tree("one").size(), 5 * 3 + 2u) << "videos with two sidecars each, sheet and results";
  for (const auto& [name, bytes] : tree("one")) {
    if (!name.ends_with(".json")) continue;
    const Json record = Json::parse(bytes);
    EXPECT_EQ(record["frames"], 8);
    EXPECT_FALSE(record["facts"].contains("passes")) << "which a kill would change";
    EXPECT_TRUE(record["facts"].contains("prompt"));
  }
  const ProgramResult status = run({"batch", "status", "one", "--json"});
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_EQ(status.json_lines()[0]["done"], 5);
}

TEST_F(BatchVideos, ADryRunTellsTimeAndMemory) {
  const std::string job = put_videos(3, 24);
  const auto line = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--dry-run", "--json"};
    flags.insert(flags.end(), more.begin(), more.end());
    const ProgramResult result = videos(job, "out", flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json_lines().at(0);
  };
  const Json plan = line({});
  EXPECT_EQ(plan["items"], 3);
  EXPECT_EQ(plan["wanted"], 3);
  EXPECT_EQ(plan["passes"], 3 * 6 * 24);
  EXPECT_GT(plan["memory_bytes"], 0);
  EXPECT_GT(plan["seconds_at_least"], 0.0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

// The running segment is finished, not the video; the next run takes over what stands.
TEST_F(BatchVideos, SignalsEndAfterASegmentWithSeventyFive) {
  const std::string job = put_videos(2, 400);
  ASSERT_EQ(videos(job, "truth").exit_code, 0);
  std::size_t taken_over = 0;
  for (const int number : {SIGTERM, SIGINT}) {
    const std::size_t before = records("\"segment\":");
    const ProgramResult stopped = run(words(job, "out", {"--json"}), {}, [&](pid_t child) {
      for (int i = 0; i < 60000 && records("\"segment\":") < before + 3; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
      kill(child, number);
    });
    ASSERT_EQ(stopped.exit_code, 75) << stopped.err;
    EXPECT_GE(records("\"segment\":"), before + 3);
    EXPECT_LT(records("\"segment\":"), 200u) << "it stopped within a video";
    taken_over = records("\"segment\":");
    EXPECT_EQ(stopped.out, "");
  }
  const ProgramResult status = run({"batch", "status", "out", "--json"});
  EXPECT_EQ(status.exit_code, 1);
  EXPECT_EQ(status.json_lines()[0]["shards"][0]["standing_grids"], taken_over);
  const Json plan = videos(job, "out", {"--dry-run", "--json"}).json_lines().at(0);
  EXPECT_EQ(plan["passes"], static_cast<std::int64_t>(200 - taken_over) * 24);
  const ProgramResult rest = videos(job, "out", {"--json"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(rest.json_lines().at(0)["segments_taken_over"], taken_over);
  EXPECT_EQ(rest.json_lines().at(0)["passes"], 100 * 24) << "over all runs";
  EXPECT_EQ(records("\"segment\":"), 200u) << "each segment is written once";
  EXPECT_EQ(tree("out"), tree("truth"));
  EXPECT_EQ(leftovers(), 0u);
}

TEST_F(BatchVideos, RandomKillsCostOneSegmentOfEachAtWork) {
  constexpr int kKills = 32;
  const std::string job = put_videos(3, 200);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(videos(job, "truth", {"--sidecar"}).exit_code, 0);
  const auto whole_us =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::steady_clock::now() - start)
                                     .count());
  int kills = 0, jobs = 0, in_work = 0;
  std::uint32_t random = 0;
  while (kills < kKills) {
    std::filesystem::remove_all(folder_ / "out");
    for (++jobs;;) {
      const std::uint32_t lot = philox4x32({random++, 0, 0, 0}, {21, 7})[0];
      const char* at_once = lot % 3 == 0 ? "1" : "2";  // which a job may change
      const auto how = words(job, "out", {"--sidecar", "--batch-size", at_once});
      const ProgramResult result = run(how, {}, [&](pid_t child) {
        std::this_thread::sleep_for(std::chrono::microseconds(lot % whole_us));
        kill(child, SIGKILL);
      });
      if (result.exit_code != -1) {
        ASSERT_EQ(result.exit_code, 0) << result.err;
        break;
      }
      ++kills;
      const std::size_t stand = records("\"segment\":");
      if (stand > 0 && stand < 150) ++in_work;
    }
    // A record a segment: none was written twice, so a kill cost at most those in work.
    EXPECT_EQ(records("\"segment\":"), 150u);
    EXPECT_EQ(records("\"passes\":24,"), 150u);
    EXPECT_EQ(records("\"st\":\"done\""), 3u);
    ASSERT_EQ(tree("out"), tree("truth"));
    EXPECT_EQ(leftovers(), 0u);
  }
  std::printf(
      "%d kills in %d jobs of 150 segments, %d of them in mid-work: every tree equal, every "
      "segment written once\n",
      kills, jobs, in_work);
  EXPECT_GT(in_work, 0);
}

TEST_F(BatchVideos, AFullDiskEndsWithSixAndGoesOn) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  const std::string job = put_videos(6, 40);
  std::filesystem::create_directory(folder_ / "disk");
  const std::string disk = (folder_ / "disk").string();
  if (std::system(("mount -t tmpfs -o size=80k tmpfs '" + disk + "'").c_str()) != 0) {
    GTEST_SKIP() << "no tmpfs may be mounted here";
  }
  const ProgramResult full = videos(job, "disk/out");
  EXPECT_EQ(full.exit_code, 6) << full.err;
  EXPECT_EQ(temporaries(), 0u);
  EXPECT_EQ(std::system(("mount -o remount,size=8m '" + disk + "'").c_str()), 0);
  const ProgramResult rest = videos(job, "disk/out", {"--verify"});
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  const auto got = tree("disk/out");
  EXPECT_EQ(leftovers(), 0u);
  EXPECT_EQ(std::system(("umount '" + disk + "'").c_str()), 0);
  ASSERT_EQ(videos(job, "truth").exit_code, 0);
  EXPECT_EQ(got, tree("truth"));
}

// A video that failed is tried again from what stands of it.
TEST_F(BatchVideos, FailedVideosAreTriedAgain) {
  const std::string job = put_videos(2, 16);
  std::filesystem::create_directory(folder_ / "out");
  put_file(folder_ / "out/c1.mkv", "mine");
  const std::vector<std::string> named = {"--name", "{id}.mkv"};
  EXPECT_EQ(videos(job, "out", named).exit_code, 3);
  EXPECT_EQ(content("out/c1.mkv"), "mine");
  EXPECT_EQ(records("\"segment\":"), 8u);
  std::filesystem::remove(folder_ / "out/c1.mkv");
  const ProgramResult again = videos(job, "out", {"--name", "{id}.mkv", "--retry-failed", "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json_lines().at(0)["segments_taken_over"], 4);
  EXPECT_EQ(records("\"segment\":"), 8u) << "nothing was generated again";
}

TEST_F(BatchVideos, ProgressTellsFramesAndItems) {
  const std::string job = put_videos(1, 16);
  const ProgramResult result = videos(job, "out", {"--progress", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream in(result.err);
  Json last;
  for (std::string line; std::getline(in, line);) last = Json::parse(line)["progress"];
  EXPECT_EQ(last["frames_done"], 16);
  EXPECT_EQ(last["frames"], 16);
  EXPECT_EQ(last["segments"], 4);
  EXPECT_EQ(last["tokens_done"], 96);
  EXPECT_EQ(last["total"], 1);
  EXPECT_EQ(last["pending"], 1);
}

TEST_F(BatchVideos, BadItemsAreHeardWithLineAndColumn) {
  const std::string good = "{\"kind\":\"video\",\"prompt\":\"a\"}\n";
  const auto refused = [&](const std::string& line, const std::string& part) {
    put_file(folder_ / "job.jsonl", good + line + "\n");
    expect_refused(videos("job.jsonl", "out"), part);
  };
  refused("{\"kind\":\"film\",\"prompt\":\"b\"}", "line 2, column 9");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"container\":\"flv\"}", "line 2, column 42");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"frames\":0}", "line 2, column 39");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"frames\":1000000000000}", "line 2, column 39");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"frames\":\"many\"}", "line 2, column 39");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"fps\":241}", "line 2, column 36");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"fps\":60,\"container\":\"gif\"}", "at most 50");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"first-frames\":\"none.mkv\"}",
          "line 2, column 1");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"first-frames\":\"job.jsonl\"}",
          "line 2, column 1");
  refused("{\"kind\":\"video\",\"prompt\":\"b\",\"first-frames-sha256\":\"00\"}",
          "line 2, column 1");
  refused("{\"prompt\":\"b\"}", "one of kind image");
  put_file(folder_ / "job.csv", "prompt,kind\r\na,video\r\nb,movie\r\n");
  expect_refused(videos("job.csv", "out"), "line 3, column 3");
  put_file(folder_ / "job.jsonl", "{\"prompt\":\"a\",\"frames\":8}\n");
  expect_refused(batch("job.jsonl", "out"), "an image without frames");
}

TEST_F(BatchVideos, WhatVideosCannotBeIsRefusedBeforeTheStart) {
  const std::string job = put_videos(2, 8);
  expect_refused(batch(job, "out"), "a model of videos");
  put_job(2, "pictures.jsonl");
  expect_refused(videos("pictures.jsonl", "out"), "kind video");
  expect_refused(videos(job, "out", {"--captions"}), "caption --video");
  expect_refused(videos(job, "out", {"--name", "{id}.flv"}), "--name");
  expect_refused(videos(job, "out", {"--name", "{id}.png"}), "a --name that ends as a video does");
  expect_refused(videos(job, "out", {"--decode", "rows"}), "--decode rows");
  put_file(folder_ / "job.txt", "a red cube\n");
  ASSERT_EQ(videos("job.txt", "out", {"--kind", "video", "--frames", "4"}).exit_code, 0);
  EXPECT_EQ(tree("out").size(), 1u);
}

}  // namespace
}  // namespace tessera::batch_videos_test
