// Bad jobs, bad folders, bad moments: each ends with its exit code and one line that helps, and
// never with a lost image.
#include <sys/stat.h>

#include <fstream>

#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_errors_test {
namespace {

class BatchErrors : public BatchTest {
 protected:
  void expect_refused(const ProgramResult& result, int code, const std::string& part) {
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
};

TEST_F(BatchErrors, BadJobsAreHeardWithAllTheirPlaces) {
  put_file(folder_ / "job.jsonl",
           "{\"prompt\":\"a\"}\n{\"promt\":\"b\"}\n{\"prompt\":\"c\",\"id\":\"../x\"}\n"
           "{\"prompt\":\"d\",\"temp\":101}\n");
  const ProgramResult result = batch("job.jsonl", "out");
  expect_refused(result, 2, "job.jsonl: line 2, column 2");
  expect_refused(result, 2, "job.jsonl: line 3, column 20");
  expect_refused(result, 2, "job.jsonl: line 4, column 22");
  EXPECT_EQ(result.error_lines(), 3u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(BatchErrors, PromptsThatTheModelCannotTakeAreHeard) {
  put_file(folder_ / "job.txt", "fine\n" + std::string(20000, 'x') + " y z\n");
  expect_refused(batch("job.txt", "out"), 2, "job.txt: line 2, column 1");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(BatchErrors, Flags) {
  const std::string job = put_job(2);
  expect_refused(run({"batch", job}), 2, "--output-dir");
  expect_refused(run({"batch"}), 2, "one job file");
  expect_refused(batch("job.yaml", "out"), 2, ".jsonl or .csv");
  expect_refused(batch(job, "out", {"--shard", "4/3"}), 2, "--shard");
  expect_refused(batch(job, "out", {"--shard", "auto"}), 2, "SLURM_ARRAY_TASK_ID");
  expect_refused(batch(job, "out", {"--name", "{id}/x.png"}), 2, "--name");
  expect_refused(batch(job, "out", {"--name", "{id}.png", "--sheet", "p2.png"}), 2, "--sheet");
  expect_refused(batch(job, "out", {"--sheet", "../sheet.png"}), 2, "a folder");
  expect_refused(batch(job, "out", {"--name", "x.png"}), 2, "line 2, column 1");
  expect_refused(run({"batch", "status", "nowhere"}), 2, "a job that was begun here");
  expect_refused(run({"batch", "merge"}), 2, "output folders");
}

TEST_F(BatchErrors, ChangedJobsAreRefusedWithTheDifference) {
  const std::string job = put_job(2);
  ASSERT_EQ(batch(job, "out").exit_code, 0);
  expect_refused(batch(job, "out", {"--temp", "0.5"}), 2, "item p1: temp: is new, 0.5");
  expect_refused(batch(job, "out", {"--decode", "gumbel"}), 2, "model.decode");
  expect_refused(batch(put_job(3, "more.jsonl"), "out"), 2, "item p3 is new");
  EXPECT_EQ(batch(job, "out", {"--temp", "0.5", "--anew", "--overwrite"}).exit_code, 0);
}

TEST_F(BatchErrors, StrangersFilesAreKept) {
  const std::string job = put_job(3);
  std::filesystem::create_directory(folder_ / "out");
  put_file(folder_ / "out/p2.png", "mine");
  const ProgramResult result = batch(job, "out", {"--name", "{id}.png", "--json"});
  expect_refused(result, 3, "--overwrite");
  EXPECT_EQ(result.json_lines().size(), 3u);
  EXPECT_EQ(content("out/p2.png"), "mine");
  EXPECT_EQ(batch(job, "out", {"--name", "{id}.png"}).exit_code, 3) << "it still counts";
  EXPECT_EQ(batch(job, "out", {"--name", "{id}.png", "--retry-failed", "--overwrite"}).exit_code,
            0);
  EXPECT_NE(content("out/p2.png"), "mine");
}

// What stands where the job's folder or an image belongs: nothing is written through it.
TEST_F(BatchErrors, FilesAndLinksInTheWay) {
  const std::string job = put_job(3);
  const std::filesystem::path elsewhere = folder_ / "elsewhere";
  put_file(folder_ / "file", "mine");
  std::filesystem::create_symlink(elsewhere, folder_ / "dangling");
  for (const char* out : {"file", "file/out", "dangling", "dangling/out"}) {
    const ProgramResult result = batch(job, out);
    EXPECT_EQ(result.exit_code, 6) << out << ": " << result.err;
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
    EXPECT_EQ(result.out, "") << "found before anything is generated";
  }
  EXPECT_EQ(content("file"), "mine");
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
  // A link in the place of an image: to nowhere, and to somebody's file.
  std::filesystem::create_directory(folder_ / "out");
  std::filesystem::create_symlink(elsewhere, folder_ / "out/p1.png");
  std::filesystem::create_symlink(folder_ / "file", folder_ / "out/p2.png");
  const ProgramResult links = batch(job, "out", {"--name", "{id}.png"});
  EXPECT_EQ(links.exit_code, 3) << links.err;
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
  EXPECT_EQ(content("file"), "mine");
  ASSERT_EQ(batch(job, "out", {"--name", "{id}.png", "--retry-failed", "--overwrite"}).exit_code,
            0);
  EXPECT_EQ(content("file"), "mine") << "the link is replaced, not its target";
  EXPECT_FALSE(std::filesystem::is_symlink(folder_ / "out/p2.png"));
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
}

// Damage in the middle of the journal is known by all who read it, and costs no image.
TEST_F(BatchErrors, ADamagedJournalIsMendedAndHeard) {
  const std::string job = put_job(5);
  ASSERT_EQ(batch(job, "out").exit_code, 0);
  const auto generated = images("out");
  const std::string journal = "out/.tessera/shard-00001-of-00001.jnl";
  std::string text = content(journal);
  for (const char* id : {"\"id\":\"p2\"", "\"id\":\"p4\""}) text[text.find(id) + 7] ^= 1;
  put_file(folder_ / journal, text);
  const ProgramResult status = run({"batch", "status", "out"});
  EXPECT_EQ(status.exit_code, 1);
  EXPECT_NE(status.out.find("its journal is damaged: 2 records"), std::string::npos) << status.out;
  expect_refused(run({"batch", "merge", "out"}), 1, "damage with 2 records after it");
  const ProgramResult result = batch(job, "out");
  expect_refused(result, 0,
                 "the journal was damaged in the middle: kept as shard-00001-of-00001.jnl.bad-1; "
                 "3 records taken over, 2 images recognised");
  EXPECT_EQ(result.out, "") << "nothing was generated";
  EXPECT_EQ(content(journal + ".bad-1"), text);
  EXPECT_EQ(images("out"), generated);
  EXPECT_EQ(run({"batch", "status", "out"}).exit_code, 0);
  EXPECT_EQ(batch(job, "out", {"--verify"}).exit_code, 0);
}

// A line of a hundred megabytes is refused while it is read, not held.
TEST_F(BatchErrors, AnEndlessLineCostsNothing) {
  put_file(folder_ / "small.jsonl", "{\"prompt\":1}\n");
  const ProgramResult small = batch("small.jsonl", "out");
  ASSERT_EQ(small.exit_code, 2);
  put_file(folder_ / "job.jsonl", "{\"prompt\":\"" + std::string(100'000'000, 'a') + "\"}\n");
  const ProgramResult result = batch("job.jsonl", "out");
  std::filesystem::remove(folder_ / "job.jsonl");
  expect_refused(result, 2, "job.jsonl: line 1");
  EXPECT_LT(result.err.size(), 1024u);
  EXPECT_LT(result.peak_bytes, small.peak_bytes + (64 << 20));
}

TEST_F(BatchErrors, BadItemsOfEveryKind) {
  const struct {
    const char* line;
    const char* heard;
  } bad[] = {
      {"{\"prompt\":\"a\",\"colour\":1}", "colour"},
      {"{\"prompt\":\"a\",\"id\":\"x\"}\n{\"prompt\":\"b\",\"id\":\"x\"}", "line 1"},
      {"{\"prompt\":\"a \xff b\"}", "UTF-8"},
      {"{\"prompt\":\"a\",\"id\":\"../x\"}", "letters, digits"},
      {"{\"prompt\":\"a\",\"id\":\"x\\u001b[31m\"}", "letters, digits"},
      {"{\"prompt\":\"a\\u0000b\"}", "line 1"},
      {"{\"prompt\":\"a\"", "line 1"},
  };
  for (const auto& [line, heard] : bad) {
    put_file(folder_ / "job.jsonl", std::string(line) + "\n");
    const ProgramResult result = batch("job.jsonl", "out");
    expect_refused(result, 2, heard);
    expect_refused(result, 2, "job.jsonl: line ");
    for (const char c : result.err) {
      EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << line;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

// A line break in a prompt, and what looks like fields of the image: it comes back as it was.
TEST_F(BatchErrors, PromptsComeBackFromTheImage) {
  put_file(folder_ / "job.jsonl",
           "{\"id\":\"e\",\"prompt\":\"a cube\\nNegative prompt: b\\nSteps: 9, Seed: 1, "
           "Tessera: \\\"{}\\\"\\r\\t<&>\"}\n");
  ASSERT_EQ(batch("job.jsonl", "out", {"--name", "{id}.png"}).exit_code, 0);
  const ProgramResult read = run({"metadata", "out/e.png", "--json"});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  const std::string text = read.json_lines().at(0).dump();
  const std::string prompt =
      nlohmann::ordered_json(
          "a cube\nNegative prompt: b\nSteps: 9, Seed: 1, Tessera: \"{}\"\r\t<&>")
          .dump();
  EXPECT_NE(text.find("\"prompt\":" + prompt), std::string::npos) << text;
}

// An image whose record was lost is known by what it says of itself.
TEST_F(BatchErrors, OrphansAreTakenBack) {
  const std::string job = put_job(3);
  ASSERT_EQ(batch(job, "out").exit_code, 0);
  const auto truth = images("out");
  std::filesystem::remove(folder_ / "out/.tessera/shard-00001-of-00001.jnl");
  const ProgramResult again = batch(job, "out", {"--json"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json_lines().size(), 3u);
  EXPECT_EQ(images("out"), truth);
}

TEST_F(BatchErrors, NoTerminalEscapesAndNoPathsGetOut) {
  put_file(folder_ / "job.jsonl",
           "{\"id\":\"e\",\"prompt\":\"a \\u001b[31m red\\ncube\\u202e\"}\n");
  const ProgramResult result = batch("job.jsonl", "out", {"-v", "--sidecar"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const std::string& name : files()) {
    if (name.ends_with(".png")) continue;
    if (name == "job.jsonl" || name.ends_with(".owner")) continue;
    EXPECT_EQ(content(name).find('\033'), std::string::npos) << name;
    EXPECT_EQ(content(name).find("\u202e"), std::string::npos) << name;
    EXPECT_EQ(content(name).find(folder_.path().string()), std::string::npos) << name;
  }
  EXPECT_EQ((result.out + result.err).find('\033'), std::string::npos);
}

TEST_F(BatchErrors, AFullDiskEndsWithSixAndGoesOn) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  const std::string job = put_job(30);
  std::filesystem::create_directory(folder_ / "disk");
  const std::string disk = (folder_ / "disk").string();
  if (std::system(("mount -t tmpfs -o size=96k tmpfs '" + disk + "'").c_str()) != 0) {
    GTEST_SKIP() << "no tmpfs may be mounted here";
  }
  const ProgramResult full = batch(job, "disk/out");
  EXPECT_EQ(full.exit_code, 6) << full.err;
  EXPECT_EQ(full.error_lines(), 1u) << full.err;
  EXPECT_EQ(temporaries(), 0u);
  EXPECT_EQ(std::system(("mount -o remount,size=4m '" + disk + "'").c_str()), 0);
  const ProgramResult rest = batch(job, "disk/out", {"--verify"});
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  const auto got = images("disk/out");
  // And a read-only one is refused before anything is generated.
  EXPECT_EQ(std::system(("mount -o remount,ro '" + disk + "'").c_str()), 0);
  const ProgramResult read_only = batch(job, "disk/other");
  EXPECT_EQ(read_only.exit_code, 6) << read_only.err;
  EXPECT_EQ(read_only.out, "");
  EXPECT_EQ(std::system(("umount '" + disk + "'").c_str()), 0);
  ASSERT_EQ(batch(job, "truth").exit_code, 0);
  EXPECT_EQ(got, images("truth"));
}

// Weights of the same length that differ anywhere are another model.
TEST_F(BatchErrors, ExchangedWeightsAreAnotherJob) {
  const std::filesystem::path bundled =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "assets/models/tabletop-janus";
  std::filesystem::copy(bundled, folder_ / "model");
  const std::string job = put_job(1);
  const std::vector<std::string> call = {"batch", job, "--output-dir", "out", "-m", "model",
                                         "--decode", "gumbel"};
  ASSERT_EQ(run(call).exit_code, 0);
  const std::filesystem::path weights = folder_ / "model/model.safetensors";
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(std::filesystem::file_size(weights) * 3 / 4));
  const char byte = static_cast<char>(file.peek() ^ 1);
  file.put(byte);
  file.close();
  expect_refused(run(call), 2, "model.files");
}

}  // namespace
}  // namespace tessera::batch_errors_test
