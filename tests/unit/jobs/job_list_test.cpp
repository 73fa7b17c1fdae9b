// Job files: the three forms say the same, and every way to write one wrong is notified with line and
// column before anything runs.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/jobs/job_list.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_folder.h"

namespace tessera::job_list_test {
namespace {

JobList read(const std::string& text, JobForm form) {
  MemorySource source(text);
  return read_job(source, "job", form);
}

std::string first_error(const std::string& text, JobForm form) {
  const JobList list = read(text, form);
  if (list.errors.empty()) return "";
  EXPECT_EQ(list.errors[0].kind, ErrorKind::kUsage);
  EXPECT_EQ(list.errors[0].file, "job");
  return list.errors[0].code + " " + list.errors[0].where;
}

TEST(JobList, TextHasOnePromptALine) {
  const JobList list = read(
      "\xef\xbb\xbf"
      "a cat \r\n# no prompt\n\n  \n two dogs\na cat",
      JobForm::kText);
  ASSERT_TRUE(list.errors.empty());
  ASSERT_EQ(list.items.size(), 3u);
  EXPECT_EQ(list.items[0].prompt, "a cat");
  EXPECT_EQ(list.items[1].prompt, " two dogs");
  EXPECT_EQ(list.items[1].line, 5u);
  EXPECT_EQ(list.items[0].id.substr(0, 6), "a-cat-");
  EXPECT_EQ(list.items[2].id, list.items[0].id + "-2") << "ids stay apart";
}

TEST(JobList, JsonLinesHaveAllFields) {
  const JobList list = read(
      "{\"id\":\"a-1\",\"prompt\":\"x\\ny\",\"negative_prompt\":\"z\",\"seed\":9007199254740991,"
      "\"temp\":0.5,\"top-k\":3,\"top-p\":0.25,\"min-p\":0.125,\"typical\":1,\"cfg-scale\":2e0}\r\n"
      "\n{\"prompt\":\"p\"}",
      JobForm::kJsonLines);
  ASSERT_TRUE(list.errors.empty()) << format_error(list.errors[0]);
  ASSERT_EQ(list.items.size(), 2u);
  const JobItem& item = list.items[0];
  EXPECT_EQ(item.id, "a-1");
  EXPECT_EQ(item.prompt, "x\ny");
  EXPECT_EQ(item.negative_prompt, "z");
  EXPECT_EQ(item.seed, kMaxJobSeed);
  EXPECT_EQ(item.settings, values_of(DistributionSettings{.guidance = 2,
                                                 .temperature = 0.5,
                                                 .top_k = 3,
                                                 .top_p = 0.25,
                                                 .min_p = 0.125,
                                                 .typical = 1}));
  EXPECT_EQ(list.items[1].line, 3u);
}

TEST(JobList, VideosSayWhatVideosHave) {
  const JobList json = read(
      "{\"id\":\"a\",\"kind\":\"video\",\"prompt\":\"x\",\"frames\":1000000,\"fps\":240,"
      "\"container\":\"webp\",\"first-frames\":\"a b.mp4\",\"first_frames_sha256\":\"00\"}\n"
      "{\"kind\":\"picture\",\"prompt\":\"y\"}",
      JobForm::kJsonLines);
  ASSERT_TRUE(json.errors.empty()) << format_error(json.errors[0]);
  const JobItem& item = json.items[0];
  EXPECT_TRUE(item.is_video());
  EXPECT_EQ(item.frames, 1000000);
  EXPECT_EQ(item.fps, 240);
  EXPECT_EQ(item.container, "webp");
  EXPECT_EQ(item.first_frames, "a b.mp4");
  EXPECT_EQ(item.first_frames_sha256, "00");
  EXPECT_FALSE(json.items[1].is_video());
  EXPECT_EQ(read(job_line(item), JobForm::kJsonLines).items.at(0), item);
  const JobList csv = read(
      "id,kind,prompt,frames,fps,container,first-frames,first-frames-sha256\n"
      "a,video,x,1000000,240,webp,a b.mp4,00\n",
      JobForm::kCsv);
  ASSERT_TRUE(csv.errors.empty()) << format_error(csv.errors[0]);
  EXPECT_TRUE(csv.items[0] == item);
}

TEST(JobList, CsvQuotesHoldAnything) {
  const JobList list = read(
      "prompt,id,seed,temp\r\n\"a, "
      "\"\"b\"\"\r\nc\nd\",one,7,\r\n\r\nplain,,,1.5\r\n\"q\",two,,\r\n",
      JobForm::kCsv);
  ASSERT_TRUE(list.errors.empty()) << format_error(list.errors[0]);
  ASSERT_EQ(list.items.size(), 3u);
  EXPECT_EQ(list.items[0].prompt, "a, \"b\"\r\nc\nd");
  EXPECT_EQ(list.items[0].seed, 7);
  EXPECT_TRUE(list.items[0].settings.empty());
  EXPECT_EQ(list.items[1].prompt, "plain");
  EXPECT_EQ(list.items[1].settings.number(setting::kTemperature), 1.5);
  EXPECT_EQ(list.items[1].line, 6u);
  EXPECT_EQ(list.items[2].id, "two");
}

TEST(JobList, TheFormsSayTheSame) {
  const auto text = read("a cat\ntwo, \"dogs\"\na cat\n", JobForm::kText);
  const auto json =
      read("{\"prompt\":\"a cat\"}\n{\"prompt\":\"two, \\\"dogs\\\"\"}\n{\"prompt\":\"a cat\"}\n",
           JobForm::kJsonLines);
  const auto csv = read("prompt\na cat\n\"two, \"\"dogs\"\"\"\na cat\n", JobForm::kCsv);
  ASSERT_EQ(text.items.size(), 3u);
  EXPECT_TRUE(text.items == json.items);
  EXPECT_TRUE(text.items == csv.items);
  EXPECT_FALSE(text.items[0] == text.items[1]) << "the comparison can fail";
}

TEST(JobList, LinesAreReadBackAsTheyWere) {
  const JobList list = read(
      "{\"id\":\"a\",\"prompt\":\"\\u0001\\u202e\\\\ "
      "\xc3\xa4\",\"temp\":0.1,\"cfg_scale\":1.7,\"seed\":3}",
      JobForm::kJsonLines);
  ASSERT_EQ(list.items.size(), 1u);
  const JobList again = read(job_line(list.items[0]), JobForm::kJsonLines);
  ASSERT_EQ(again.items.size(), 1u);
  EXPECT_TRUE(again.items[0] == list.items[0]);
}

TEST(JobList, EveryJsonErrorHasLineAndColumn) {
  const std::string good = "{\"prompt\":\"a\",\"id\":\"one\"}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"{\"prompt\":\"b\",\"model\":\"x\"}", "E_JOB_FIELD line 2, column 15"},
      {"{\"prompt\":\"\xc3\xa4\xc3\xa4\",\"x\":1}", "E_JOB_FIELD line 2, column 16"},
      {"{\"prompt\":7}", "E_JOB_FIELD line 2, column 11"},
      {"{\"prompt\":null}", "E_JOB_FIELD line 2, column 11"},
      {"{\"prompt\":\"b\",\"prompt\":\"c\"}", "E_JOB_FIELD line 2, column 15"},
      {"{\"prompt\":\"b\",\"top-p\":1,\"top_p\":1}", "E_JOB_FIELD line 2, column 25"},
      {"{\"prompt\":\"\"}", "E_JOB_FIELD line 2, column 11"},
      {"{\"id\":\"b\"}", "E_JOB_FIELD line 2, column 1"},
      {"[\"b\"]", "E_JOB_FIELD line 2, column 1"},
      {"{\"prompt\":\"b\",\"seed\":-1}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"seed\":9007199254740992}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"seed\":1.0}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"seed\":\"1\"}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"temp\":-0.1}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"temp\":1e999}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"top-k\":1048577}", "E_JOB_FIELD line 2, column 23"},
      {"{\"prompt\":\"b\",\"cfg-scale\":-0.5}", "E_JOB_FIELD line 2, column 27"},
      {"{\"prompt\":\"b\",\"kind\":\"film\"}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"kind\":true}", "E_JOB_FIELD line 2, column 22"},
      {"{\"prompt\":\"b\",\"frames\":0}", "E_JOB_FIELD line 2, column 24"},
      {"{\"prompt\":\"b\",\"frames\":1000001}", "E_JOB_FIELD line 2, column 24"},
      {"{\"prompt\":\"b\",\"frames\":1e3}", "E_JOB_FIELD line 2, column 24"},
      {"{\"prompt\":\"b\",\"fps\":0}", "E_JOB_FIELD line 2, column 21"},
      {"{\"prompt\":\"b\",\"container\":\"avi\"}", "E_JOB_FIELD line 2, column 27"},
      {"{\"prompt\":\"b\",\"first-frames\":\"\"}", "E_JOB_FIELD line 2, column 30"},
      {"{\"prompt\":\"b\",\"id\":\"../b\"}", "E_JOB_ID line 2, column 20"},
      {"{\"prompt\":\"b\",\"id\":\".b\"}", "E_JOB_ID line 2, column 20"},
      {"{\"prompt\":\"b\",\"id\":\"b\\u001b[1m\"}", "E_JOB_ID line 2, column 20"},
      {"{\"prompt\":\"b\",\"id\":\"\"}", "E_JOB_ID line 2, column 20"},
      {"{\"prompt\":\"b\",\"id\":\"one\"}", "E_JOB_DUPLICATE line 2, column 1"},
      {"{\"prompt\":\"b\\u0000\"}", "E_JOB_TEXT line 2, column 11"},
      {"{\"prompt\":\"b\xff\"}", "E_JSON_UTF8 line 2, column 13"},
      {"{\"prompt\":\"b\"", "E_JSON line 2, column 14"},
      {"{\"prompt\":\"b\"} x", "E_JSON line 2, column 16"},
      {"{prompt:\"b\"}", "E_JSON line 2, column 2"},
  };
  for (const auto& [line, error] : cases) {
    EXPECT_EQ(first_error(good + line + "\n", JobForm::kJsonLines), error) << line;
  }
}

TEST(JobList, EveryCsvErrorHasLineAndColumn) {
  const std::string good = "id,prompt,seed\none,a,1\n";
  const std::pair<std::string, std::string> cases[] = {
      {good + "two,b", "E_JOB_CSV line 3, column 5"},
      {good + "two,b,1,2", "E_JOB_CSV line 3, column 9"},
      {good + "two,b,x", "E_JOB_FIELD line 3, column 7"},
      {good + "two,b,inf", "E_JOB_FIELD line 3, column 7"},
      {good + "two,,1", "E_JOB_FIELD line 3, column 1"},
      {good + "a/../b,b,1", "E_JOB_ID line 3, column 1"},
      {good + "one,b,1", "E_JOB_DUPLICATE line 3, column 1"},
      {good + "two,b\"c,1", "E_JOB_CSV line 3, column 6"},
      {good + "two,\"b\"c,1", "E_JOB_CSV line 3, column 8"},
      {good + "two,\"b\nc\"d,1", "E_JOB_CSV line 4, column 3"},
      {good + "two,\"b\nc,1", "E_JOB_CSV line 3, column 5"},
      {good + "two,b\xff,1", "E_JOB_TEXT line 3, column 5"},
      {good + "\"tw\xc3\xa4\",b,1", "E_JOB_ID line 3, column 1"},
      {"id,seed\n", "E_JOB_CSV_HEADER line 1, column 1"},
      {"prompt,colour\n", "E_JOB_CSV_HEADER line 1, column 8"},
      {"prompt,id,prompt\n", "E_JOB_CSV_HEADER line 1, column 11"},
      {"\"prompt\n", "E_JOB_CSV_HEADER line 1, column 1"},
      {"prompt\n", "E_JOB_EMPTY line 1, column 1"},
      {"", "E_JOB_EMPTY line 1, column 1"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_EQ(first_error(text, JobForm::kCsv), error) << text;
  }
}

TEST(JobList, TextErrors) {
  EXPECT_EQ(first_error("a\nb\xff\n", JobForm::kText), "E_JOB_TEXT line 2, column 2");
  EXPECT_EQ(first_error(std::string("a\nbc\0\n", 6), JobForm::kText),
            "E_JOB_TEXT line 2, column 3");
  EXPECT_EQ(first_error("# only\n\n", JobForm::kText), "E_JOB_EMPTY line 1, column 1");
  EXPECT_EQ(first_error(std::string(65537, 'x'), JobForm::kText), "E_JOB_FIELD line 1, column 1");
}

TEST(JobList, TwentyErrorsAreEnough) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += i % 2 == 0 ? "{}\n" : "{\"prompt\":\"a\"}\n";
  const JobList list = read(text, JobForm::kJsonLines);
  ASSERT_EQ(list.errors.size(), 20u);
  EXPECT_EQ(list.errors[19].where, "line 39, column 1");
}

TEST(JobList, BothLinesOfADuplicateAreNamed) {
  const JobList list = read("{\"prompt\":\"a\",\"id\":\"x\"}\n\n{\"prompt\":\"b\",\"id\":\"x\"}\n",
                            JobForm::kJsonLines);
  ASSERT_EQ(list.errors.size(), 1u);
  EXPECT_EQ(list.errors[0].found, "\"x\" here and in line 1");
  EXPECT_EQ(list.errors[0].where, "line 3, column 1");
}

// 100 MB without a line break, made as it is read.
class LongLine final : public ByteSource {
 public:
  std::size_t read(char* data, std::size_t wanted) override {
    const std::size_t got = std::min<std::uint64_t>(wanted, left_);
    std::fill_n(data, got, 'x');
    left_ -= got;
    return got;
  }
  std::uint64_t size() const override { return left_; }

 private:
  std::uint64_t left_ = 100'000'000;
};

TEST(JobList, ALineOfAHundredMegabytesIsNotHeld) {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  const long before = usage.ru_maxrss;
  for (const JobForm form : {JobForm::kText, JobForm::kJsonLines, JobForm::kCsv}) {
    LongLine source;
    const JobList list = read_job(source, "job", form);
    ASSERT_EQ(list.errors.size(), 1u);
    EXPECT_EQ(list.errors[0].where, "line 1, column 1");
  }
  // The same over many lines of one quoted cell.
  std::string cell = "prompt\n\"";
  for (int i = 0; i < 3000; ++i) cell += std::string(1000, 'y') + "\n";
  EXPECT_EQ(first_error(cell, JobForm::kCsv).substr(0, 10), "E_JOB_LINE");
  getrusage(RUSAGE_SELF, &usage);
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(usage.ru_maxrss - before, 24L << 10) << "KiB";
#endif
}

TEST(JobList, FilesGoByTheirEnding) {
  const TempFolder folder;
  put_file(folder / "a.txt", "a cat");
  EXPECT_EQ(read_job_file(folder / "a.txt").items.size(), 1u);
  EXPECT_THROW(read_job_file(folder / "a.yaml"), Error);
  EXPECT_THROW(read_job_file(folder / "missing.txt"), Error);
  EXPECT_EQ(job_form_of("x/y.ndjson"), JobForm::kJsonLines);
}

}  // namespace
}  // namespace tessera::job_list_test
