// What the store believes, whom it refuses, and what a second process meets; records of shards join
// to the records of one run.
#include <sys/wait.h>

#include <algorithm>
#include <random>

#include "apps/jobs/job_fields.h"
#include "apps/jobs/records.h"
#include "engine/core/io.h"
#include "engine/core/io_watch.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::store_test {
namespace {

namespace fs = std::filesystem;

class Store : public ::testing::Test {
 protected:
  fs::path journal(std::uint32_t shard = 1, std::uint32_t of = 1) const {
    return folder_.out() / kStateFolder / journal_name(shard, of);
  }
  // The code of the error of opening, "" for none.
  std::string refusal(const std::vector<SettledItem>& items, const StoreOptions& options = {},
                      const Json& job = kStoreOptions) {
    try {
      const BatchStore store(folder_.out(), items, job, kStoreModel, options);
    } catch (const Error& error) {
      found_ = error.info().found;
      exit_code_ = error.exit_code();
      return error.info().code;
    }
    return "";
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(6);
  std::string found_;
  int exit_code_ = 0;
};

TEST(Settle, SeedsAndShardsFollowFromIdsAlone) {
  std::vector<JobItem> items;
  for (int i = 0; i < 1000; ++i) {
    JobItem item{.line = 1};
    item.id = "item-" + std::to_string(i);
    item.prompt = "p";
    items.push_back(item);
  }
  const auto settled =
      settle_items(items, {.base_seed = 7}, OutputTemplate("{id}_{seed}.png"), "j");
  std::reverse(items.begin(), items.end());
  const auto reversed =
      settle_items(items, {.base_seed = 7}, OutputTemplate("{id}_{seed}.png"), "j");
  std::map<std::int64_t, int> seeds;
  std::map<std::uint32_t, int> shards;
  for (std::size_t i = 0; i < settled.size(); ++i) {
    EXPECT_TRUE(settled[i].item == reversed[999 - i].item);
    EXPECT_EQ(settled[i].name,
              settled[i].item.id + "_" + std::to_string(settled[i].item.seed.value()) + ".png");
    ++seeds[settled[i].item.seed.value()];
    ++shards[shard_of(settled[i].item.id, 8)];
    EXPECT_GE(settled[i].item.seed, 0);
    EXPECT_LE(settled[i].item.seed, kMaxJobSeed);
  }
  EXPECT_EQ(seeds.size(), 1000u);
  ASSERT_EQ(shards.size(), 8u);
  for (const auto& [shard, count] : shards) {
    EXPECT_GT(count, 80) << shard;
    EXPECT_LT(count, 180) << shard;
  }
  EXPECT_NE(item_seed(0, "a"), item_seed(1, "a"));
}

TEST(Settle, ItemsBeatDefaults) {
  JobItem a{.line = 1}, b{.line = 2};
  a.id = "a";
  b.id = "b";
  a.prompt = b.prompt = "p";
  a.settings.set(setting::kTemperature, 0.5);
  a.seed = 3;
  JobDefaults defaults;
  defaults.fields.settings.set(setting::kTemperature, 2);
  defaults.fields.negative_prompt = "n";
  defaults.fields.seed = 99;  // the base seed is no item's seed
  const auto settled = settle_items(std::vector{a, b}, defaults, OutputTemplate("{id}.png"), "j");
  EXPECT_EQ(settled[0].item.settings.number(setting::kTemperature), 0.5);
  EXPECT_EQ(settled[0].item.seed, 3);
  EXPECT_EQ(settled[1].item.settings.number(setting::kTemperature), 2);
  EXPECT_EQ(settled[1].item.negative_prompt, "n");
  EXPECT_EQ(settled[1].item.seed, item_seed(0, "b"));
}

TEST(Settle, AJobIsOfOneKind) {
  JobItem a{.line = 1}, b{.line = 2};
  a.id = "a";
  b.id = "b";
  a.prompt = b.prompt = "p";
  a.seed = b.seed = 4;
  const auto refused = [&](const JobDefaults& defaults, const char* name) {
    try {
      settle_items(std::vector{a, b}, defaults, OutputTemplate(name), "j");
    } catch (const Error& error) {
      EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
      return error.info().code + " " + error.info().where;
    }
    return std::string();
  };
  a.kind = kVideoKind;
  EXPECT_EQ(refused({}, "{id}.mkv"), "E_JOB_KIND line 2, column 1");
  EXPECT_EQ(refused({}, "{id}.png"), "E_JOB_KIND line 1, column 1");
  b.kind = kImageKind;
  JobDefaults video;
  video.fields.kind = kVideoKind;
  EXPECT_EQ(refused(video, "{id}.mkv"), "E_JOB_KIND line 2, column 1") << "it says what it is";
  b.kind.reset();
  EXPECT_EQ(refused(video, "{id}.mkv"), "");
  b.container = "webm";
  const auto videos = settle_items(std::vector{a, b}, video, OutputTemplate("{id}.mkv"), "j");
  EXPECT_EQ(videos[0].name, "a.mkv");
  EXPECT_EQ(videos[1].name, "b.webm");
  EXPECT_EQ(refused(video, "x{seed}.mkv"), "E_NAME_COLLISION line 2, column 1")
      << "files next to them would be one";
  a.kind.reset();
  EXPECT_EQ(refused({}, "{id}.png"), "E_JOB_KIND line 2, column 1") << "an image has no container";
  b.container.reset();
  for (const char* kind : {kImageKind, kOldImageKind}) {
    const FieldProblem problem = set_job_field(b, *find_job_field("kind"), kind);
    EXPECT_EQ(problem.expected, "") << kind;
    const auto images = settle_items(std::vector{a, b}, {}, OutputTemplate("{id}.png"), "j");
    EXPECT_EQ(job_line(images[1].item).find("kind"), std::string::npos) << kind;
  }
  EXPECT_EQ(set_job_field(b, *find_job_field("kind"), "film").expected,
            "kind as one of image, video")
      << "the old name is not shown";
}

TEST(Settle, NamesMustDiffer) {
  JobItem a{.line = 1}, b{.line = 2};
  a.id = "a";
  b.id = "b";
  a.prompt = b.prompt = "p";
  a.seed = b.seed = 4;
  try {
    settle_items(std::vector{a, b}, {}, OutputTemplate("x{seed}.png"), "j");
    FAIL() << "two images of one name";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_NAME_COLLISION");
    EXPECT_EQ(error.info().where, "line 2, column 1");
    EXPECT_EQ(error.info().found, "\"x4.png\" here and in line 1");
  }
  for (const char* bad : {"{id}.jpg", "d/{id}.png", "../{id}.png", ".{id}.png", "{index}.png",
                          "{id.png", "a}.png", "\033{id}.png", ".png"}) {
    EXPECT_THROW(OutputTemplate{bad}, Error) << bad;
  }
}

TEST_F(Store, AFinishedJobWritesNothing) {
  EXPECT_EQ(run_store(folder_.out(), items_), 6);
  EXPECT_EQ(folder_.outputs(), whole_outputs(items_));
  const std::string before = get_file(journal());
  EXPECT_EQ(run_store(folder_.out(), items_), 0);
  EXPECT_EQ(get_file(journal()), before);
}

TEST_F(Store, OrderChangesNothing) {
  run_store(folder_.out(), items_);
  std::reverse(items_.begin(), items_.end());
  EXPECT_EQ(run_store(folder_.out(), items_), 0) << "the same job";
}

TEST_F(Store, ChangedJobsAreRefusedWithTheDifferences) {
  run_store(folder_.out(), items_);
  auto changed = items_;
  changed[1].item.prompt = "another";
  EXPECT_EQ(refusal(changed), "E_JOB_CHANGED");
  EXPECT_NE(found_.find("item b: prompt: was \"picture b\", is \"another\""), std::string::npos)
      << found_;
  EXPECT_EQ(exit_code_, 2);
  changed = small_job(7);
  EXPECT_EQ(refusal(changed), "E_JOB_CHANGED");
  EXPECT_NE(found_.find("item g is new"), std::string::npos) << found_;
  changed = small_job(5);
  EXPECT_EQ(refusal(changed), "E_JOB_CHANGED");
  EXPECT_NE(found_.find("item f is gone"), std::string::npos) << found_;
  EXPECT_EQ(refusal(items_, {}, {{"decode", "gumbel"}}), "E_JOB_CHANGED");
  EXPECT_NE(found_.find("options.decode: was \"plain\", is \"gumbel\""), std::string::npos);
  EXPECT_EQ(refusal(items_, {.shard = {1, 2}}), "E_JOB_CHANGED");
  EXPECT_NE(found_.find("shards: was 1, is 2"), std::string::npos) << found_;
  EXPECT_EQ(run_store(folder_.out(), items_), 0) << "nothing was touched";
  // Begun anew, also by a job that says much less.
  const Json wordy = {{"decode", "plain"}, {"captions", std::string(300, 'x')}};
  EXPECT_EQ(refusal(items_, {.start = Start::kAnew}, wordy), "");
  EXPECT_EQ(refusal(items_), "E_JOB_CHANGED");
  EXPECT_EQ(refusal(items_, {.start = Start::kAnew}), "");
  // Its own images are no strangers where they are equal.
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, {.start = Start::kAnew}), 6);
}

TEST_F(Store, GoneImagesAreGeneratedAgainAndChangedOnesAreKept) {
  run_store(folder_.out(), items_);
  fs::remove(folder_.out() / "b.png");
  fs::remove(folder_.out() / "a.json");
  {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    ASSERT_EQ(store.damaged().size(), 2u);
    EXPECT_EQ(store.damaged()[0].second, "a.json is gone");
    EXPECT_EQ(store.wanted(false), (std::vector<std::size_t>{0, 1}));
  }
  EXPECT_EQ(run_store(folder_.out(), items_), 2);
  EXPECT_EQ(folder_.outputs(), whole_outputs(items_));

  put_file(folder_.out() / "c.png", "somebody cropped it");
  try {
    run_store(folder_.out(), items_);
    FAIL() << "a changed image was replaced";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_OUTPUT_EXISTS");
    EXPECT_EQ(error.exit_code(), 1);
  }
  EXPECT_EQ(get_file(folder_.out() / "c.png"), "somebody cropped it");
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, {.overwrite = true}), 1);
  EXPECT_EQ(folder_.outputs(), whole_outputs(items_));

  // Equal length, other bytes: only a hash tells.
  std::string bytes = get_file(folder_.out() / "d.png");
  bytes[0] ^= 1;
  put_file(folder_.out() / "d.png", bytes);
  EXPECT_EQ(run_store(folder_.out(), items_), 0);
  const BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {.verify = true});
  ASSERT_EQ(store.damaged().size(), 1u);
  EXPECT_EQ(store.damaged()[0].second, "d.png has other bytes");
}

TEST_F(Store, OrphansAreKnownAndStrangersAreNot) {
  fs::create_directories(folder_.out());
  put_file(folder_.out() / "b.png", files_of(items_[1])[0].bytes);  // equal: an orphan
  EXPECT_EQ(run_store(folder_.out(), items_), 6);
  folder_.clear();
  fs::create_directories(folder_.out());
  put_file(folder_.out() / "b.png", "recognised");
  {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    const auto files = files_of(items_[1]);
    store.commit(items_[1], files, 0, [](const OutputFile& file, std::string_view existing) {
      return file.name == "b.png" && existing == "recognised";
    });
  }
  EXPECT_EQ(get_file(folder_.out() / "b.png"), files_of(items_[1])[0].bytes);
  // Links are never followed or read.
  put_file(folder_.root() / "target", files_of(items_[2])[0].bytes);
  fs::create_symlink(folder_.root() / "target", folder_.out() / "c.png");
  BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
  const auto files = files_of(items_[2]);
  EXPECT_THROW(store.commit(items_[2], files, 0, kNobodys), Error);
  EXPECT_TRUE(fs::is_symlink(folder_.out() / "c.png"));
}

TEST_F(Store, TemporariesOfDeadRunsGoAndOthersStay) {
  fs::create_directories(folder_.out());
  for (const char* name : {".b.png.tmp-77-3", ".a.json.tmp-1-1"}) {
    put_file(folder_.out() / name, "half");
  }
  for (const char* name : {".other.png.tmp-77-3", ".b.png.tmp-x", "b.png.tmp-77-3"}) {
    put_file(folder_.out() / name, "not ours");
  }
  const BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
  EXPECT_EQ(store.temporaries_removed(), 2u);
  EXPECT_EQ(folder_.outputs().size(), 3u);
}

TEST_F(Store, FailedItemsWaitUntilTheyAreWanted) {
  {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    store.fail(items_[3], {.code = "E_X", .expected = "this", .found = "that \033[1m"});
  }
  EXPECT_EQ(run_store(folder_.out(), items_), 5);
  const JobReport report = read_job_report(folder_.out());
  EXPECT_EQ(report.shards[0].done, 5u);
  EXPECT_EQ(report.shards[0].failed, 1u);
  EXPECT_EQ(report.records.at("d").error.find('\033'), std::string::npos);
  EXPECT_EQ(run_store(folder_.out(), items_), 0);
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, {}, true), 1);
  EXPECT_EQ(read_job_report(folder_.out()).shards[0].done, 6u);
}

TEST_F(Store, TwoProcessesOnOneShard) {
  const BatchStore first(folder_.out(), items_, kStoreOptions, kStoreModel, {});
  const double started = monotonic_seconds();
  EXPECT_EQ(refusal(items_), "E_IO_LOCKED");
  EXPECT_EQ(exit_code_, 6);
  EXPECT_LT(monotonic_seconds() - started, 1.0);
}

TEST_F(Store, ForeignAndCutJournals) {
  run_store(folder_.out(), items_);
  const std::string journal_text = get_file(journal());
  put_file(journal(), "no journal at all\n");
  EXPECT_EQ(refusal(items_), "E_JOURNAL");
  // Cut at any byte, flipped at any byte after the header: what is left is believed, the rest is
  // done again, and everything ends well.
  const std::size_t header = journal_text.find('\n') + 1;
  for (std::size_t cut = 0; cut < journal_text.size(); cut += 7) {
    put_file(journal(), std::string_view(journal_text).substr(0, cut));
    run_store(folder_.out(), items_);
    ASSERT_EQ(folder_.outputs(), whole_outputs(items_)) << cut;
    ASSERT_EQ(run_store(folder_.out(), items_), 0) << cut;
  }
  const std::size_t last = journal_text.rfind('\n', journal_text.size() - 2) + 1;
  for (std::size_t at = header; at < journal_text.size(); at += 5) {
    std::string damaged = journal_text;
    damaged[at] ^= 1;
    put_file(journal(), damaged);
    // A flipped line end costs two records; that of an item whose intent is left costs none.
    ASSERT_LE(run_store(folder_.out(), items_), 2) << at;
    ASSERT_EQ(run_store(folder_.out(), items_), 0) << at;
    ASSERT_EQ(folder_.outputs(), whole_outputs(items_)) << at;
    const fs::path kept = journal().string() + ".bad-1";
    const bool after = at + 1 < last;  // a whole record is left over the damage
    ASSERT_EQ(fs::exists(kept), after) << at << ": a torn end is cut, damage is kept";
    if (after) {
      ASSERT_EQ(get_file(kept), damaged);
    }
    fs::remove(kept);
  }
  put_file(folder_.out() / kStateFolder / "items.jsonl", "{\"prompt\":\"x\"}\n");
  EXPECT_EQ(refusal(items_), "E_JOB_STATE");
  put_file(folder_.out() / kStateFolder / "job.json", "{\"schema\":2}");
  EXPECT_EQ(refusal(items_), "E_JSON_RANGE");
  EXPECT_EQ(exit_code_, 2);
}

// A journal of another kind of job, and of batch jobs before they had a kind of their own.
TEST_F(Store, JournalsOfAnotherKindAreRefused) {
  run_store(folder_.out(), items_);
  const Json header = {{"batch", read_begun_job(folder_.out())->digest}, {"shard", 1}, {"of", 1}};
  fs::remove(journal());
  {
    const Journal old(journal(), header, Start::kResume, Sync::kOff, [](const Json&) {});
  }
  const std::string before = get_file(journal());
  EXPECT_EQ(refusal(items_), "E_JOURNAL");
  EXPECT_NE(found_.find("of a batch job of an earlier version"), std::string::npos) << found_;
  EXPECT_EQ(exit_code_, 2);
  EXPECT_THROW(read_job_report(folder_.out()), Error);
  EXPECT_EQ(get_file(journal()), before) << "nothing was changed";
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, {.start = Start::kAnew}), 6);
  EXPECT_EQ(read_job_report(folder_.out()).shards[0].done, 6u);
  // And the other way round.
  try {
    const Journal captions(journal(), header, Start::kResume, Sync::kOff, [](const Json&) {});
    FAIL() << "a batch journal was taken for captions";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_JOURNAL");
    EXPECT_EQ(error.info().expected, "the journal of a captioning job");
  }
}

// Syncs of files and folders while a run lasts.
class SyncCounter final : public IoWatcher {
 public:
  SyncCounter() { installed_watcher().store(this); }
  ~SyncCounter() override { installed_watcher().store(nullptr); }
  void before(const IoChange& change) override { count += change.op == IoOp::kSync ? 1 : 0; }
  int count = 0;
};

TEST_F(Store, WithoutSyncsItIsRecordedAndTheFilesAreTheSame) {
  const auto syncs = [&](Sync sync, std::size_t from = 0) {
    folder_.clear();
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {.sync = sync});
    std::vector<std::size_t> wanted = store.wanted(false);
    for (; from > 0; --from) {
      store.commit(items_[wanted[0]], files_of(items_[wanted[0]]), 0.5, kNobodys);
      wanted.erase(wanted.begin());
    }
    const SyncCounter counter;
    for (const std::size_t index : wanted) {
      store.commit(items_[index], files_of(items_[index]), 0.5, kNobodys);
    }
    return counter.count;
  };
  EXPECT_GE(syncs(Sync::kOn), 6 * 3) << "file, folder and journal of each item";
  EXPECT_TRUE(read_job_report(folder_.out()).shards[0].synced);
  EXPECT_LE(syncs(Sync::kOff), 2) << "that it was without syncs is durable";
  EXPECT_EQ(syncs(Sync::kOff, 1), 0) << "and nothing after it";
  EXPECT_EQ(folder_.outputs(), whole_outputs(items_));
  EXPECT_FALSE(read_job_report(folder_.out()).shards[0].synced);
  const std::string before = get_file(journal());
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, {.sync = Sync::kOff}), 0);
  EXPECT_EQ(get_file(journal()), before) << "nothing to do, nothing written";
}

TEST_F(Store, ShardsJoinToOneRun) {
  run_store(folder_.out(), items_);
  const auto whole = folder_.outputs();
  const ItemRecords records = read_job_report(folder_.out()).records;
  ASSERT_EQ(records.size(), 6u);
  folder_.clear();
  int generated = 0;
  for (const std::uint32_t shard : {2u, 3u, 1u}) {
    generated += run_store(folder_.out(), items_, nullptr, {.shard = {shard, 3}});
  }
  EXPECT_EQ(generated, 6);
  EXPECT_EQ(folder_.outputs(), whole);
  const JobReport report = read_job_report(folder_.out());
  EXPECT_TRUE(report.records == records);
  std::uint64_t total = 0;
  for (const ShardReport& shard : report.shards) {
    EXPECT_TRUE(shard.begun);
    EXPECT_EQ(shard.done, shard.total);
    total += shard.total;
  }
  EXPECT_EQ(total, 6u);
}

ItemRecord made_record(std::mt19937& lot, const std::string& id) {
  ItemRecord record;
  switch (lot() % 3) {
    case 0:
      record.state = ItemState::kDone;
      record.files = {{id + ".png", 5, std::string(64, 'a')}};
      break;
    case 1:
      record.state = ItemState::kFailed;
      record.error = std::string(1, static_cast<char>('p' + lot() % 3));
      break;
    default:
      break;
  }
  return record;
}

// Any split of the records over any number of readers, in any order, with repeats.
TEST(Merge, IsAFunctionOfTheSetOfRecords) {
  std::mt19937 lot(5);
  for (int round = 0; round < 10000; ++round) {
    std::vector<ItemRecords> parts(1 + lot() % 5);
    ItemRecords all;
    for (int i = 0; i < 8; ++i) {
      const std::string id(1, static_cast<char>('a' + lot() % 6));
      const ItemRecord record = made_record(lot, id);
      ItemRecords& part = parts[lot() % parts.size()];
      const ItemRecords one = {{id, record}};
      part = merge_records(part, one);
      if (lot() % 3 == 0) parts.push_back(one);  // a repeat
      all = merge_records(all, one);
    }
    std::shuffle(parts.begin(), parts.end(), lot);
    ItemRecords left, right;
    for (const ItemRecords& part : parts) left = merge_records(left, part);
    for (const ItemRecords& part : parts) right = merge_records(part, right);
    ASSERT_TRUE(left == all) << round;
    ASSERT_TRUE(right == all) << round;
    ASSERT_TRUE(merge_records(all, all) == all) << round;
  }
}

TEST(Merge, ConflictsNameBoth) {
  ItemRecord a, b;
  a.state = b.state = ItemState::kDone;
  a.files = {{"x.png", 5, std::string(64, 'a')}};
  b.files = {{"x.png", 5, std::string(64, 'b')}};
  try {
    merge_records({{"x", a}}, {{"x", b}});
    FAIL() << "two images of one item";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_MERGE_CONFLICT");
    EXPECT_EQ(error.info().found,
              "x.png with sha256 aaaaaaaaaaaa and x.png with sha256 bbbbbbbbbbbb");
  }
}

TEST(Merge, ConflictsNameWhatDiffers) {
  ItemRecord a, b;
  a.state = b.state = ItemState::kDone;
  a.files = {{"x.txt", 2, std::string(64, 'c')}, {"x.png", 5, std::string(64, 'a')}};
  b.files = {{"x.txt", 2, std::string(64, 'd')}, {"x.png", 5, std::string(64, 'a')}};
  const auto heard = [&] {
    try {
      merge_records("x", a, b);
    } catch (const Error& error) {
      return error.info().found;
    }
    return std::string("nothing");
  };
  EXPECT_EQ(heard(), "x.txt with sha256 cccccccccccc and x.txt with sha256 dddddddddddd");
  b.files = a.files;
  b.seed = 7;
  EXPECT_EQ(
      heard(),
      "x.png with sha256 aaaaaaaaaaaa of seed 0 and x.png with sha256 aaaaaaaaaaaa of seed 7");
}

}  // namespace
}  // namespace tessera::store_test
