// Text files next to images: policies, hazards of names and links, and every call of the I/O layer
// made to fail or the run stopped there, after which a second run must leave each caption once.
#include "apps/jobs/sidecar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/fault_scope.h"
#include "tests/support/temp_folder.h"

namespace tessera::sidecar_test {
namespace {

namespace fs = std::filesystem;
using enum ExistingCaption;

CaptionItem item_of(const fs::path& file) {
  CaptionItem item;
  item.id = item.path = file.filename().string();
  item.file = file;
  return item;
}

const Json kJob = {{"options", {{"prompt", "p"}}}};

class Sidecar : public ::testing::Test {
 protected:
  // One run over the items; the caption of "a.jpg" is "new a". Returns codes of failed items.
  std::string run(const std::vector<std::string>& names, ExistingCaption existing,
                  const std::string& extension = "txt", bool retry_failed = false) {
    SidecarOutput output(folder_ / "j", kJob, {.existing = existing, .extension = extension});
    std::string codes;
    for (const std::string& name : names) {
      const CaptionItem item = item_of(folder_ / name);
      try {
        if (output.wants(item, retry_failed) != Wanted::kYes) continue;
        ++captioned_;
        output.write(item, " new " + item.file.stem().string() + " ");
      } catch (const Error& error) {
        if (error.exit_code() != 1) throw;
        codes += error.info().code + " ";
        output.fail(item, error.info());
      }
    }
    output.commit();
    return codes;
  }
  std::string text(const std::string& name) { return get_file(folder_ / name); }

  TempFolder folder_;
  int captioned_ = 0;
};

TEST_F(Sidecar, Policies) {
  const std::pair<ExistingCaption, std::string> cases[] = {
      {kSkip, "old\n"}, {kOverwrite, "new a"}, {kAppend, "old new a"}, {kPrepend, "new a old"}};
  for (const auto& [policy, want] : cases) {
    fs::remove(folder_ / "j");
    fs::remove(folder_ / "b.txt");
    put_file(folder_ / "a.txt", "old\n");
    captioned_ = 0;
    EXPECT_EQ(run({"a.jpg", "b.png"}, policy), "");
    EXPECT_EQ(text("a.txt"), want);
    EXPECT_EQ(text("b.txt"), "new b");
    EXPECT_EQ(captioned_, policy == kSkip ? 1 : 2);
    EXPECT_EQ(run({"a.jpg", "b.png"}, policy), "");
    EXPECT_EQ(text("a.txt"), want) << "a second run changes nothing";
    EXPECT_EQ(captioned_, policy == kSkip ? 1 : 2);
  }
}

TEST_F(Sidecar, AnImageThatRepeatsAnotherHasNoTextAndItsNameIsFree) {
  const CaptionItem item = item_of(folder_ / "b.jpg");
  {
    SidecarOutput output(folder_ / "j", kJob, {});
    ASSERT_EQ(output.wants(item, false), Wanted::kYes);
    output.repeat(item, "a.jpg");
    const CaptionItem twin = item_of(folder_ / "b.png");
    ASSERT_EQ(output.wants(twin, false), Wanted::kYes);
    output.write(twin, "of the twin");
    output.finish();
  }
  int heard = 0;
  SidecarOutput output(folder_ / "j", kJob, {.notes = [&](const Json& record) {
                         if (record.value("repeats", std::string()) == "a.jpg") ++heard;
                       }});
  EXPECT_EQ(heard, 1);
  EXPECT_EQ(output.wants(item, true), Wanted::kNo);
  EXPECT_EQ(output.journal().totals().repeats, 1u);
  EXPECT_EQ(text("b.txt"), "of the twin");
}

TEST_F(Sidecar, Extension) {
  EXPECT_EQ(run({"a.b.jpg"}, kSkip, "caption"), "");
  EXPECT_EQ(text("a.b.caption"), "new a.b");
  for (const std::string bad : {"", ".txt", "a/b", "jpg", "x.PNG", "..", "t\nt"}) {
    EXPECT_THROW(SidecarOutput(folder_ / "k", kJob, {.extension = bad}), Error) << bad;
  }
}

TEST_F(Sidecar, TwoImagesOfOneNameNeverShareAFile) {
  EXPECT_EQ(run({"a.jpg", "a.png", "b.jpg"}, kOverwrite), "E_SIDECAR_SHARED ");
  EXPECT_EQ(text("a.txt"), "new a");
  EXPECT_EQ(run({"a.jpg", "a.png", "b.jpg"}, kOverwrite, "txt", true), "E_SIDECAR_SHARED ")
      << "the journal remembers whose the file is";
}

// Readers run ahead of writers.
TEST_F(Sidecar, AFileBelongsToTheFirstThatIsAskedAbout) {
  SidecarOutput output(folder_ / "j", kJob, {.existing = kOverwrite});
  const CaptionItem first = item_of(folder_ / "a.jpg"), second = item_of(folder_ / "a.png");
  EXPECT_EQ(output.wants(first, false), Wanted::kYes);
  EXPECT_EQ(output.wants(second, false), Wanted::kLater) << "the first may yet fail";
  output.write(first, "new a");
  EXPECT_EQ(text("a.txt"), "new a");
  try {
    output.wants(second, false);
    FAIL() << "both have a.txt";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_SIDECAR_SHARED");
  }
}

// In this run and in the next one, which reads the journal.
TEST_F(Sidecar, AFailedImageGivesItsFileToItsNamesake) {
  const CaptionItem first = item_of(folder_ / "a.jpg"), second = item_of(folder_ / "a.png");
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again);
    fs::remove(folder_ / "j");
    fs::remove(folder_ / "a.txt");
    auto output = std::make_unique<SidecarOutput>(folder_ / "j", kJob, SidecarOptions{});
    EXPECT_EQ(output->wants(first, false), Wanted::kYes);
    output->fail(first, {.code = "E_BAD"});
    output->commit();
    if (again) {
      output.reset();
      output = std::make_unique<SidecarOutput>(folder_ / "j", kJob, SidecarOptions{});
    }
    EXPECT_EQ(output->wants(second, false), Wanted::kYes);
    output->write(second, "of the second");
    EXPECT_THROW(output->wants(first, true), Error);
    EXPECT_EQ(text("a.txt"), "of the second");
  }
}

// A folder that may not be written, or is gone, costs its images; a full disk ends the job.
TEST_F(Sidecar, APlaceThatCannotBeWrittenIsOneFailedItem) {
  for (const int error : {EACCES, EPERM, ENOENT}) {
    for (const char* name : {"j", "a.txt", "b.txt"}) fs::remove(folder_ / name);
    const FaultScope fault({.op = IoOp::kRename, .nth = 1, .error = error});
    EXPECT_EQ(run({"a.jpg", "b.jpg"}, kSkip), "E_IO_PLACE ") << error;
    EXPECT_FALSE(fs::exists(folder_ / "a.txt"));
    EXPECT_EQ(text("b.txt"), "new b");
  }
  for (const int error : {ENOSPC, EDQUOT, EIO, EROFS}) {
    for (const char* name : {"j", "a.txt", "b.txt"}) fs::remove(folder_ / name);
    const FaultScope fault({.op = IoOp::kRename, .nth = 1, .error = error});
    EXPECT_THROW(run({"a.jpg", "b.jpg"}, kSkip), Error) << error;
  }
}

// A journal may come with a data set: its records reach no file but the item's own, and "done"
// without a text is not believed.
TEST_F(Sidecar, AInjectedJournalReachesNoOtherFile) {
  fs::create_directory(folder_ / "else");
  const auto plant = [&](const Json& record) {
    fs::remove(folder_ / "j");
    Journal journal(folder_ / "j", kJob, Start::kResume, Sync::kOff, [](const Json&) {});
    journal.add(record);
    journal.commit();
  };
  const std::string victim = (folder_ / "else/x").string();
  for (const char* name : {"else/.x.tmp-backup", "else/.x.tmp-1-1", ".a.txt.tmp-backup"}) {
    put_file(folder_ / name, "kept");
  }
  for (const char* id : {"evil", "a.jpg"}) {
    plant({{"id", id}, {"file", victim}, {"old", "none"}, {"new", "0"}});
    EXPECT_EQ(run({"a.jpg"}, kOverwrite), "") << id;
    EXPECT_EQ(text("a.txt"), "new a");
  }
  plant({{"id", "a.jpg"}, {"file", (folder_ / "a.txt").string()}, {"old", "x"}, {"new", "0"}});
  run({"a.jpg"}, kOverwrite);
  for (const char* name : {"else/.x.tmp-backup", "else/.x.tmp-1-1", ".a.txt.tmp-backup"}) {
    EXPECT_EQ(text(name), "kept") << name;
  }
  fs::remove(folder_ / "a.txt");
  plant({{"id", "a.jpg"}, {"st", "done"}, {"file", (folder_ / "a.txt").string()}});
  run({"a.jpg"}, kSkip);
  EXPECT_EQ(text("a.txt"), "new a");
}

// Sixty thousand skips must not wait in memory for the end.
TEST_F(Sidecar, SkipsAreRecordedOnTheWay) {
  put_file(folder_ / "a.txt", "old");
  SidecarOutput output(folder_ / "j", kJob, {});
  const auto before = fs::file_size(folder_ / "j");
  for (int i = 0; i < 300; ++i) {
    CaptionItem item = item_of(folder_ / ("a" + std::to_string(i) + ".jpg"));
    put_file(folder_ / ("a" + std::to_string(i) + ".txt"), "old");
    EXPECT_EQ(output.wants(item, false), Wanted::kNo);
  }
  EXPECT_GT(fs::file_size(folder_ / "j"), before + 200 * 50);
  EXPECT_LT(output.journal().queued(), 256u);
}

TEST_F(Sidecar, LinksAndFoldersAreNotTouched) {
  put_file(folder_ / "secret", "secret");
  fs::create_symlink(folder_ / "secret", folder_ / "a.txt");
  fs::create_symlink(folder_ / "nowhere", folder_ / "b.txt");
  fs::create_directory(folder_ / "c.txt");
  put_file(folder_ / "d.txt", "\xff");
  put_file(folder_ / "e.txt", std::string(SidecarOutput::kMaxTextBytes + 1, 'x'));
  EXPECT_EQ(run({"a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg", "f.jpg"}, kAppend),
            "E_SIDECAR_LINK E_SIDECAR_LINK E_SIDECAR_LINK E_SIDECAR_TEXT E_IO_SIZE ");
  EXPECT_EQ(text("secret"), "secret");
  EXPECT_FALSE(fs::exists(folder_ / "nowhere"));
  EXPECT_EQ(text("f.txt"), "new f");
}

TEST_F(Sidecar, AImageInAShardHasNoPlace) {
  SidecarOutput output(folder_ / "j", kJob, {});
  CaptionItem item = item_of("");
  item.id = "s.tar/0";
  EXPECT_THROW(output.wants(item, false), Error);
}

TEST_F(Sidecar, TextChangedBySomeoneElseAfterAKillIsNotTouched) {
  put_file(folder_ / "a.txt", "old");
  {
    const FaultScope fault({.op = IoOp::kRename, .nth = 1, .error = EIO});
    EXPECT_THROW(run({"a.jpg"}, kAppend), Error);
  }
  put_file(folder_ / "a.txt", "edited by hand");
  EXPECT_EQ(run({"a.jpg"}, kAppend), "");
  EXPECT_EQ(text("a.txt"), "edited by hand");
  SidecarOutput output(folder_ / "j", kJob, {.existing = kAppend});
  EXPECT_EQ(output.journal().state("a.jpg"), ItemState::kFailed);
  EXPECT_EQ(output.journal().failures().at("a.jpg")["error"]["code"], "E_SIDECAR_CHANGED");
}

// Every call fails once, or it and all later ones fail (a full disk, or as good as a kill there);
// then a clean run. No caption is missing, none is there twice, no temporary is left.
TEST_F(Sidecar, AnyFailingCallLeavesEachCaptionOnce) {
  int faults = 0;
  for (const auto mode : {FaultPlan::Mode::kOnce, FaultPlan::Mode::kSticky}) {
    for (const IoOp op :
         {IoOp::kOpen, IoOp::kStat, IoOp::kRead, IoOp::kWrite, IoOp::kSync, IoOp::kRename}) {
      for (std::uint64_t nth = 1;; ++nth) {
        for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove(entry.path());
        put_file(folder_ / "a.txt", "old a");
        put_file(folder_ / "b.txt", "old b");
        bool hit = false;
        {
          const FaultScope fault({.op = op, .nth = nth, .error = EIO, .mode = mode});
          try {
            run({"a.jpg", "b.jpg", "c.jpg"}, kAppend);
          } catch (const Error&) {
          }
          hit = fault.hits() > 0;
        }
        if (!hit) break;
        ++faults;
        run({"a.jpg", "b.jpg", "c.jpg"}, kAppend, "txt", true);
        SCOPED_TRACE(static_cast<int>(op) * 1000 + static_cast<int>(nth));
        ASSERT_EQ(text("a.txt"), "old a new a");
        ASSERT_EQ(text("b.txt"), "old b new b");
        ASSERT_EQ(text("c.txt"), "new c");
        ASSERT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 4);
      }
    }
  }
  EXPECT_GT(faults, 60);
}

// A kill leaves a temporary that no destructor removes; the next run does, and only that.
TEST_F(Sidecar, TemporariesOfAKilledRunGo) {
  {
    const FaultScope fault({.op = IoOp::kRename, .nth = 1, .error = EIO});
    EXPECT_THROW(run({"a.jpg"}, kAppend), Error);
  }
  put_file(folder_ / ".a.txt.tmp-1-1", "half");
  put_file(folder_ / ".other.txt.tmp-1-1", "not ours");
  EXPECT_EQ(run({"a.jpg"}, kAppend), "");
  EXPECT_FALSE(fs::exists(folder_ / ".a.txt.tmp-1-1"));
  EXPECT_TRUE(fs::exists(folder_ / ".other.txt.tmp-1-1"));
}

}  // namespace
}  // namespace tessera::sidecar_test
