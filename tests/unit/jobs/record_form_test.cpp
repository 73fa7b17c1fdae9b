// Records to the letter: sums, counts of tries, journals of earlier versions, and that no record
// passes 4 KiB, whatever an error says.
#include <algorithm>

#include "apps/jobs/content_sum.h"
#include "apps/jobs/records.h"
#include "apps/runtime/sha256.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::record_form_test {
namespace {

namespace fs = std::filesystem;

class RecordForm : public ::testing::Test {
 protected:
  fs::path state(const std::string& name) const { return folder_.out() / kStateFolder / name; }
  fs::path journal() const { return state(journal_name(1, 1)); }
  std::unique_ptr<BatchStore> open(const StoreOptions& options = {}) const {
    return std::make_unique<BatchStore>(folder_.out(), items_, kStoreOptions, kStoreModel, options);
  }
  // The records of the journal without its header.
  std::vector<Json> records() const {
    std::vector<Json> out;
    read_journal(journal(), [&](const Json& fields) { out.push_back(fields); });
    out.erase(out.begin());
    return out;
  }
  // A journal of this job with these records in it.
  void put_journal(const std::vector<Json>& records) const {
    fs::remove(journal());
    Journal written(
        journal(), {{"batch", read_begun_job(folder_.out())->digest}, {"shard", 1}, {"of", 1}},
        Start::kResume, Sync::kOff, [](const Json&) {}, JournalKind::kBatch);
    for (const Json& fields : records) written.add(fields);
    written.commit();
  }

  StoreFolder folder_;
  std::vector<SettledItem> items_ = small_job(3);
};

TEST(ContentSum, Xxh3) {
  // The published sums of nothing and of "abc" with seed 0.
  EXPECT_EQ(xxh3_hex(""), "2d06800538d394c2");
  EXPECT_EQ(xxh3_hex("abc"), "78af5f94892f3950");
  RecordedFile file = recorded_file("a.png", "bytes");
  EXPECT_TRUE(is_recorded(file, "bytes"));
  EXPECT_FALSE(is_recorded(file, "bytez"));
  file.sha256 = std::string(64, '0');
  EXPECT_TRUE(is_recorded(file, "bytes")) << "xxh3 decides where it is known";
  file.xxh3.clear();
  EXPECT_FALSE(is_recorded(file, "bytes")) << "sha256 where it is not";
}

TEST_F(RecordForm, EachFileHasBothSums) {
  run_store(folder_.out(), items_);
  int files = 0;
  for (const Json& record : records()) {
    if (!record.contains("st")) continue;
    EXPECT_EQ(record.at("try"), 1);
    for (const Json& file : record.at("files")) {
      const std::string bytes = get_file(folder_.out() / file.at("p").get<std::string>());
      EXPECT_EQ(file.at("sha256"), sha256_hex(bytes));
      EXPECT_EQ(file.at("xxh3"), xxh3_hex(bytes));
      EXPECT_EQ(file.at("len"), bytes.size());
      ++files;
    }
  }
  EXPECT_EQ(files, 5);
}

// Equal records, but one is of an earlier version.
TEST(ContentSum, JoinedRecordsAreComparedBySha256) {
  ItemRecord now{.state = ItemState::kDone}, before;
  now.files = {recorded_file("a.png", "bytes")};
  before = now;
  before.files[0].xxh3.clear();
  before.tries = 3;
  EXPECT_TRUE(merge_records("a", now, before) == now);
  before.files[0].sha256[0] ^= 1;
  EXPECT_THROW(merge_records("a", now, before), Error);
}

TEST_F(RecordForm, TriesCountOverRunsAndWithinOne) {
  const ErrorInfo error{.code = "E_X", .expected = "this", .found = "that"};
  open()->fail(items_[1], error);
  {
    const auto store = open();
    store->note_try(items_[1]);  // tried again in the same run
    store->fail(items_[1], error);
    store->note_try(items_[2]);
    EXPECT_EQ(store->commit(items_[2], files_of(items_[2]), 0, kNobodys).tries, 2);
  }
  EXPECT_EQ(open()->commit(items_[1], files_of(items_[1]), 0, kNobodys).tries, 4);
  std::vector<Json> tries;
  for (const Json& record : records()) tries.push_back(record.at("try"));
  EXPECT_EQ(tries, (std::vector<Json>{1, 3, 2, 4}));
}

// As version 0.1.0 wrote it before records had "try" and "xxh3".
constexpr const char* kOldJournal =
    R"({"n":0,"tessera":"batch","version":1,"job":{"batch":"a40ae6774bd2da6ae779b28ca18f01664d09c57936633e6e8411c0079a6b4c1d","shard":1,"of":1},"prev":"00000000","crc":"f9e58562"}
{"n":1,"id":"p1","st":"done","files":[{"p":"p1.json","len":485,"sha256":"945381b124e7ed68553701e8eb335bd55737a7ff5813965a8a8d91adf2ef9ed8"},{"p":"p1.png","len":4113,"sha256":"21d7ebd2f5f8c7de2e44b86c94b913b9de20e8eae7d85dbd9421de62d820e985"}],"seed":8865970181601621,"s":0.018911868988652714,"prev":"f9e58562","crc":"7ce27f0d"}
{"n":2,"id":"p2","st":"failed","error":{"code":"E_OUTPUT_EXISTS","file":"out/p2.png","where":"","expected":"no file of this name, or the picture of this item","found":"another file","hint":"--overwrite replaces it"},"prev":"7ce27f0d","crc":"af9378c5"}
)";

TEST_F(RecordForm, OldJournalsStayReadable) {
  const fs::path old = folder_.root() / "old.jnl";
  put_file(old, kOldJournal);
  std::vector<ItemRecord> known;
  const JournalRest rest = read_journal(old, [&](const Json& fields) {
    ItemRecord record;
    if (!record_of(fields, record).empty()) known.push_back(record);
  });
  EXPECT_EQ(rest.bytes, 0u);
  ASSERT_EQ(known.size(), 2u);
  EXPECT_EQ(known[0].state, ItemState::kDone);
  EXPECT_EQ(known[0].files[1].bytes, 4113u);
  EXPECT_EQ(known[0].files[1].xxh3, "");
  EXPECT_EQ(known[1].state, ItemState::kFailed);
  EXPECT_EQ(known[1].tries, 1);

  // A job of then goes on: nothing is generated again, and its hashes are those that are checked.
  run_store(folder_.out(), items_);
  std::vector<Json> then;
  for (Json& record : std::vector<Json>(records())) {
    if (!record.contains("st")) continue;
    record.erase("try");
    for (Json& file : record.at("files")) file.erase("xxh3");
    then.push_back(record);
  }
  put_journal(then);
  EXPECT_EQ(run_store(folder_.out(), items_, nullptr, {.verify = true}), 0);
  std::string bytes = get_file(folder_.out() / "b.png");
  bytes[0] ^= 1;
  put_file(folder_.out() / "b.png", bytes);
  EXPECT_EQ(open({.verify = true})->damaged().size(), 1u);
}

std::size_t longest(const std::vector<std::string>& lines) {
  std::size_t most = 0;
  for (const std::string& line : lines) most = std::max(most, line.size());
  return most;
}

TEST_F(RecordForm, LongErrorsGoToTheLogAndNeverPastFourKiB) {
  std::string nasty;
  for (int i = 0; i < 2000; ++i) nasty += "\"\\\x01\x7f\xc2\x85\xff";
  const ErrorInfo error{.code = "E_X",
                        .file = nasty,
                        .where = nasty,
                        .expected = nasty,
                        .found = nasty + " at last",
                        .hint = nasty};
  items_[0].item.id = std::string(120, 'i');
  items_[0].name = std::string(120, 'i') + ".png";
  open()->fail(items_[0], error);
  open()->fail(items_[1], {.code = "E_X", .found = "short"});
  EXPECT_LE(longest(lines_of(journal())), kMaxRecordLine);
  EXPECT_GT(longest(lines_of(journal())), kMaxRecordLine / 2) << "no more is cut than must be";
  EXPECT_EQ(records()[0].at("cut"), true);
  EXPECT_FALSE(records()[1].contains("cut"));
  const fs::path log = state(log_name(1, 1));
  auto lines = lines_of(log);
  ASSERT_EQ(lines.size(), 1u);
  const Json whole = Json::parse(lines[0]);
  EXPECT_EQ(whole.at("id"), items_[0].item.id);
  EXPECT_EQ(whole.at("error").at("found"), escape_for_terminal(error.found, 1 << 20));
  // What a kill left half is cut off; a full log grows no more.
  put_file(log, lines[0] + "{\"id\":\"h");
  open()->fail(items_[0], error);
  lines = lines_of(log);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(Json::parse(lines[1]).at("try"), 2);
  put_file(log, std::string(16 << 20, '\n'));
  open()->fail(items_[0], error);
  EXPECT_EQ(fs::file_size(log), 16u << 20);
}

// The longest that is let in, and one that is not.
TEST_F(RecordForm, NamesTooLongForARecordAreRefusedAtTheStart) {
  items_[0].item.id = std::string(120, 'i');
  items_[0].name = std::string(98, '"') + std::string(98, '\\') + ".png";
  StoreOptions options;
  std::vector<std::size_t> sizes;
  std::size_t endings = 0;
  for (; endings < 64; ++endings) {
    folder_.clear();
    options.next_to.clear();
    for (std::size_t i = 0; i < endings; ++i) {
      options.next_to.push_back(".m" + std::to_string(i) + ".txt");
    }
    std::vector<OutputFile> files;
    for (const std::string& ending : options.next_to) {
      files.push_back({items_[0].name.substr(0, 196) + ending, "text"});
    }
    files.push_back({items_[0].name, "pixels"});
    try {
      const auto store = open(options);
      store->commit(items_[0], files, 1.0 / 3, kNobodys);
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_RECORD_SIZE");
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_FALSE(fs::exists(folder_.out())) << "refused before anything is written";
      break;
    }
    sizes.push_back(longest(lines_of(journal())));
    ASSERT_LE(sizes.back(), kMaxRecordLine);
  }
  ASSERT_GT(endings, 4u);
  ASSERT_LT(endings, 64u);
  EXPECT_GT(sizes.back(), kMaxRecordLine / 2);
}

}  // namespace
}  // namespace tessera::record_form_test
