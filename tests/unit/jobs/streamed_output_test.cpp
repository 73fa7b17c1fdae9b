// Captions in one file: forms, refusals, trying again what failed, a finished job that stays as it
// is. What a kill does is in resume_test.cpp.
#include "apps/jobs/streamed_output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "tests/support/fault_scope.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_folder.h"

namespace tessera::streamed_output_test {
namespace {

namespace fs = std::filesystem;

const Json kJob = {{"options", {{"prompt", "p"}, {"top", 3}}}, {"inputs", {"a", "b"}}};

CaptionResult result(const std::string& id) {
  CaptionResult out;
  out.id = id;
  out.key = id.substr(0, id.find('.'));
  out.image = {"jpg", "bytes of " + id};
  return out;
}

Json fields(const std::string& id, const std::string& caption) {
  return {{"path", id}, {"caption", caption}, {"tokens", 7}, {"shift", -1.5}};
}

void add(StreamedOutput& output, const std::string& id, const std::string& caption) {
  output.add(result(id), fields(id, caption));
}

const ErrorInfo kBroken{.code = "E_BAD",
                        .file = "b.jpg",
                        .where = "byte 3",
                        .expected = "an image",
                        .found = "=\x1b[2J"};

class Streamed : public ::testing::Test {
 protected:
  std::string text(const std::string& name) { return get_file(folder_ / name); }
  bool exists(const std::string& name) { return fs::exists(folder_ / name); }
  std::string code_of(const std::string& name, const Json& job, const StreamOptions& options) {
    try {
      StreamedOutput(folder_ / name, job, options);
    } catch (const Error& error) {
      message_ = error.what();
      return error.info().code;
    }
    return "";
  }
  TempFolder folder_;
  std::string message_;
};

TEST_F(Streamed, JsonLines) {
  StreamedOutput output(folder_ / "o", kJob, {});
  add(output, "a.jpg", " a\x1b cat\xc2\x9b\n");
  output.fail("b.jpg", "b.jpg", kBroken);
  EXPECT_FALSE(exists("o")) << "the final name shows finished files only";
  output.finish();
  EXPECT_EQ(text("o"), "{\"path\":\"a.jpg\",\"caption\":\"a  cat\",\"tokens\":7,\"shift\":-1.5}\n");
  EXPECT_FALSE(exists("o.part"));
  EXPECT_EQ(output.committed(), 2u);
  write_failures(folder_ / "f", output.journal());
  EXPECT_EQ(text("f"),
            "{\"path\":\"b.jpg\",\"error\":{\"code\":\"E_BAD\",\"file\":\"b.jpg\",\"where\":\"byte "
            "3\",\"expected\":\"an image\",\"found\":\"=\\\\u{001b}[2J\"}}\n");
}

TEST_F(Streamed, Csv) {
  StreamOptions options{.form = OutputForm::kCsv, .columns = {"path", "caption", "shift", "none"}};
  {
    StreamedOutput output(folder_ / "o", kJob, options);
    add(output, "=a,b.jpg", "=1+1\n\"x\"");
    output.finish();
  }
  EXPECT_EQ(text("o"), "path,caption,shift,none\r\n\"'=a,b.jpg\",\"'=1+1\n\"\"x\"\"\",-1.5,\r\n");
  StreamedOutput empty(folder_ / "e", kJob, options);
  empty.finish();
  EXPECT_EQ(text("e"), "path,caption,shift,none\r\n");
}

TEST_F(Streamed, WebDataset) {
  StreamedOutput output(folder_ / "o.tar", kJob,
                        {.form = OutputForm::kTar, .existing = ExistingCaption::kAppend});
  CaptionResult first = result("d/0.jpg");
  first.others = {{"TXT", "old"}, {"seg.png", "mask"}, {"caption.json", "{}"}};
  output.add(first, fields("d/0.jpg", "new"));
  add(output, "1.jpg", "one");
  output.finish();
  const std::string bytes = text("o.tar");
  EXPECT_EQ(bytes.size() % 10240, 0u);
  MemorySource source(bytes);
  SampleReader reader(source, "o.tar", Carry::kEverything);
  const auto a = reader.next(), b = reader.next();
  ASSERT_TRUE(a && b && !reader.next());
  EXPECT_EQ(a->key, "d/0");
  EXPECT_EQ(a->image.bytes, "bytes of d/0.jpg");
  ASSERT_EQ(a->others.size(), 3u);
  EXPECT_EQ(a->others[0].extension + "=" + a->others[0].bytes, "seg.png=mask");
  EXPECT_EQ(a->others[1].extension + "=" + a->others[1].bytes, "txt=old new");
  EXPECT_EQ(a->others[2].extension, "caption.json");
  EXPECT_EQ(Json::parse(a->others[2].bytes)["tokens"], 7);
  EXPECT_EQ(b->others[0].bytes, "one");
}

TEST_F(Streamed, ImagesThatRepeatOthersAreRecordedWithoutACaption) {
  const Json facts = {{"path", "b.jpg"}, {"repeats", "a.jpg"}, {"distance", 2}};
  for (const auto form : {OutputForm::kJsonLines, OutputForm::kCsv, OutputForm::kTar}) {
    const std::string name = form == OutputForm::kTar ? "o.tar" : "o";
    const StreamOptions options{.form = form, .columns = {"path", "caption", "repeats"}};
    CaptionResult second = result("b.jpg");
    second.others = {{"txt", "mine"}, {"caption.json", "{}"}};
    {
      StreamedOutput output(folder_ / name, kJob, options);
      add(output, "a.jpg", "x");
      output.repeat(second, facts);
      output.commit();
    }
    StreamedOutput output(folder_ / name, kJob, options);
    EXPECT_FALSE(output.wants(second.id, true));
    EXPECT_EQ(output.journal().totals().repeats, 1u);
    EXPECT_EQ(output.journal().totals().skipped, 0u);
    output.finish();
    if (form == OutputForm::kJsonLines) {
      EXPECT_NE(text(name).find("\n" + facts.dump() + "\n"), std::string::npos);
    }
    if (form == OutputForm::kCsv) {
      EXPECT_NE(text(name).find("\nb.jpg,,a.jpg\r\n"), std::string::npos) << text(name);
    }
    if (form == OutputForm::kTar) {
      MemorySource source(text(name));
      SampleReader reader(source, name, Carry::kEverything);
      reader.next();
      const auto sample = reader.next();
      ASSERT_TRUE(sample);
      EXPECT_EQ(sample->image.bytes, second.image.bytes);
      ASSERT_EQ(sample->others.size(), 2u);
      EXPECT_EQ(sample->others[0].bytes, "mine");
      EXPECT_EQ(Json::parse(sample->others[1].bytes), facts);
    }
    fs::remove(folder_ / name);
    fs::remove(folder_ / (name + ".journal"));
  }
}

TEST_F(Streamed, RecordsOfEarlierRunsAreHeard) {
  {
    StreamedOutput output(folder_ / "o", kJob, {});
    output.note({{"ev", "seen"}, {"at", 3}});
    add(output, "a.jpg", "x");
    output.commit();
  }
  int seen = 0;
  StreamedOutput output(folder_ / "o", kJob, {.notes = [&](const Json& record) {
                          if (record.value("ev", std::string()) == "seen") seen += record["at"].get<int>();
                        }});
  EXPECT_EQ(seen, 3);
  EXPECT_FALSE(output.wants("a.jpg", true));
}

TEST_F(Streamed, KeysThatCannotBeAreFailedItems) {
  StreamedOutput output(folder_ / "o.tar", kJob, {.form = OutputForm::kTar});
  add(output, "a.jpg", "x");
  CaptionResult twin = result("other/a.jpg");
  twin.key = "a";
  EXPECT_THROW(output.add(twin, fields("t", "x")), Error);
  for (const std::string bad : {"", "../a", "/a", "a.b", "b/.c", "n\n", "c//d"}) {
    CaptionResult wrong = result("w");
    wrong.key = bad;
    EXPECT_THROW(output.add(wrong, fields("w", "x")), Error) << bad;
  }
  CaptionResult wrong = result("w");
  wrong.key = "w";
  wrong.image.extension = "j\x01g";
  EXPECT_THROW(output.add(wrong, fields("w", "x")), Error);
  const auto size = fs::file_size(folder_ / "o.tar.part");
  add(output, "b.jpg", "y");
  EXPECT_GT(fs::file_size(folder_ / "o.tar.part"), size) << "refusals broke nothing";
}

TEST_F(Streamed, GroupsAreAcknowledgedLate) {
  StreamedOutput output(folder_ / "o", kJob, {.group_items = 3, .group_seconds = 1e9});
  add(output, "a", "x");
  add(output, "b", "x");
  EXPECT_EQ(output.committed(), 0u);
  output.skip("c");
  EXPECT_EQ(output.committed(), 3u);
  add(output, "d", "x");
  EXPECT_EQ(output.committed(), 3u);
  output.commit();
  EXPECT_EQ(output.committed(), 4u);
  StreamedOutput hasty(folder_ / "h", kJob, {.group_items = 99, .group_seconds = 0});
  add(hasty, "a", "x");
  EXPECT_EQ(hasty.committed(), 1u);
}

TEST_F(Streamed, AFinishedJobIsNotTouchedAgain) {
  for (int round = 0; round < 2; ++round) {
    StreamedOutput output(folder_ / "o", kJob, {});
    EXPECT_EQ(output.wants("a", false), round == 0);
    if (round == 0) add(output, "a", "x");
    if (round == 0) output.fail("b", "", kBroken);
    const std::string journal = text("o.journal");
    output.finish();
    if (round == 1) {
      EXPECT_EQ(text("o.journal"), journal);
      EXPECT_EQ(output.journal().totals().done, 1u);
      EXPECT_EQ(output.journal().totals().failed, 1u);
      EXPECT_FALSE(output.wants("b", false));
      EXPECT_TRUE(output.wants("b", true));
      EXPECT_EQ(output.journal().failures().at("b").value("id", ""), "b");
    }
  }
}

TEST_F(Streamed, WhatFailedIsTriedAgain) {
  for (const OutputForm form : {OutputForm::kJsonLines, OutputForm::kTar}) {
    const std::string name = form == OutputForm::kTar ? "o.tar" : "o";
    const StreamOptions options{.form = form};
    {
      StreamedOutput output(folder_ / name, kJob, options);
      add(output, "a.jpg", "x");
      output.fail("b.jpg", "b.jpg", kBroken);
      add(output, "c.jpg", "z");
      output.finish();
    }
    {
      StreamedOutput output(folder_ / name, kJob, options);
      ASSERT_TRUE(output.wants("b.jpg", true));
      add(output, "b.jpg", "y");
      EXPECT_FALSE(exists(name));
      output.finish();
      EXPECT_TRUE(output.journal().failures().empty());
      put_file(folder_ / "f", "old");
      write_failures(folder_ / "f", output.journal());
      EXPECT_FALSE(exists("f"));
    }
    StreamedOutput whole(folder_ / "whole", kJob, {.form = form, .start = Start::kAnew});
    for (const auto& [id, caption] : {std::pair{"a.jpg", "x"}, {"c.jpg", "z"}, {"b.jpg", "y"}}) {
      add(whole, id, caption);
    }
    whole.finish();
    EXPECT_EQ(text(name), text("whole"));
  }
}

TEST_F(Streamed, AChangedJobIsRefusedWithTheDifference) {
  { StreamedOutput output(folder_ / "o", kJob, {}); }
  Json other = kJob;
  other["options"]["prompt"] = "q\x1b";
  other["options"].erase("top");
  other["options"]["new"] = true;
  other["inputs"].push_back("c");
  EXPECT_EQ(code_of("o", other, {}), "E_JOB_CHANGED");
  for (const std::string part :
       {"options.prompt: was \"p\", is \"q\\u001b\"", "options.top: was 3, is gone",
        "options.new: is new, true", "inputs[2]: is new, \"c\""}) {
    EXPECT_NE(message_.find(part), std::string::npos) << message_;
  }
  EXPECT_EQ(code_of("o", kJob, {}), "") << "the refusal changed nothing";
  EXPECT_EQ(code_of("o", other, {.start = Start::kAnew}), "");
  EXPECT_EQ(code_of("o", kJob, {}), "E_JOB_CHANGED");
}

TEST_F(Streamed, ForeignFilesAreRefusedAndKept) {
  put_file(folder_ / "o", "somebody's");
  EXPECT_EQ(code_of("o", kJob, {}), "E_OUTPUT_EXISTS");
  EXPECT_FALSE(exists("o.journal"));
  EXPECT_EQ(code_of("o", kJob, {}), "E_OUTPUT_EXISTS") << "the first refusal opened no door";
  put_file(folder_ / "p.journal", "my diary");
  EXPECT_EQ(code_of("p", kJob, {}), "E_JOURNAL");
  EXPECT_EQ(text("p.journal"), "my diary");
  fs::create_symlink(folder_ / "o", folder_ / "q.journal");
  EXPECT_EQ(code_of("q", kJob, {}), "E_IO_WRITE");
  fs::create_symlink(folder_ / "o", folder_ / "r.part");
  EXPECT_EQ(code_of("r", kJob, {}), "E_IO_WRITE");
  EXPECT_EQ(text("o"), "somebody's");
  StreamedOutput anew(folder_ / "o", kJob, {.start = Start::kAnew});
  add(anew, "a", "x");
  anew.commit();
  EXPECT_EQ(text("o"), "somebody's") << "replaced only when the job is over";
  anew.finish();
  EXPECT_NE(text("o"), "somebody's");
}

// Neither begins with a journal of ours next to it.
TEST_F(Streamed, PartsAndJournalsOfOthersAreKept) {
  put_file(folder_ / "o.part", "my notes");
  for (const Start start : {Start::kResume, Start::kAnew}) {
    EXPECT_EQ(code_of("o", kJob, {.start = start}), "E_OUTPUT_EXISTS");
    EXPECT_EQ(text("o.part"), "my notes");
    EXPECT_FALSE(exists("o.journal"));
  }
  put_file(folder_ / "p.journal", "my diary");
  EXPECT_EQ(code_of("p", kJob, {.start = Start::kAnew}), "E_JOURNAL");
  EXPECT_EQ(text("p.journal"), "my diary");
  {
    StreamedOutput output(folder_ / "q", kJob, {});
    add(output, "a", "x");
    output.commit();
  }
  StreamedOutput anew(folder_ / "q", {{"other", 1}}, {.start = Start::kAnew});
  EXPECT_EQ(text("q.part"), "") << "a part of our own is begun anew";
}

TEST_F(Streamed, WhatWaitsIsCommittedInTime) {
  StreamedOutput output(folder_ / "o", kJob, {.group_items = 99, .group_seconds = 0.02});
  add(output, "a", "x");
  EXPECT_EQ(output.committed(), 0u);
  ::usleep(30'000);
  output.commit_if_late();
  EXPECT_EQ(output.committed(), 1u);
}

// Decided before a caption is looked for.
TEST_F(Streamed, AKeyBelongsToOneItemUnlessItFails) {
  StreamedOutput output(folder_ / "o.tar", kJob, {.form = OutputForm::kTar});
  EXPECT_EQ(output.claim("a", "a.jpg"), Wanted::kYes);
  EXPECT_EQ(output.claim("a", "a.png"), Wanted::kLater);
  output.release("a", "a.png");
  EXPECT_EQ(output.claim("a", "a.png"), Wanted::kLater) << "it was not its own";
  output.release("a", "a.jpg");
  EXPECT_EQ(output.claim("a", "a.png"), Wanted::kYes);
  add(output, "a.png", "x");
  EXPECT_THROW(output.claim("a", "a.jpg"), Error);
  EXPECT_THROW(output.claim("../a", "b"), Error);
}

TEST_F(Streamed, CaptionsThatAreThereAreKeptAsTheyAre) {
  CaptionResult old = result("a.jpg");
  old.others = {{"txt", "\xff old\n"}, {"caption.json", "{\"mine\":1}"}};
  for (const ExistingCaption policy : {ExistingCaption::kAppend, ExistingCaption::kSkip}) {
    StreamedOutput output(folder_ / "o.tar", kJob,
                          {.form = OutputForm::kTar, .existing = policy, .start = Start::kAnew});
    EXPECT_EQ(output.keep(old), policy == ExistingCaption::kSkip);
    EXPECT_FALSE(output.keep(result("b.jpg"))) << "it has no caption";
    if (policy == ExistingCaption::kAppend) {
      const auto size = fs::file_size(folder_ / "o.tar.part");
      EXPECT_THROW(output.add(old, fields("a.jpg", "new")), Error) << "no text to add to";
      EXPECT_EQ(fs::file_size(folder_ / "o.tar.part"), size);
      continue;
    }
    EXPECT_FALSE(output.wants("a.jpg", false));
    output.finish();
    MemorySource source(text("o.tar"));
    SampleReader reader(source, "o.tar", Carry::kEverything);
    const auto sample = reader.next();
    ASSERT_TRUE(sample);
    EXPECT_EQ(sample->others.at(0).bytes, old.others[0].bytes);
    EXPECT_EQ(sample->others.at(1).bytes, old.others[1].bytes);
  }
}

TEST_F(Streamed, FailuresSayWhichOfAImagesAnswers) {
  StreamedOutput output(folder_ / "o", kJob, {});
  output.fail(listed_id("first"), "a.jpg", kBroken);
  output.finish();
  EXPECT_EQ(output.journal().failures().begin()->second.value("id", ""), "first");
  EXPECT_EQ(failure_json(listed_id("first"), "a.jpg", kBroken).value("id", ""), "first");
  EXPECT_FALSE(failure_json("a.jpg", "a.jpg", kBroken).contains("id"));
}

TEST_F(Streamed, OneWriterAtATime) {
  StreamedOutput output(folder_ / "o", kJob, {});
  EXPECT_EQ(code_of("o", kJob, {}), "E_IO_LOCKED");
}

TEST_F(Streamed, AnOutputShorterThanItsJournalIsRefused) {
  {
    StreamedOutput output(folder_ / "o", kJob, {});
    add(output, "a", "x");
    output.commit();
  }
  fs::resize_file(folder_ / "o.part", 5);
  EXPECT_EQ(code_of("o", kJob, {}), "E_OUTPUT_CHANGED");
  fs::remove(folder_ / "o.part");
  EXPECT_EQ(code_of("o", kJob, {}), "E_OUTPUT_CHANGED");
}

// A record with a right checksum and wrong fields: not believed, no crash.
TEST_F(Streamed, ForgedRecordsAreCutOff) {
  {
    StreamedOutput output(folder_ / "o", kJob, {});
    add(output, "a", "x");
    output.commit();
  }
  const std::string good = text("o.journal");
  const std::string before = good.substr(good.size() - 11, 8);
  for (const std::string fields :
       {"\"id\":\"b\",\"st\":\"done\",\"end\":\"far\"", "\"id\":7,\"st\":\"done\"", "\"ev\":[]",
        "\"ev\":\"closed\",\"len\":{}"}) {
    std::string line = "{\"n\":2," + fields + ",\"prev\":\"" + before + "\"";
    char sum[16];
    std::snprintf(sum, sizeof sum, "%08x", crc32c(line));
    put_file(folder_ / "o.journal", good + line + ",\"crc\":\"" + sum + "\"}\n");
    StreamedOutput output(folder_ / "o", kJob, {});
    EXPECT_FALSE(output.wants("a", false));
    EXPECT_EQ(text("o.journal"), good) << fields;
  }
}

// Commit order: when the data cannot be synced, no record may be written.
TEST_F(Streamed, NoRecordBeforeItsData) {
  StreamedOutput output(folder_ / "o", kJob, {.group_items = 99});
  add(output, "a", "x");
  const std::string before = text("o.journal");
  {
    const FaultScope fault({.op = IoOp::kSync, .nth = 1, .error = EIO});
    try {
      output.commit();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 6);
      EXPECT_NE(error.info().file.find("o.part"), std::string::npos);
    }
  }
  EXPECT_EQ(text("o.journal"), before);
  EXPECT_EQ(output.committed(), 0u);
}

}  // namespace
}  // namespace tessera::streamed_output_test
