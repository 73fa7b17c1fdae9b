// Jobs that an earlier program began: tests/golden/jobs. What it recorded is believed, and the job
// ends as that program would have ended it, wherever its journal is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/captions/text_forms.h"
#include "apps/jobs/caption_report.h"
#include "apps/jobs/merge.h"
#include "apps/jobs/sidecar.h"
#include "apps/jobs/streamed_output.h"
#include "tests/support/memory_source.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::old_jobs_test {
namespace {

namespace fs = std::filesystem;

const fs::path kOld = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/jobs";

Json header_of(const fs::path& journal) { return Json::parse(lines_of(journal).front()); }

// Results of a finished output by id, as they are added again.
struct Result {
  CaptionResult item;
  Json fields;
};

std::map<std::string, Result> results_of(OutputForm form, const fs::path& output) {
  std::map<std::string, Result> out;
  if (form == OutputForm::kJsonLines) {
    for (const std::string& line : lines_of(output)) {
      const Json fields = Json::parse(line);
      const std::string id = fields.at("path");
      out[id] = {{.id = id, .key = {}, .image = {}, .others = {}}, fields};
    }
  } else {
    const std::string bytes = get_file(output);
    MemorySource source(bytes);
    SampleReader reader(source, "x.tar", Carry::kEverything);
    while (auto sample = reader.next()) {
      Json fields;
      for (const SampleMember& member : sample->others) {
        if (member.extension == "caption.json") fields = Json::parse(member.bytes);
      }
      const std::string id = fields.at("path");
      out[id] = {{.id = id, .key = sample->key, .image = sample->image, .others = {}}, fields};
    }
  }
  return out;
}

class OldOutput : public ::testing::TestWithParam<OutputForm> {
 protected:
  void SetUp() override {
    name_ = GetParam() == OutputForm::kTar ? "x.tar" : "x.jsonl";
    old_ = kOld / (GetParam() == OutputForm::kTar ? "tar" : "jsonl");
    whole_ = get_file(old_ / name_);
    journal_ = lines_of(old_ / (name_ + ".journal"));
    results_ = results_of(GetParam(), old_ / name_);
  }
  Json job() const { return header_of(old_ / (name_ + ".journal")).at("job"); }

  std::string name_, whole_;
  fs::path old_;
  std::vector<std::string> journal_;
  std::map<std::string, Result> results_;
  StoreFolder folder_;
};

// After every record a kill, with nothing, a part or all of what follows in the output.
TEST_P(OldOutput, GoesOnAfterEveryRecord) {
  const fs::path output = folder_.root() / name_;
  for (std::size_t records = 1; records < journal_.size(); ++records) {
    std::string left;
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < records; ++i) {
      left += journal_[i];
      end = Json::parse(journal_[i]).value("end", end);
    }
    for (const std::uint64_t more : {std::uint64_t{0}, std::uint64_t{7}, whole_.size() - end}) {
      SCOPED_TRACE(std::to_string(records) + " " + std::to_string(more));
      fs::remove(output);
      put_file(folder_.root() / (name_ + ".journal"), left);
      put_file(folder_.root() / (name_ + ".part"), whole_.substr(0, end + more));
      StreamOptions options;
      options.form = GetParam();
      StreamedOutput store(output, job(), options);
      if (store.wants("in/bad.png", false)) {
        store.fail("in/bad.png", "in/bad.png", {.code = "E_PICTURE_FORMAT"});
      }
      for (const auto& [id, result] : results_) {
        if (!store.wants(id, false)) continue;
        EXPECT_EQ(store.claim(result.item.key, id), Wanted::kYes);
        store.add(result.item, result.fields);
      }
      store.finish();
      ASSERT_TRUE(get_file(output) == whole_);
      const CaptionShard now = read_caption_reports(output).front().shards.front();
      EXPECT_TRUE(now.over);
      EXPECT_EQ(now.done, results_.size());
      EXPECT_EQ(now.failed, 1u);
    }
  }
}

TEST_P(OldOutput, AFinishedJobIsOverAndStays) {
  const fs::path output = folder_.root() / name_;
  put_file(output, whole_);
  put_file(folder_.root() / (name_ + ".journal"), get_file(old_ / (name_ + ".journal")));
  StreamOptions options;
  options.form = GetParam();
  StreamedOutput store(output, job(), options);
  for (const auto& [id, result] : results_) EXPECT_FALSE(store.wants(id, true)) << id;
  EXPECT_FALSE(store.wants("in/bad.png", false));
  EXPECT_TRUE(store.wants("in/bad.png", true));
  store.finish();
  EXPECT_TRUE(get_file(output) == whole_);
  EXPECT_EQ(get_file(folder_.root() / (name_ + ".journal")), get_file(old_ / (name_ + ".journal")));
}

INSTANTIATE_TEST_SUITE_P(Forms, OldOutput,
                         ::testing::Values(OutputForm::kJsonLines, OutputForm::kTar),
                         [](const auto& form) {
                           return form.param == OutputForm::kTar ? "Tar" : "JsonLines";
                         });

// Killed between a text and its record: the text is not added again, the others are.
TEST(OldTexts, CaptionsAreAddedOnce) {
  const StoreFolder folder;
  fs::copy(kOld / "append/in", folder.out(), fs::copy_options::recursive);
  const fs::path journal = ".tessera-caption-7cde20f72e1cbe9f.journal";
  const Json job = header_of(folder.out() / journal).at("job");
  // The paths in the journal are relative to the folder in which the program was called.
  fs::rename(folder.out(), folder.root() / "in");
  const fs::path before = fs::current_path();
  fs::current_path(folder.root());
  {
    SidecarOutput store("in" / journal, job, {.existing = ExistingCaption::kAppend});
    std::string wanted;
    for (const char* name : {"bad", "p1", "p2", "p3", "p4", "p5", "p6"}) {
      CaptionItem item;
      item.id = item.path = std::string("in/") + name + ".png";
      item.file = item.id;
      if (store.wants(item, false) != Wanted::kYes) continue;
      wanted += std::string(name) + " ";
      store.write(item, "new");
    }
    EXPECT_EQ(wanted, "p4 p5 p6 ");
    store.finish();
  }
  fs::current_path(before);
  for (const char* name : {"p1.txt", "p2.txt", "p3.txt"}) {
    EXPECT_EQ(get_file(folder.root() / "in" / name), get_file(kOld / "append/in" / name));
  }
  EXPECT_EQ(get_file(folder.root() / "in/p5.txt"), "mine new");
  const auto reports = read_caption_reports(folder.root() / "in");
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports.front().shards.front().over);
  EXPECT_EQ(reports.front().shards.front().done, 6u);
  EXPECT_EQ(reports.front().shards.front().failed, 1u);
}

class OldBatch : public ::testing::Test {
 protected:
  void take(const char* name) {
    fs::copy(kOld / name / "out", folder_.out(), fs::copy_options::recursive);
    const std::optional<BegunJob> begun = read_begun_job(folder_.out());
    ASSERT_TRUE(begun.has_value());
    job_ = Json::parse(begun->job);
    items_ = settle_items(begun->items, {}, OutputTemplate(job_.at("options").at("name")), "job");
  }
  BatchStore open() {
    StoreOptions options;
    options.verify = true;
    options.next_to = {".json", ".txt"};
    return BatchStore(folder_.out(), items_, job_.at("options"), job_.at("model"), options);
  }
  fs::path journal() const { return folder_.out() / kStateFolder / journal_name(1, 1); }

  StoreFolder folder_;
  Json job_;
  std::vector<SettledItem> items_;
};

TEST_F(OldBatch, ImagesAreDoneAndMerged) {
  take("images");
  const std::string before = get_file(journal());
  {
    const BatchStore store = open();
    EXPECT_TRUE(store.wanted(true).empty());
    EXPECT_TRUE(store.damaged().empty()) << "all hashes hold";
    EXPECT_EQ(store.totals().done, 2u);
  }
  EXPECT_EQ(get_file(journal()), before);
  const MergeReport merged = merge_folders(std::vector<fs::path>{folder_.out()}, folder_.out());
  EXPECT_EQ(merged.done, 2u);
  EXPECT_EQ(lines_of(merged.results).size(), 2u);
}

// After every record: what it does not call done is wanted, and what stands there is its own.
TEST_F(OldBatch, ImagesGoOnAfterEveryRecord) {
  take("images");
  const std::vector<std::string> records = lines_of(journal());
  ASSERT_EQ(records.size(), 5u);
  const auto outputs = folder_.outputs();
  std::string left;
  for (std::size_t count = 1; count <= records.size(); ++count) {
    left += records[count - 1];
    put_file(journal(), left);
    BatchStore store = open();
    const std::size_t done = (count - 1) / 2;
    const std::vector<std::size_t> wanted = store.wanted(false);
    ASSERT_EQ(wanted.size(), 2 - done) << count;
    if (count % 2 == 1) continue;
    // The intent says what stands there: those files are replaced, nobody is in the way.
    const SettledItem& item = items_[wanted.front()];
    const std::string stem = fs::path(item.name).stem().string();
    store.commit(item,
                 std::vector<OutputFile>{{stem + ".txt", "another text"},
                                         {stem + ".json", outputs.at(stem + ".json")},
                                         {item.name, outputs.at(item.name)}},
                 0.5, kNobodys);
    EXPECT_EQ(get_file(folder_.out() / (stem + ".txt")), "another text");
    put_file(folder_.out() / (stem + ".txt"), outputs.at(stem + ".txt"));
  }
}

TEST_F(OldBatch, SegmentsOfAVideoStand) {
  take("clips");
  BatchStore store = open();
  ASSERT_EQ(store.wanted(false).size(), 1u);
  static constexpr std::size_t kCodes = (112 - 16) / 4;  // of the grid in the file
  const StandingVideo standing = store.standing_video(items_.front(), kCodes, 1 << 20);
  EXPECT_EQ(standing.grids, 1);
  EXPECT_EQ(standing.passes, 24);
  EXPECT_EQ(standing.codes.size(), kCodes);
  EXPECT_EQ(read_job_report(folder_.out()).standing.at("a"), 1);
}

}  // namespace
}  // namespace tessera::old_jobs_test
