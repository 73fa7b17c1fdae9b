// Whose a file is that stands where one of ours belongs: texts by the intents that were recorded
// before they got their names, torn files by what they are torn from, all others are somebody's.
#include "engine/core/io_watch.h"
#include "tests/support/fault_scope.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::intents_test {
namespace {

namespace fs = std::filesystem;

class IntentsTest : public ::testing::Test {
 protected:
  fs::path out(const std::string& name) const { return folder_.out() / name; }
  fs::path journal() const { return out(kStateFolder) / journal_name(1, 1); }
  std::unique_ptr<BatchStore> open(const StoreOptions& options = {}) const {
    return std::make_unique<BatchStore>(folder_.out(), items_, kStoreOptions, kStoreModel, options);
  }
  // Item a with another text next to it.
  std::vector<OutputFile> with_text(const std::string& text) const {
    std::vector<OutputFile> files = files_of(items_[0]);
    files[0].bytes = text;
    return files;
  }
  // The run ends when the n-th file would get its name.
  void end_at_rename(std::uint64_t nth, const std::string& text, const StoreOptions& options = {}) {
    const auto store = open(options);
    const FaultScope fault({.op = IoOp::kRename, .nth = nth, .error = EIO});
    EXPECT_THROW(store->commit(items_[0], with_text(text), 0, kNobodys), Error);
    EXPECT_EQ(fault.hits(), 1u);
  }
  // What the error of putting item a down found, "" for none.
  std::string refusal(const std::string& text, const StoreOptions& options = {}) {
    try {
      open(options)->commit(items_[0], with_text(text), 0, kNobodys);
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_OUTPUT_EXISTS");
      EXPECT_EQ(error.exit_code(), 1);
      return error.info().found;
    }
    return "";
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(3);
};

TEST_F(IntentsTest, ATextOfARunThatEndedIsOurs) {
  end_at_rename(2, "of the first run");
  ASSERT_EQ(get_file(out("a.txt")), "of the first run");
  ASSERT_FALSE(fs::exists(out("a.png")));
  // The second run announces another text over the first, and ends before it is there.
  end_at_rename(1, "of the second run");
  ASSERT_EQ(get_file(out("a.txt")), "of the first run");
  EXPECT_EQ(refusal("of the third run"), "");
  EXPECT_EQ(get_file(out("a.txt")), "of the third run");
}

TEST_F(IntentsTest, AnIntentIsForItemsWithMoreThanAImage) {
  run_store(folder_.out(), items_);
  const std::vector<std::string> lines = lines_of(journal());
  ASSERT_EQ(lines.size(), 5u) << "header, intent, three records";
  const Json intent = Json::parse(lines[1]);
  EXPECT_EQ(intent.at("intent"), "a");
  ASSERT_EQ(intent.at("files").size(), 3u);
  EXPECT_EQ(intent.at("files")[0].at("p"), "a.txt");
  EXPECT_TRUE(intent.at("files")[0].at("old").is_null());
  EXPECT_EQ(intent.at("files")[2].at("new"), Json::parse(lines[2]).at("files")[2].at("sha256"));
}

TEST_F(IntentsTest, WhatStoodThereBeforeIsStillAStrangers) {
  fs::create_directories(folder_.out());
  put_file(out("a.txt"), "mine");
  end_at_rename(1, "ours", {.overwrite = true});
  ASSERT_EQ(get_file(out("a.txt")), "mine");
  EXPECT_EQ(refusal("ours"), "another file");
  EXPECT_EQ(get_file(out("a.txt")), "mine");
  EXPECT_EQ(refusal("ours", {.overwrite = true}), "");
}

TEST_F(IntentsTest, WhatSomebodyChangedSinceFails) {
  end_at_rename(2, "ours");
  put_file(out("a.txt"), "ours, and a word of mine");
  EXPECT_EQ(refusal("ours"), "a file that somebody else changed");
  EXPECT_EQ(get_file(out("a.txt")), "ours, and a word of mine");
}

// A text whose image is gone is known by its record, though nobody can tell it by its bytes.
TEST_F(IntentsTest, ATextOfADamagedItemIsKnownByItsRecord) {
  run_store(folder_.out(), items_);
  fs::remove(out("a.png"));
  EXPECT_EQ(refusal("another text"), "");
  fs::remove(out("a.png"));
  put_file(out("a.txt"), "mine by now!");
  EXPECT_EQ(refusal("a third text"), "another file");
}

TEST_F(IntentsTest, AllNamesAreLookedAtBeforeTheFirstIsTaken) {
  fs::create_directories(folder_.out());
  put_file(out("a.png"), "mine");
  EXPECT_EQ(refusal("ours"), "another file");
  EXPECT_EQ(folder_.outputs().size(), 1u) << "no text was put next to a stranger's image";
  EXPECT_EQ(lines_of(journal()).size(), 1u) << "and none announced";
}

// Somebody takes a name after it was looked at.
class Intruder final : public IoWatcher {
 public:
  explicit Intruder(std::string name) : name_(std::move(name)) { installed_watcher().store(this); }
  ~Intruder() override { installed_watcher().store(nullptr); }
  void before(const IoChange& change) override {
    if (change.op == IoOp::kRename && change.to->filename() == name_) put_file(*change.to, "mine");
  }

 private:
  std::string name_;
};

TEST_F(IntentsTest, ANameThatIsTakenMeanwhileIsNotReplaced) {
  const Intruder intruder("a.png");
  EXPECT_EQ(refusal("ours"), "a file that somebody else changed");
  EXPECT_EQ(get_file(out("a.png")), "mine");
}

// What cannot be read is nobody's to replace, and it is this item that fails.
TEST_F(IntentsTest, UnreadableFilesFailTheirItem) {
  fs::create_directories(folder_.out());
  put_file(out("a.png"), "");
  fs::resize_file(out("a.png"), (std::uintmax_t{1} << 30) + 1);  // with no byte on disk
  EXPECT_NE(refusal("ours").find("cannot be read"), std::string::npos);
  put_file(out("a.png"), "mine");
  const auto store = open();
  const FaultScope fault({.op = IoOp::kOpen, .nth = 1, .error = EACCES});
  try {
    store->commit(items_[0], files_of(items_[0]), 0, kNobodys);
    FAIL() << "a file that cannot be opened was replaced";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_OUTPUT_EXISTS");
    EXPECT_NE(error.info().found.find("Permission denied"), std::string::npos);
  }
}

// Without syncs a power cut leaves beginnings and zeros of what was written.
TEST_F(IntentsTest, FilesTornWithoutSyncsAreHealed) {
  const StoreOptions unsynced{.sync = Sync::kOff};
  const auto whole = whole_outputs(items_);
  for (const bool recorded : {true, false}) {
    for (const char* name : {"a.txt", "a.json", "a.png", "b.png"}) {
      const std::string bytes = whole.at(name);
      for (const std::string& torn :
           {std::string(), bytes.substr(0, bytes.size() / 2), bytes.substr(0, bytes.size() - 1),
            bytes.substr(0, 3) + std::string(bytes.size() - 4, '\0')}) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(torn.size()));
        folder_.clear();
        run_store(folder_.out(), items_, nullptr, unsynced);
        if (!recorded) {  // records that were never on the disk
          const std::string text = get_file(journal());
          put_file(journal(), text.substr(0, text.find("{\"n\":2,")));
        }
        put_file(out(name), torn);
        ASSERT_GT(run_store(folder_.out(), items_, nullptr, unsynced), 0);
        ASSERT_EQ(folder_.outputs(), whole);
      }
    }
  }
  // Somebody's file is none of that.
  put_file(out("b.png"), "mine");
  EXPECT_THROW(run_store(folder_.out(), items_, nullptr, unsynced), Error);
  // And with syncs nothing of ours is ever torn.
  folder_.clear();
  run_store(folder_.out(), items_);
  put_file(out("b.png"), whole.at("b.png").substr(0, 5));
  EXPECT_THROW(run_store(folder_.out(), items_), Error);
}

TEST_F(IntentsTest, TemporariesOfLongNamesGo) {
  items_[1].name = std::string(196, 'n') + ".png";
  const std::string text = std::string(196, 'n') + ".fastv.txt";
  const StoreOptions options{.next_to = {".fastv.txt"}};
  open(options);
  put_file(out("." + text.substr(0, 200) + ".tmp-7-1"), "half");
  put_file(out("." + items_[1].name + ".tmp-7-2"), "half");
  put_file(out(kStateFolder) / ("." + journal_name(1, 1) + ".tmp-7-3"), "half");
  put_file(out(kStateFolder) / ("." + journal_name(2, 2) + ".tmp-7-3"), "another shard's");
  EXPECT_EQ(open(options)->temporaries_removed(), 3u);
  EXPECT_FALSE(fs::exists(out("." + text.substr(0, 200) + ".tmp-7-1")));
}

}  // namespace
}  // namespace tessera::intents_test
