// Segments of videos in work: their files, their records, and what a store makes of damaged ones.
#include "apps/jobs/segments.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/jobs/content_sum.h"
#include "tests/unit/jobs/store_job.h"

namespace tessera::segments_test {
namespace {

namespace fs = std::filesystem;

VideoSegment segment(const std::string& id, std::int64_t first, std::int64_t grids = 1) {
  return {.first = first,
          .grids = grids,
          .passes = 5,
          .file = recorded_file(segment_name(id, first), codes_text({{1, 2}}))};
}

TEST(Segments, CodesAreReadBackAsTheyWere) {
  const std::vector<std::int32_t> codes = {0, 1, 255, 256, 65536, 32767, 16777215};
  const std::string text = codes_text(codes);
  EXPECT_EQ(codes_in(text, 7, 16777216), codes);
  EXPECT_FALSE(codes_in(text, 7, 16777215)) << "a code that the model has not";
  EXPECT_FALSE(codes_in(text, 6, 16777216));
  EXPECT_FALSE(codes_in(text.substr(0, text.size() - 1), 7, 16777216));
  EXPECT_FALSE(codes_in(text + "x", 7, 16777216));
  EXPECT_FALSE(codes_in("another file" + text, 7, 16777216));
  EXPECT_FALSE(codes_in("", 0, 16777216));
}

TEST(Segments, NamesSayWhoseTheyAre) {
  for (const std::string id : {"a", "a-1", "clip-a", "a-000001.codes", "x.y-2"}) {
    EXPECT_EQ(item_of_video_file(segment_name(id, 0)), id);
    EXPECT_EQ(item_of_video_file(segment_name(id, 1234567)), id);
    EXPECT_EQ(item_of_video_file(draft_name(id, "mkv")), id);
  }
  for (const char* other : {"", "clip-", "clip-a", "clip-a.codes", "clip-a-00001.codes",
                            "clip-a-00000x.codes", "job.json", "shard-00001-of-00001.jnl"}) {
    EXPECT_EQ(item_of_video_file(other), "") << other;
  }
}

TEST(Segments, RecordsFollowEachOther) {
  Segments segments;
  const auto take = [&](const VideoSegment& one) { segments.take(segment_fields("a", one)); };
  take(segment("a", 1));
  EXPECT_TRUE(segments.of("a").empty()) << "a gap before it";
  take(segment("a", 0, 2));
  take(segment("a", 2));
  take(segment("a", 4));
  ASSERT_EQ(segments.of("a").size(), 2u);
  EXPECT_EQ(segments.of("a")[1].first, 2);
  EXPECT_EQ(segments.of("a")[1].passes, 5);
  EXPECT_EQ(segments.of("a")[1].file.xxh3, segment("a", 2).file.xxh3);
  take(segment("a", 0));  // written again: what was after it is over
  ASSERT_EQ(segments.of("a").size(), 1u);
  EXPECT_EQ(segments.of("a")[0].grids, 1);
  segments.take({{"id", "a"}, {"st", "failed"}});
  EXPECT_EQ(segments.of("a").size(), 1u) << "they stay for the next try";
  segments.take({{"id", "a"}, {"st", "done"}});
  EXPECT_TRUE(segments.of("a").empty());
}

TEST(Segments, RecordsOfOthersSayNothing) {
  Segments segments;
  VideoSegment one = segment("../a", 0);
  segments.take(segment_fields("../a", one));
  one = segment("a", 0);
  one.file.name = "../../clip-a-000000.codes";
  segments.take(segment_fields("a", one));
  one = segment("a", 0);
  one.grids = std::int64_t{1} << 62;
  segments.take(segment_fields("a", one));
  one.grids = 0;
  segments.take(segment_fields("a", one));
  EXPECT_TRUE(segments.of("a").empty());
  EXPECT_TRUE(segments.of("../a").empty());
  Json broken = segment_fields("a", segment("a", 0));
  broken["first"] = "0";
  EXPECT_THROW(segments.take(broken), nlohmann::json::exception);
}

class SegmentStore : public ::testing::Test {
 protected:
  fs::path state(const std::string& name) const { return folder_.out() / kStateFolder / name; }
  // All but the last segment and the video itself.
  void begin() {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    for (std::int64_t grid = 0; grid + 1 < kVideoGrids; ++grid) {
      store.commit_segment(items_[0], grid, 1, 2, codes_of(items_[0], grid, 1));
    }
  }
  StoreFolder folder_;
  std::vector<SettledItem> items_ = video_job(2);
};

TEST_F(SegmentStore, AVideoIsGoneOnWithAndLeavesNothing) {
  begin();
  const JobReport report = read_job_report(folder_.out());
  EXPECT_EQ(report.standing.at("a"), kVideoGrids - 1);
  EXPECT_EQ(report.shards[0].standing_grids, static_cast<std::uint64_t>(kVideoGrids - 1));
  EXPECT_EQ(report.shards[0].done, 0u);
  std::vector<std::string> heard;
  EXPECT_EQ(
      run_video_store(folder_.out(), items_, [&](const std::string& id) { heard.push_back(id); }),
      1 + kVideoGrids);
  EXPECT_EQ(heard[0], "a/2");
  for (const auto& entry : fs::directory_iterator(folder_.out() / kStateFolder)) {
    EXPECT_EQ(item_of_video_file(entry.path().filename().string()), "") << entry.path();
  }
  EXPECT_TRUE(read_job_report(folder_.out()).standing.empty());
  EXPECT_EQ(run_video_store(folder_.out(), items_), 0);
}

TEST_F(SegmentStore, WhatIsAfterADamagedSegmentIsWrittenAgain) {
  const auto damages = {
      std::function<void()>([&] { fs::remove(state(segment_name("a", 0))); }),
      std::function<void()>([&] { put_file(state(segment_name("a", 0)), "x"); }),
      std::function<void()>([&] {
        std::string text = get_file(state(segment_name("a", 0)));
        text.back() ^= 1;
        put_file(state(segment_name("a", 0)), text);
      }),
  };
  for (const auto& damage : damages) {
    folder_.clear();
    begin();
    damage();
    EXPECT_EQ(run_video_store(folder_.out(), items_), 2 * kVideoGrids);
    EXPECT_EQ(folder_.outputs().size(), 2u);
    EXPECT_EQ(run_video_store(folder_.out(), items_), 0);
  }
}

// What a killed run, another job or a video that is done left goes; nothing else does.
TEST_F(SegmentStore, OnlyFilesOfVideosInWorkAreSwept) {
  begin();
  const std::vector<std::string> stale = {segment_name("a", 7), segment_name("b", 0),
                                          segment_name("gone", 3), draft_name("a", "mkv")};
  const std::vector<std::string> kept = {"clip-notes.txt", "clip-a-12.codes", "clip-000000"};
  for (const std::string& name : stale) put_file(state(name), "stale");
  for (const std::string& name : kept) put_file(state(name), "mine");
  const BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
  EXPECT_EQ(store.temporaries_removed(), stale.size());
  for (const std::string& name : stale) EXPECT_FALSE(fs::exists(state(name))) << name;
  for (const std::string& name : kept) EXPECT_EQ(get_file(state(name)), "mine") << name;
  for (const std::string& name : {segment_name("a", 0), segment_name("a", 1)}) {
    EXPECT_TRUE(fs::exists(state(name))) << name;
  }
}

// In a job of two shards each minds its own.
TEST_F(SegmentStore, ShardsLeaveTheSegmentsOfOthers) {
  items_ = video_job(6);
  const auto open = [&](std::uint32_t shard) {
    return std::make_unique<BatchStore>(folder_.out(), items_, kStoreOptions, kStoreModel,
                                        StoreOptions{.shard = {shard, 2}});
  };
  std::vector<std::string> names;
  for (const std::uint32_t shard : {1u, 2u}) {
    const auto store = open(shard);
    const auto wanted = store->wanted(false);
    ASSERT_FALSE(wanted.empty());
    const SettledItem& item = items_[wanted.front()];
    store->commit_segment(item, 0, 1, 2, codes_of(item, 0, 1));
    names.push_back(segment_name(item.item.id, 0));
  }
  open(1);
  open(2);
  for (const std::string& name : names) EXPECT_TRUE(fs::exists(state(name))) << name;
}

// A failed video keeps what stands; a video that is gone is written anew.
TEST_F(SegmentStore, FailuresKeepSegments) {
  begin();
  {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    store.fail(items_[0], {.code = "E_X", .expected = "this", .found = "that"});
  }
  {
    BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
    EXPECT_EQ(store.standing_video(items_[0], kGridCodes, 1000).segments, kVideoGrids - 1);
    EXPECT_EQ(store.standing_video(items_[0], kGridCodes, 1000).passes, 2 * (kVideoGrids - 1));
    store.commit(items_[0], files_of_video(items_[0]), 0, kNobodys);
  }
  fs::remove(folder_.out() / "a.mkv");
  EXPECT_EQ(run_video_store(folder_.out(), items_), 2 * kVideoGrids);
}

// A video says nothing of whose it is; the intent before it does.
TEST_F(SegmentStore, AVideoThatStandsWithoutARecordIsKnown) {
  run_video_store(folder_.out(), items_);
  const fs::path journal = folder_.out() / kStateFolder / journal_name(1, 1);
  std::string text;
  for (const std::string& line : lines_of(journal)) {
    if (line.find("\"id\":\"b\"") == std::string::npos) text += line;
  }
  put_file(journal, text);
  const std::vector<OutputFile> newer = {{items_[1].name, "what other libraries mux"}};
  BatchStore store(folder_.out(), items_, kStoreOptions, kStoreModel, {});
  ASSERT_EQ(store.wanted(false), std::vector<std::size_t>{1});
  store.commit(items_[1], newer, 0, kNobodys);
  EXPECT_EQ(get_file(folder_.out() / "b.mkv"), newer[0].bytes);
}

TEST_F(SegmentStore, AStrangersVideoIsKept) {
  begin();
  put_file(folder_.out() / "a.mkv", "mine");
  EXPECT_THROW(run_video_store(folder_.out(), items_), Error);
  EXPECT_EQ(get_file(folder_.out() / "a.mkv"), "mine");
}

}  // namespace
}  // namespace tessera::segments_test
