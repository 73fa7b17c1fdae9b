// Merging as a function of the set of what is merged: 10,000 lots of orders, groupings and repeats
// over records in memory, and 1,000 (10,000 with TESSERA_LONG set) over journals that real runs
// left in folders, cut off anywhere. Against an oracle that looks at all records of an item at
// once.
#include <algorithm>
#include <cstdio>
#include <random>

#include "apps/jobs/merge.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::merge_property_test {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 10000, kFolderRounds = 1000;

// What came of a merge: records, or a conflict and the images that it names.
struct Outcome {
  ItemRecords records;
  std::string conflict;
  std::set<std::string> named;
  bool operator==(const Outcome&) const = default;
};

std::set<std::string> digests_in(const std::string& text) {
  std::set<std::string> out;
  const std::string phrase = " with sha256 ";
  for (std::size_t at = 0; (at = text.find(phrase, at)) != std::string::npos; at += 1) {
    out.insert(text.substr(at + phrase.size(), 12));
  }
  return out;
}

// Joins the parts two by two, in any grouping.
Outcome join_anyhow(std::vector<ItemRecords> parts, std::mt19937& lot) {
  std::shuffle(parts.begin(), parts.end(), lot);
  try {
    while (parts.size() > 1) {
      const std::size_t at = lot() % (parts.size() - 1);
      parts[at] = merge_records(parts[at], parts[at + 1]);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  } catch (const Error& error) {
    return {{}, error.info().code + " " + error.info().where, digests_in(error.info().found)};
  }
  return {parts.front(), "", {}};
}

ItemRecord record_by_lot(std::mt19937& lot, const std::string& id, bool other_image) {
  ItemRecord record;
  if (lot() % 3 == 0) {
    record.state = ItemState::kFailed;
    record.error = "{\"code\":\"E_" + std::string(1, static_cast<char>('A' + lot() % 4)) + "\"}";
  } else if (lot() % 5 != 0) {
    record.state = ItemState::kDone;
    record.seed = 7;
    if (id < "c") record.files.push_back({id + ".txt", 3, std::string(64, 'e')});
    record.files.push_back({id + ".png", 5, std::string(64, other_image ? 'b' : 'a')});
  }
  return record;
}

// All records of an item at once: the done one before the smallest failure before nothing.
ItemRecord oracle(const std::vector<ItemRecord>& records) {
  ItemRecord best;
  for (const ItemRecord& record : records) {
    const bool better_failure = record.state == ItemState::kFailed &&
                                (best.state == ItemState::kPending ||
                                 (best.state == ItemState::kFailed && record.error < best.error));
    if (record.state == ItemState::kDone || better_failure) best = record;
    if (record.state == ItemState::kDone) break;
  }
  return best;
}

TEST(MergeProperty, AnyOrderGroupingAndRepeatsOfRecords) {
  std::mt19937 lot(11);
  int conflicts = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<ItemRecords> parts(1 + lot() % 6);
    std::map<std::string, std::vector<ItemRecord>> all;
    const bool strange = lot() % 2 == 0;  // somebody generated "d" otherwise
    bool generated = false, regenerated = false;
    for (int i = 0; i < 12; ++i) {
      const std::string id(1, static_cast<char>('a' + lot() % 7));
      const bool other = strange && id == "d" && lot() % 2 == 0;
      const ItemRecord record = record_by_lot(lot, id, other);
      ItemRecords& part = parts[lot() % parts.size()];
      if (part.contains(id)) continue;
      part[id] = record;
      all[id].push_back(record);
      if (id == "d" && record.state == ItemState::kDone) (other ? regenerated : generated) = true;
    }
    const std::size_t distinct = parts.size();
    const std::size_t repeats = lot() % 4;
    for (std::size_t i = 0; i < repeats; ++i) parts.push_back(parts[lot() % distinct]);
    const Outcome first = join_anyhow(parts, lot);
    for (int again = 0; again < 3; ++again) {
      ASSERT_TRUE(join_anyhow(parts, lot) == first) << "round " << round;
    }
    if (generated && regenerated) {
      ++conflicts;
      ASSERT_EQ(first.conflict, "E_MERGE_CONFLICT item d") << "round " << round;
      ASSERT_EQ(first.named, (std::set<std::string>{"aaaaaaaaaaaa", "bbbbbbbbbbbb"}));
      continue;
    }
    ASSERT_EQ(first.conflict, "") << "round " << round;
    ASSERT_EQ(first.records.size(), all.size()) << "ids exactly once";
    for (const auto& [id, records] : all) {
      ASSERT_TRUE(first.records.at(id) == oracle(records)) << "round " << round << " " << id;
    }
    ASSERT_TRUE(merge_records(first.records, first.records) == first.records);
  }
  std::printf("%d rounds of 4 merges, %d conflicts, each named\n", kRounds, conflicts);
  EXPECT_GT(conflicts, 100);
}

constexpr std::uint32_t kShards = 3;

// Folders in which shards of one job were worked on for a while, each cut off somewhere.
class Hosts : public ::testing::Test {
 protected:
  static constexpr int kHosts = 24;

  fs::path host(std::size_t index) const { return folder_.root() / ("h" + std::to_string(index)); }

  // One shard, or all of them; items that fail; in one of six hosts "d" looks otherwise.
  void work(std::size_t index, std::mt19937& lot) {
    const bool strange = index % 6 == 5;
    for (std::uint32_t shard = 1; shard <= kShards; ++shard) {
      if (index >= 3 && lot() % 3 == 0) continue;
      BatchStore store(host(index), items_, kStoreOptions, kStoreModel,
                       {.shard = {shard, kShards}, .sync = Sync::kOff});
      for (const std::size_t wanted : store.wanted(false)) {
        const SettledItem& item = items_[wanted];
        if (index >= 3 && lot() % 4 == 0) {
          store.fail(item, {.code = "E_" + std::string(1, static_cast<char>('A' + lot() % 3)),
                            .expected = "an image",
                            .found = "none"});
          continue;
        }
        std::vector<OutputFile> files = files_of(item);
        if (strange && item.item.id == "d") files.back().bytes += " otherwise";
        store.commit(item, files, 0.5, kNobodys);
      }
    }
    for (std::uint32_t shard = 1; index >= 3 && shard <= kShards; ++shard) {
      const fs::path journal = host(index) / kStateFolder / journal_name(shard, kShards);
      if (!fs::exists(journal) || lot() % 2 == 0) continue;
      fs::resize_file(journal, lot() % (fs::file_size(journal) + 1));
    }
  }

  // The list and its figures, or the code of the refusal with what it names.
  std::string merged(const std::vector<std::size_t>& hosts, const std::string& output) {
    std::vector<fs::path> folders;
    for (const std::size_t index : hosts) folders.push_back(host(index));
    try {
      const MergeReport report = merge_folders(folders, folder_.root() / output);
      return std::to_string(report.done) + " " + std::to_string(report.failed) + "\n" +
             get_file(report.results);
    } catch (const Error& error) {
      std::string out = error.info().code + " " + error.info().where;
      if (error.info().code == "E_MERGE_PENDING") out += error.info().found;
      for (const std::string& digest : digests_in(error.info().found)) out += " " + digest;
      return out;
    }
  }

  // What a merge of these hosts must begin with.
  std::string expected(const std::vector<std::size_t>& hosts, std::string& image_of_d) {
    std::map<std::string, std::vector<ItemRecord>> all;
    std::set<std::string> d;
    for (const std::size_t index : hosts) {
      for (const auto& [id, record] : reports_[index]) {
        all[id].push_back(record);
        if (id == "d" && record.state == ItemState::kDone) {
          d.insert(record.files.back().sha256.substr(0, 12));
        }
      }
    }
    image_of_d = d.empty() ? "none" : *d.begin();
    if (d.size() > 1) return "E_MERGE_CONFLICT item d " + *d.begin() + " " + *d.rbegin();
    std::size_t done = 0, failed = 0;
    for (const auto& [id, records] : all) {
      ++(oracle(records).state == ItemState::kDone ? done : failed);
    }
    if (done + failed == items_.size()) {
      return std::to_string(done) + " " + std::to_string(failed) + "\n";
    }
    return "E_MERGE_PENDING " + std::to_string(items_.size() - done - failed) + " of ";
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(9);
  std::vector<ItemRecords> reports_;
};

TEST_F(Hosts, AnyOrderAndRepeatsOfFoldersGiveOneList) {
  std::mt19937 lot(12);
  for (std::size_t index = 0; index < kHosts; ++index) {
    work(index, lot);
    try {
      reports_.push_back(read_job_report(host(index)).records);
    } catch (const Error&) {  // no shard of it was begun
      reports_.emplace_back();
    }
  }
  const int rounds = std::getenv("TESSERA_LONG") != nullptr ? 10 * kFolderRounds : kFolderRounds;
  std::map<std::string, int> outcomes;
  std::map<std::set<std::size_t>, std::string> known;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::size_t> hosts(1 + lot() % 5);
    for (std::size_t& index : hosts) index = lot() % kHosts;  // repeats come by themselves
    if (lot() % 2 == 0) hosts.push_back(hosts[lot() % hosts.size()]);
    std::string image;
    const std::string must = expected(hosts, image);
    const std::string outcome = merged(hosts, "all-" + image);
    ASSERT_TRUE(outcome.starts_with(must)) << round << ": " << outcome << " for " << must;
    const auto [same, fresh] = known.emplace(std::set(hosts.begin(), hosts.end()), outcome);
    ASSERT_EQ(same->second, outcome) << "round " << round;
    ++outcomes[outcome.starts_with("E_") ? outcome.substr(0, outcome.find(' ')) : "a list"];
  }
  std::printf("%d merges of folders, %zu sets of them:", rounds, known.size());
  for (const auto& [what, count] : outcomes) std::printf(" %s %d;", what.c_str(), count);
  std::printf("\n");
  EXPECT_GT(outcomes["a list"], 50);
  EXPECT_GT(outcomes["E_MERGE_CONFLICT"], 50);
  EXPECT_GT(outcomes["E_MERGE_PENDING"], 50);
}

}  // namespace
}  // namespace tessera::merge_property_test
