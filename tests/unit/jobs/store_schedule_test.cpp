// Longer jobs over the real store by seeded lots: two to four workers on two shards, items that
// fail, kills at any change, power cuts that lose any of what is not synced, restarts. A failure
// prints one seed; TESSERA_SEED=N runs that one, TESSERA_SCHEDULES=N so many. Broken orders of the
// same steps must be caught.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "apps/jobs/merge.h"
#include "apps/runtime/sha256.h"
#include "tests/support/random_disk.h"
#include "tests/support/random_scheduler.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::store_schedule_test {
namespace {

// Whether the locks of journals keep anybody out in this program.
std::atomic<bool>& locks_hold() {
  static std::atomic<bool> hold{true};
  return hold;
}

// How many schedules are under way: waits cost nothing meanwhile, other tests of the program wait as ever.
std::atomic<int> schedules{0};
struct FreeWaits {
  FreeWaits() { ++schedules; }
  ~FreeWaits() { --schedules; }
};

}  // namespace
}  // namespace tessera::store_schedule_test

// In place of the C library's: a wait costs nothing here, the scheduler's next turn follows.
extern "C" int usleep(useconds_t microseconds) {
  if (tessera::store_schedule_test::schedules > 0) return 0;
  const timespec time{static_cast<time_t>(microseconds / 1000000), static_cast<long>(microseconds % 1000000) * 1000};
  return ::nanosleep(&time, nullptr);
}
extern "C" int flock(int fd, int operation) noexcept {
  if (!tessera::store_schedule_test::locks_hold().load()) {
    char path[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const bool known = ::readlink(link.c_str(), path, sizeof path - 1) > 0;
    if (known && std::string_view(path).ends_with(".jnl")) return 0;
  }
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

namespace tessera::store_schedule_test {
namespace {

namespace fs = std::filesystem;
using Kind = DiskStep::Kind;

constexpr std::uint32_t kShards = 2;

enum class Break : std::uint8_t {
  kNothing,
  kFileSync,
  kFolderSync,
  kRecordSync,
  kRecordFirst,
  kCut,
  kLock
};

bool is_journal(const std::string& path) { return path.ends_with(".jnl"); }
bool is_output(const std::string& path) {
  return path.starts_with("out/") && !path.starts_with("out/.tessera");
}

// What the disk would have seen of the same steps in a broken order.
void break_order(Break how, DiskTrace& trace, const std::vector<std::size_t>& owners) {
  const auto dropped = [how](const DiskStep& step) {
    return (how == Break::kFileSync && step.kind == Kind::kSyncFile && is_output(step.path)) ||
           (how == Break::kFolderSync && step.kind == Kind::kSyncFolder && step.path == "out") ||
           (how == Break::kRecordSync && step.kind == Kind::kSyncFile && is_journal(step.path)) ||
           (how == Break::kCut && step.kind == Kind::kCut && is_journal(step.path));
  };
  std::erase_if(trace, dropped);
  if (how != Break::kRecordFirst) return;
  // Each worker's record and its sync take the place of the rename before them.
  for (std::size_t worker = 0; worker < 4; ++worker) {
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < trace.size(); ++i) {
      if (owners[i] == worker) own.push_back(i);
    }
    constexpr std::size_t kNone = ~std::size_t{0};
    std::size_t renamed = kNone;
    for (std::size_t at = 0; at + 1 < own.size(); ++at) {
      const DiskStep& step = trace[own[at]];
      if (step.kind == Kind::kHeard) renamed = kNone;
      if (step.kind == Kind::kRename && is_output(step.path)) renamed = at;
      if (step.kind != Kind::kWrite || !is_journal(step.path) || renamed == kNone) continue;
      for (std::size_t moved = 0; moved < 2; ++moved) {
        for (std::size_t i = at + moved; i > renamed + moved; --i) {
          std::swap(trace[own[i]], trace[own[i - 1]]);
        }
      }
      renamed = kNone;
    }
  }
}

struct Violations {
  std::uint64_t torn = 0, false_done = 0, lost = 0, twice = 0, stuck = 0;
  std::uint64_t reopened = 0;  // not in the sum: a shard was found finished, a power cut undid it
  std::uint64_t sum() const { return torn + false_done + lost + twice + stuck; }
};

class Story {
 public:
  Story(Break how, std::uint64_t seed) : lot_(seed), how_(how), seed_(seed) {}

  // Trouble at random, then a quiet end.
  void tell() {
    locks_hold().store(how_ != Break::kLock);
    begin();
    const int days = 1 + static_cast<int>(lot_() % 3);
    for (int day = 0; day < days && bad.sum() == 0; ++day) {
      work(true);
      if (lot_() % 2 == 0) cut_power();
      check();
    }
    if (bad.sum() == 0) finish();
    scheduler_.reset();
    locks_hold().store(true);
  }

  Violations bad;
  std::string first_problem, print;  // `print`: of all steps and lots
  std::uint64_t kills = 0, cuts = 0, refused = 0, failures = 0, steps = 0;

 private:
  void begin() {
    items_ = small_job(2 + static_cast<int>(lot_() % 11));
    whole_ = whole_outputs(items_);
    // The folders are there and durable: see AKillAndThenAPowerCut.
    start_ = {.folders = {"out", "out/.tessera"}};
    start_.put_into(folder_.root());
    scheduler_ = std::make_unique<RandomScheduler>(folder_.root(), lot_);
  }

  void problem(std::uint64_t& count, const std::string& what) {
    ++count;
    if (first_problem.empty()) first_problem = "seed " + std::to_string(seed_) + ": " + what;
  }

  // One run of a shard by one worker.
  void generate(std::uint32_t shard, bool trouble) {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel,
                     {.shard = {shard, kShards}, .next_to = {".json", ".txt"}});
    for (const std::size_t index : store.wanted(true)) {
      const SettledItem& item = items_[index];
      if (heard_.contains(item.item.id)) problem(bad.twice, item.item.id + " is generated again");
      if (trouble && lot_() % 8 == 0) {
        store.fail(item, {.code = "E_X", .expected = "an image", .found = "none"});
        ++failures;
        continue;
      }
      store.commit(item, files_of(item), 0.5, kNobodys);
      heard_.insert(item.item.id);
      scheduler_->heard(item.item.id);
    }
    const BatchStore::Totals totals = store.totals();
    if (totals.done == totals.total) scheduler_->heard("shard " + std::to_string(shard));
  }

  void work(bool trouble) {
    std::vector<RandomScheduler::Worker> workers;
    const std::size_t count = trouble ? 2 + lot_() % 3 : kShards;
    for (std::size_t i = 0; i < count; ++i) {
      const auto shard = static_cast<std::uint32_t>((trouble ? lot_() : i) % kShards + 1);
      const bool dies = trouble && lot_() % 2 == 0;
      workers.push_back(
          {[this, shard, trouble] { generate(shard, trouble); }, dies ? 1 + lot_() % 60 : 0});
    }
    for (const RandomScheduler::End& end : scheduler_->run(std::move(workers))) {
      if (end.killed) ++kills;
      if (end.error.empty()) continue;
      if (trouble && end.error.starts_with("E_IO_LOCKED")) {
        ++refused;
      } else {
        problem(bad.stuck, end.error);
      }
    }
  }

  // Power goes before some step since the last cut; the disk shows one of its images.
  void cut_power() {
    ++cuts;
    DiskTrace trace = scheduler_->trace();
    break_order(how_, trace, scheduler_->owners());
    const std::size_t at = lot_() % (trace.size() + 1);
    const DiskImage image = RandomDisk(start_, trace, at).draw(lot_);
    note_print();
    scheduler_.reset();
    heard_ = heard_before_;
    for (std::size_t i = 0; i < at; ++i) {
      if (trace[i].kind == Kind::kHeard) heard_.insert(trace[i].path);
    }
    heard_before_ = heard_;
    start_ = image;
    image.put_into(folder_.root());
    scheduler_ = std::make_unique<RandomScheduler>(folder_.root(), lot_);
  }

  void note_print() {
    steps += scheduler_->trace().size();
    for (const DiskStep& step : scheduler_->trace()) {
      print += std::to_string(static_cast<int>(step.kind)) +
               step.path.substr(0, std::min(step.path.find(".tmp-"), step.path.size())) + step.data;
    }
    print = sha256_hex(print + std::to_string(lot_()));
  }

  // What must hold whenever nobody works.
  void check() {
    std::map<std::string, std::string> files;
    if (fs::exists(folder_.out())) files = folder_.outputs();
    for (const auto& [name, data] : files) {
      const auto known = whole_.find(name);
      if (known != whole_.end() && data != known->second) problem(bad.torn, name + " is torn");
    }
    std::set<std::string> done;
    for (std::uint32_t shard = 1; shard <= kShards; ++shard) {
      const fs::path journal = folder_.out() / kStateFolder / journal_name(shard, kShards);
      if (!fs::exists(journal)) continue;
      read_journal(journal, [&](const Json& fields) {
        ItemRecord record;
        const std::string id = record_of(fields, record);
        if (id.empty() || record.state != ItemState::kDone) return;
        for (const RecordedFile& file : record.files) {
          if (!files.contains(file.name)) problem(bad.false_done, id + " is not done");
        }
        if (!done.insert(id).second) problem(bad.twice, id + " is recorded twice");
      });
    }
    for (const std::string& id : heard_) {
      if (!id.starts_with("shard ") && !done.contains(id)) {
        problem(bad.lost, id + " was called done");
      }
    }
    for (const SettledItem& item : items_) {
      const std::string id = item.item.id;
      const std::string shard = "shard " + std::to_string(shard_of(id, kShards));
      if (heard_.contains(shard) && !done.contains(id)) ++bad.reopened;
    }
  }

  // Everything gets done, once; then nothing is left to do, and a merge has every item.
  void finish() {
    work(false);
    check();
    note_print();
    if (folder_.outputs() != whole_) problem(bad.stuck, "other files at the end");
    const std::size_t before = scheduler_->trace().size();
    work(false);
    for (std::size_t i = before; i < scheduler_->trace().size(); ++i) {
      if (is_change(scheduler_->trace()[i])) problem(bad.stuck, "a second run writes");
    }
    scheduler_.reset();
    try {
      const std::vector<fs::path> folders = {folder_.out()};
      const MergeReport report = merge_folders(folders, folder_.out());
      if (report.done != items_.size()) problem(bad.stuck, "not all items are merged");
    } catch (const Error& error) {
      problem(bad.stuck, error.what());
    }
  }

  FreeWaits free_waits_;
  StoreFolder folder_;
  std::mt19937_64 lot_;
  Break how_;
  std::uint64_t seed_;
  std::vector<SettledItem> items_;
  std::map<std::string, std::string> whole_;
  DiskImage start_;  // of the disk at the last power cut
  std::set<std::string> heard_, heard_before_;
  std::unique_ptr<RandomScheduler> scheduler_;
};

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(StoreSchedules, NoScheduleLosesAnything) {
  const std::uint64_t only = number_from("TESSERA_SEED", 0);
  const std::uint64_t count = only != 0 ? 1 : number_from("TESSERA_SCHEDULES", 500);
  std::uint64_t kills = 0, cuts = 0, refused = 0, failures = 0, steps = 0, reopened = 0;
  for (std::uint64_t i = 1; i <= count; ++i) {
    Story story(Break::kNothing, only != 0 ? only : i);
    story.tell();
    ASSERT_EQ(story.bad.sum(), 0u) << story.first_problem;
    kills += story.kills;
    cuts += story.cuts;
    refused += story.refused;
    failures += story.failures;
    steps += story.steps;
    reopened += story.bad.reopened > 0 ? 1 : 0;
  }
  std::printf(
      "%llu schedules, %llu changes: %llu kills, %llu power cuts, %llu refused, %llu items failed "
      "at first; a finished shard was pending again in %llu\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(steps),
      static_cast<unsigned long long>(kills), static_cast<unsigned long long>(cuts),
      static_cast<unsigned long long>(refused), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(reopened));
  if (only != 0) return;
  EXPECT_GT(kills, count);
  EXPECT_GT(cuts, count / 2);
  EXPECT_GT(refused, 0u);
}

TEST(StoreSchedules, ASeedTellsOneStory) {
  std::set<std::string> prints;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Story one(Break::kNothing, seed), two(Break::kNothing, seed);
    one.tell();
    two.tell();
    EXPECT_EQ(one.print, two.print) << seed;
    prints.insert(one.print);
  }
  EXPECT_EQ(prints.size(), 10u);
}

struct Aftermath {
  std::uint64_t disks = 0, reopened = 0, bare = 0;
};

// One worker is killed at every change in turn, the next run ends well, then power goes.
Aftermath kill_then_cut(const DiskImage& start) {
  const FreeWaits free_waits;
  Aftermath out;
  bool killed = true;
  for (std::uint64_t dies_at = 1; killed; ++dies_at) {
    const StoreFolder folder;
    const std::vector<SettledItem> items = small_job(2);
    std::mt19937_64 lot(dies_at);
    start.put_into(folder.root());
    DiskTrace trace;
    {
      RandomScheduler scheduler(folder.root(), lot);
      const auto body = [&] { run_store(folder.out(), items); };
      killed = scheduler.run({{body, dies_at}}).front().killed;
      scheduler.run({{body, 0}});
      trace = scheduler.trace();
    }
    const RandomDisk disk(start, trace, trace.size());
    for (int i = 0; i < 5; ++i) {
      ++out.disks;
      const DiskImage image = disk.draw(lot);
      image.put_into(folder.root());
      const bool there = image.folders.contains("out");
      if (!there) ++out.bare;
      for (const auto& [name, bytes] : whole_outputs(items)) {
        EXPECT_TRUE(!there || get_file(folder.out() / name) == bytes) << dies_at << " " << name;
      }
      if (run_store(folder.out(), items) > 0 && there) ++out.reopened;
      EXPECT_EQ(run_store(folder.out(), items), 0) << dies_at;
    }
  }
  return out;
}

// What a kill left unsynced, the next run syncs before it believes it: the last record of the
// journal, and the name of the output folder. Without the first a shard whose next run finds
// nothing to do would be pending again after a power cut, without the second its folder could be
// gone.
TEST(StoreSchedules, AKillAndThenAPowerCut) {
  const Aftermath with = kill_then_cut({.folders = {"out", "out/.tessera"}});
  const Aftermath without = kill_then_cut({});
  const auto print = [](const char* what, const Aftermath& seen) {
    std::printf("%s: %llu disks, %llu lack a record, %llu lack the folder\n", what,
                static_cast<unsigned long long>(seen.disks),
                static_cast<unsigned long long>(seen.reopened),
                static_cast<unsigned long long>(seen.bare));
  };
  print("the folders are there", with);
  print("the first run makes them", without);
  EXPECT_GT(with.disks, 200u);
  for (const Aftermath& seen : {with, without}) {
    EXPECT_EQ(seen.reopened, 0u);
    EXPECT_EQ(seen.bare, 0u);
  }
}

TEST(StoreSchedules, BrokenOrdersAreCaught) {
  struct Broken {
    const char* name;
    Break how;
  };
  const Broken variants[] = {{"without the sync of files", Break::kFileSync},
                             {"without the sync of the folder", Break::kFolderSync},
                             {"without the sync of the journal", Break::kRecordSync},
                             {"the record before the rename", Break::kRecordFirst},
                             {"a torn end of the journal stays", Break::kCut},
                             {"without the locks of shards", Break::kLock}};
  for (const Broken& variant : variants) {
    std::string caught;
    std::uint64_t seed = 0;
    while (caught.empty() && seed < 2000) {
      Story story(variant.how, ++seed);
      story.tell();
      caught = story.first_problem;
    }
    std::printf("%-32s %s\n", variant.name, caught.c_str());
    EXPECT_FALSE(caught.empty()) << variant.name;
  }
}

}  // namespace
}  // namespace tessera::store_schedule_test
