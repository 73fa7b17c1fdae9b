// A journal that is damaged in the middle: kept as it is, written anew with what is whole in it,
// and outputs that prove whose they are stand in for records that were lost. At every end of the
// process in between, and for whoever reads it meanwhile.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "apps/jobs/content_sum.h"
#include "apps/jobs/journal_lines.h"
#include "apps/jobs/merge.h"
#include "tests/support/killer.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::recovery_test {
namespace {

namespace fs = std::filesystem;

class Recovery : public ::testing::Test {
 protected:
  fs::path out(const std::string& name) const { return folder_.out() / name; }
  fs::path journal() const { return out(kStateFolder) / journal_name(1, 1); }
  fs::path kept(int number) const {
    return fs::path(journal().string() + ".bad-" + std::to_string(number));
  }
  std::unique_ptr<BatchStore> open(const StoreOptions& options = {}) const {
    return std::make_unique<BatchStore>(folder_.out(), items_, kStoreOptions, kStoreModel, options);
  }
  // Knows the image of any item but a by its bytes.
  StoreOptions recognising() {
    StoreOptions options;
    options.recognise = [this](const SettledItem& item, const fs::path& folder) {
      asked_ += item.item.id;
      const std::vector<OutputFile> files = files_of(item);
      const fs::path path = folder / item.name;
      const bool ours = files.size() == 1 && fs::exists(path) && get_file(path) == files[0].bytes;
      return ours ? files : std::vector<OutputFile>();
    };
    return options;
  }
  void expect_whole_chain() const {
    EXPECT_EQ(read_journal(journal(), [](const Json&) {}).bytes, 0u);
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(6);
  std::string asked_;
};

TEST_F(Recovery, RecordsAfterTheDamageAreTakenOver) {
  run_store(folder_.out(), items_);
  const ItemRecords before = read_job_report(folder_.out()).records;
  const std::string damaged = damage_line(journal(), "\"id\":\"c\"");
  {
    const auto store = open();
    EXPECT_EQ(store->mended().kept_as, kept(1).filename().string());
    EXPECT_EQ(store->mended().records, 6u) << "an intent and five items";
    EXPECT_EQ(store->recognised(), 0u);
    EXPECT_EQ(store->cut_bytes(), 0u);
    EXPECT_EQ(store->wanted(false), (std::vector<std::size_t>{2}));
  }
  EXPECT_EQ(get_file(kept(1)), damaged);
  expect_whole_chain();
  EXPECT_TRUE(open()->mended().kept_as.empty()) << "once";
  EXPECT_EQ(run_store(folder_.out(), items_), 1);
  EXPECT_TRUE(read_job_report(folder_.out()).records == before);
  // Again, elsewhere: the next free name.
  const std::string again = damage_line(journal(), "\"id\":\"e\"");
  EXPECT_EQ(run_store(folder_.out(), items_), 1);
  EXPECT_EQ(get_file(kept(1)), damaged);
  EXPECT_EQ(get_file(kept(2)), again);
}

// Without its first line a journal says no job: it is refused, and kept when all begins anew.
TEST_F(Recovery, ADamagedFirstLine) {
  run_store(folder_.out(), items_);
  std::string text = get_file(journal());
  text[3] = '~';
  put_file(journal(), text);
  EXPECT_THROW(open(), Error);
  EXPECT_EQ(get_file(journal()), text);
  const auto store = open({.start = Start::kAnew});
  EXPECT_EQ(get_file(kept(1)), text);
  EXPECT_EQ(store->wanted(false).size(), items_.size());
}

// An item failed, was done later, and the later record is lost: its image proves it.
TEST_F(Recovery, AnOlderFailureIsNotTheLastWord) {
  {
    const auto store = open();
    store->fail(items_[1], {.code = "E_X", .expected = "an image", .found = "none"});
  }
  run_store(folder_.out(), items_, nullptr, {}, true);
  std::vector<std::string> lines = lines_of(journal());
  const auto done = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("\"id\":\"b\"") != std::string::npos &&
           line.find("\"done\"") != std::string::npos;
  });
  ASSERT_NE(done, lines.end());
  (*done)[done->size() / 2] ^= 1;
  std::string text;
  for (const std::string& line : lines) text += line;
  put_file(journal(), text);
  const auto store = open(recognising());
  EXPECT_EQ(store->recognised(), 1u);
  EXPECT_EQ(store->totals().done, items_.size());
  EXPECT_EQ(store->totals().failed, 0u);
}

// --overwrite replaces files, never a folder, and the folder costs one item.
TEST_F(Recovery, AFolderInThePlaceOfAImage) {
  fs::create_directories(out(items_[2].name));
  const auto store = open({.overwrite = true});
  try {
    store->commit(items_[2], files_of(items_[2]), 0.5, kNobodys);
    FAIL() << "a folder was replaced";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_OUTPUT_EXISTS");
    EXPECT_EQ(error.info().kind, ErrorKind::kGeneral);
  }
}

// Any bytes overwritten, lines lost, doubled or swapped: what is believed was written, in its
// order, nothing whole is lost, and the job ends as it would have.
TEST_F(Recovery, AnyDamage) {
  run_store(folder_.out(), items_);
  const std::vector<std::string> lines = lines_of(journal());
  const auto whole = whole_outputs(items_);
  std::mt19937 lot(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> changed = lines;
    const std::size_t changes = 1 + lot() % 2;
    bool reordered = false;  // numbers go up: what stands in front of a greater one is not believed
    for (std::size_t count = changes; count > 0; --count) {
      const std::size_t at = 1 + lot() % (changed.size() - 1);
      switch (lot() % 4) {
        case 0:
          changed[at][lot() % changed[at].size()] = static_cast<char>(lot());
          break;
        case 1:
          changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        case 2:
          changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(at), changed[lot() % at]);
          break;
        default:
          std::swap(changed[at], changed[1 + lot() % (changed.size() - 1)]);
          reordered = true;
      }
    }
    std::string text;
    for (const std::string& line : changed) text += line;
    put_file(journal(), text);
    const auto generated = static_cast<std::size_t>(run_store(folder_.out(), items_));
    ASSERT_LE(generated, reordered ? items_.size() : changes) << round;
    ASSERT_EQ(folder_.outputs(), whole) << round;
    expect_whole_chain();
    ASSERT_EQ(run_store(folder_.out(), items_), 0) << round;
  }
}

// A line whose checksum is right and whose fields have other types is no record.
TEST_F(Recovery, TypesMustHold) {
  run_store(folder_.out(), items_);
  std::vector<std::string> lines = lines_of(journal());
  std::uint32_t sum = 7;
  lines[3] = journal_lines::seal_line({{"id", "b"}, {"st", "done"}, {"files", 5}}, 3, sum);
  lines[5] = journal_lines::seal_line({{"id", "d"}, {"st", "done"}, {"files", 5}}, 5, sum);
  put_file(journal(), lines[0] + lines[1] + lines[2] + lines[3] + lines[4] + lines[5] + lines[6]);
  const auto store = open();
  EXPECT_EQ(store->mended().records, 4u);
  EXPECT_EQ(store->wanted(false), (std::vector<std::size_t>{1, 3, 5}));
}

TEST_F(Recovery, ATornEndIsCutAndNotKept) {
  run_store(folder_.out(), items_);
  const std::string text = get_file(journal());
  put_file(journal(), text.substr(0, text.size() - 30));
  const auto store = open();
  EXPECT_GT(store->cut_bytes(), 0u);
  EXPECT_TRUE(store->mended().kept_as.empty());
  EXPECT_FALSE(fs::exists(kept(1)));
}

TEST_F(Recovery, ImagesStandInForRecordsThatWereLost) {
  run_store(folder_.out(), items_);
  const ItemRecords before = read_job_report(folder_.out()).records;
  for (const char* id : {"b", "c", "d"}) damage_line(journal(), "\"id\":\"" + std::string(id));
  put_file(out("d.png"), "somebody's");
  {
    const auto store = open(recognising());
    EXPECT_EQ(store->recognised(), 2u);
    EXPECT_EQ(asked_, "bcd") << "of items without a record only";
    EXPECT_EQ(store->wanted(false), (std::vector<std::size_t>{3}));
  }
  EXPECT_EQ(get_file(out("d.png")), "somebody's");
  fs::remove(out("d.png"));
  asked_.clear();
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, recognising()), 1);
  EXPECT_EQ(asked_, "") << "a whole journal is believed, and no output drafted from";
  EXPECT_TRUE(read_job_report(folder_.out()).records == before);
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, {.verify = true}), 0);
}

// The intent has the hashes of all files of its item.
TEST_F(Recovery, AnIntentStandsInForItsRecord) {
  run_store(folder_.out(), items_);
  damage_line(journal(), "\"id\":\"a\"");
  const std::string damaged = get_file(journal());
  EXPECT_EQ(open()->recognised(), 1u);
  EXPECT_EQ(run_store(folder_.out(), items_), 0);
  put_file(journal(), damaged);
  put_file(out("a.json"), "{\"facts\":2}");  // as long
  EXPECT_EQ(open()->recognised(), 0u);
  put_file(journal(), damaged);
  fs::resize_file(out("a.json"), (std::uintmax_t{1} << 30) + 1);  // more than is ever read
  EXPECT_EQ(open()->recognised(), 0u);
}

// Images of before may be another model's.
TEST_F(Recovery, AJobBegunAnewRecognisesNothingByItself) {
  run_store(folder_.out(), items_);
  run_store(folder_.out(), items_, nullptr, {.start = Start::kAnew});
  for (const char* id : {"a", "b"}) damage_line(journal(), "\"id\":\"" + std::string(id));
  const auto store = open(recognising());
  EXPECT_EQ(asked_, "");
  EXPECT_EQ(store->recognised(), 1u) << "a, by its intent of this job";
  EXPECT_EQ(store->wanted(false), (std::vector<std::size_t>{1}));
}

TEST_F(Recovery, StatusTellsItAndMergeRefuses) {
  run_store(folder_.out(), items_);
  damage_line(journal(), "\"id\":\"c\"");
  const ShardReport shard = read_job_report(folder_.out()).shards[0];
  EXPECT_EQ(shard.after_damage, 3u);
  EXPECT_EQ(shard.done, 2u);
  const std::vector<fs::path> folders = {folder_.out()};
  try {
    merge_folders(folders, folder_.out());
    FAIL() << "records were left out";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_JOURNAL");
    EXPECT_EQ(error.info().found, "damage with 3 records after it");
  }
  run_store(folder_.out(), items_);
  EXPECT_EQ(read_job_report(folder_.out()).shards[0].after_damage, 0u);
  EXPECT_EQ(merge_folders(folders, folder_.out()).done, 6u);
}

// Killed around every change that mending and recognising make; what the next start does is the
// same, with one copy of the damaged journal and no temporary.
TEST_F(Recovery, KilledWhileMending) {
  run_store(folder_.out(), items_);
  const fs::path saved = folder_.root() / "saved";
  for (const char* id : {"b", "d"}) damage_line(journal(), "\"id\":\"" + std::string(id));
  const std::string damaged = get_file(journal());
  fs::copy(folder_.out(), saved, fs::copy_options::recursive);
  int kills = 0;
  for (const auto when : {Killer::When::kBefore, Killer::When::kAfter}) {
    for (std::uint64_t nth = 1;; ++nth) {
      SCOPED_TRACE(nth);
      folder_.clear();
      fs::copy(saved, folder_.out(), fs::copy_options::recursive);
      const pid_t child = ::fork();
      if (child == 0) {
        const Killer killer(nth, when, 0);
        open(recognising());
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!WIFSIGNALED(status)) break;
      ++kills;
      ASSERT_EQ(run_store(folder_.out(), items_, nullptr, recognising()), 0);
      ASSERT_EQ(folder_.outputs(), whole_outputs(items_));
      ASSERT_EQ(get_file(kept(1)), damaged);
      ASSERT_FALSE(fs::exists(kept(2)));
      expect_whole_chain();
      for (const auto& entry : fs::directory_iterator(out(kStateFolder))) {
        ASSERT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
      }
    }
  }
  std::printf("killed %d times while mending\n", kills);
  EXPECT_GT(kills, 30);
}

// The lock is on the file that was mended away: who opened it before must not write into it.
TEST_F(Recovery, AJournalThatWasReplacedIsNotWritten) {
  run_store(folder_.out(), items_);
  const fs::path path = journal();
  class Replacer final : public IoWatcher {
   public:
    explicit Replacer(const fs::path& target) : target_(target) { installed_watcher().store(this); }
    ~Replacer() override { installed_watcher().store(nullptr); }
    void after(const IoChange& change) override {
      if (change.op != IoOp::kOpen || *change.path != target_ || done_) return;
      done_ = true;
      const fs::path other = target_.string() + ".other";
      fs::copy_file(target_, other);
      fs::rename(other, target_);
    }

   private:
    fs::path target_;
    bool done_ = false;
  };
  const Replacer replacer(path);
  try {
    open();
    FAIL() << "a file without a name was locked";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_IO_LOCKED");
    EXPECT_EQ(error.exit_code(), 6);
  }
}

}  // namespace
}  // namespace tessera::recovery_test
