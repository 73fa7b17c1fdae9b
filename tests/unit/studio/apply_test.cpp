// The reducer without threads: every kind of event, replacement by number, bounds.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/studio/event.h"

namespace tessera::apply_test {
namespace {

Generation generation(std::uint64_t number, GenerateState state) {
  Generation out;
  out.number = number;
  out.state = state;
  return out;
}

TEST(Apply, PaintingsAreReplacedByNumber) {
  Snapshot snapshot;
  apply(snapshot, GenerationEvent{generation(1, GenerateState::kQueued)});
  apply(snapshot, GenerationEvent{generation(2, GenerateState::kQueued)});
  EXPECT_EQ(snapshot.running(), nullptr);
  Generation moved = generation(1, GenerateState::kGeneration);
  moved.rows_done = 3;
  apply(snapshot, GenerationEvent{moved});
  EXPECT_EQ(snapshot.revision, 3u);
  ASSERT_EQ(snapshot.generations.size(), 2u);
  EXPECT_EQ(snapshot.generations[0].rows_done, 3);
  ASSERT_NE(snapshot.running(), nullptr);
  EXPECT_EQ(snapshot.running()->number, 1u);
  apply(snapshot, GenerationDroppedEvent{1});
  EXPECT_EQ(snapshot.generation(1), nullptr);
  EXPECT_NE(snapshot.generation(2), nullptr);
}

TEST(Apply, OldFinishedImagesGoButNotThoseThatAreCompared) {
  Snapshot snapshot;
  apply(snapshot, GenerationEvent{generation(1, GenerateState::kDone)});
  apply(snapshot, CompareEvent{1, 0});
  apply(snapshot, GenerationEvent{generation(2, GenerateState::kQueued)});
  for (std::uint64_t number = 3; number < 3 + 2 * kKeptGenerations; ++number) {
    apply(snapshot, GenerationEvent{generation(number, GenerateState::kDone)});
  }
  EXPECT_EQ(snapshot.generations.size(), kKeptGenerations + 2);
  EXPECT_NE(snapshot.generation(1), nullptr) << "compared";
  EXPECT_NE(snapshot.generation(2), nullptr) << "queued";
  EXPECT_EQ(snapshot.generation(3), nullptr);
  apply(snapshot, GenerationDroppedEvent{1});
  EXPECT_EQ(snapshot.compare_left, 0u);
}

TEST(Apply, AServersModelsTakeThePlaceOfTheBundledDefault) {
  Snapshot snapshot;
  EXPECT_EQ(snapshot.default_model, kDefaultModel);
  apply(snapshot, ServerStateEvent{"http://a:1", "not there"});
  EXPECT_EQ(snapshot.default_model, "") << "nobody knows yet";
  apply(snapshot, ModelsEvent{{}, "theirs"});
  apply(snapshot, ServerStateEvent{"http://a:1", ""});
  EXPECT_EQ(snapshot.default_model, "theirs");
  EXPECT_EQ(snapshot.status.server, "http://a:1");
  EXPECT_EQ(snapshot.status.server_problem, "");
}

TEST(Apply, ReceivedImagesKeepToTheirBytes) {
  Snapshot snapshot;
  const auto image = std::make_shared<const Image>(4096, 2048);  // 24 MiB
  for (std::uint64_t number = 1; number <= 20; ++number) {
    Generation one = generation(number, GenerateState::kDone);
    one.image = image;
    if (number > 2) one.from = "http://127.0.0.1:9";
    apply(snapshot, GenerationEvent{std::move(one)});
    if (number == 3) apply(snapshot, CompareEvent{3, 0});
  }
  ASSERT_EQ(snapshot.generations.size(), 20u);
  for (const Generation& one : snapshot.generations) {
    EXPECT_EQ(one.image != nullptr, one.number <= 3 || one.number > 10) << one.number;
  }
}

TEST(Apply, GalleryOfAFolderThatWasLeftChangesNothing) {
  Snapshot snapshot;
  apply(snapshot, FolderEvent{"a"});
  apply(snapshot, GalleryEvent{"a", {{.path = "a/1.png"}, {.path = "a/2.png"}}, 7});
  ASSERT_EQ(snapshot.gallery.size(), 2u);
  EXPECT_EQ(snapshot.gallery_left_out, 7);
  apply(snapshot, GalleryEntryEvent{"a", {.path = "a/2.png", .problem = "bad"}});
  EXPECT_EQ(snapshot.gallery[1].problem, "bad");
  apply(snapshot, FolderEvent{"b"});
  EXPECT_TRUE(snapshot.gallery.empty());
  EXPECT_EQ(snapshot.gallery_left_out, 0);
  apply(snapshot, GalleryEvent{"a", {{.path = "a/1.png"}}, 0});
  apply(snapshot, GalleryEntryEvent{"a", {.path = "a/1.png"}});
  EXPECT_TRUE(snapshot.gallery.empty());
}

TEST(Apply, OpenedImagesAndRecallsCountUp) {
  Snapshot snapshot;
  for (int i = 0; i < 20; ++i) {
    apply(snapshot, OpenedEvent{{.path = "p" + std::to_string(i)}, std::nullopt, {}});
  }
  EXPECT_EQ(snapshot.opened.size(), kKeptOpened);
  EXPECT_EQ(snapshot.opened.back().path, "p19");
  EXPECT_FALSE(snapshot.recalled);
  GenerateSettings settings;
  settings.prompt = "x";
  apply(snapshot, OpenedEvent{{.path = "p15"}, settings, {"w"}});
  EXPECT_EQ(snapshot.opened.size(), kKeptOpened) << "the same file once";
  EXPECT_FALSE(snapshot.recalled) << "nobody asked for settings";
  apply(snapshot, OpenedEvent{{.path = "p15"}, settings, {}, 7});
  ASSERT_TRUE(snapshot.recalled);
  EXPECT_EQ(snapshot.recalled->request, 7u);
  EXPECT_EQ(snapshot.recalled->path, "p15");
  EXPECT_EQ(snapshot.recalled->settings, settings);
  apply(snapshot, OpenedEvent{{.path = "p16"}, GenerateSettings{}, {}});
  EXPECT_EQ(snapshot.recalled->request, 7u) << "an image that is only opened answers nobody";
  EXPECT_TRUE(snapshot.problems.empty());
  apply(snapshot, OpenedEvent{{.path = "p15"}, std::nullopt, {"a damaged record"}, 8});
  EXPECT_EQ(snapshot.recalled->request, 8u);
  EXPECT_FALSE(snapshot.recalled->settings);
  ASSERT_EQ(snapshot.problems.size(), 1u);
  EXPECT_EQ(snapshot.problems[0].found, "a damaged record");
}

TEST(Apply, OpenedImagesKeepToTheirBytes) {
  Snapshot snapshot;
  const auto image = std::make_shared<const Image>(8192, 8192);  // 192 MiB
  for (const char* path : {"1", "2", "3", "4"}) {
    apply(snapshot, OpenedEvent{{.path = path, .image = image, .problem = {}}, std::nullopt, {}});
  }
  ASSERT_EQ(snapshot.opened.size(), 2u);
  EXPECT_EQ(snapshot.opened.back().path, "4");
}

TEST(Apply, WhatIsComparedStays) {
  Snapshot snapshot;
  const auto image = std::make_shared<const Image>(8192, 8192);  // 192 MiB
  apply(snapshot, KeepEvent{{{1}, {"a", "b"}}});
  apply(snapshot, GenerationEvent{generation(1, GenerateState::kDone)});
  for (std::uint64_t number = 2; number < 2 + 2 * kKeptGenerations; ++number) {
    apply(snapshot, GenerationEvent{generation(number, GenerateState::kDone)});
  }
  EXPECT_NE(snapshot.generation(1), nullptr);
  EXPECT_EQ(snapshot.generation(2), nullptr);
  for (const char* path : {"a", "b"}) {
    apply(snapshot, OpenedEvent{{.path = path, .image = image, .problem = {}}, {}, {}});
  }
  const auto has = [&](const std::string& path) {
    return std::any_of(snapshot.opened.begin(), snapshot.opened.end(),
                       [&](const OpenedImage& one) { return one.path == path && one.image; });
  };
  for (int i = 0; i < 20; ++i) {
    const auto more = i == 10 ? image : std::make_shared<const Image>(2, 2);
    apply(snapshot, OpenedEvent{{.path = std::to_string(i), .image = more, .problem = {}}, {}, {}});
    EXPECT_TRUE(has("a") && has("b")) << i;
    EXPECT_TRUE(has(std::to_string(i))) << "the newest";
  }
  EXPECT_LE(snapshot.opened.size(), kKeptOpened + 2);
  EXPECT_FALSE(has("10")) << "192 MiB more are too much";
  apply(snapshot, KeepEvent{});
  for (int i = 20; i < 40; ++i) {
    apply(snapshot, OpenedEvent{{.path = std::to_string(i)}, {}, {}});
  }
  EXPECT_FALSE(has("a") || has("b")) << "nobody compares them any more";
  EXPECT_EQ(snapshot.opened.size(), kKeptOpened);
}

TEST(Apply, OldTextsLoseTheirTilesFirst) {
  Snapshot snapshot;
  for (std::size_t i = 0; i < kKeptTiles + 3; ++i) {
    CaptionEntry entry{.path = std::to_string(i), .state = CaptionState::kDone, .text = "t"};
    entry.tiles.emplace_back();
    apply(snapshot, CaptionEvent{std::move(entry)});
  }
  ASSERT_EQ(snapshot.captions.size(), kKeptTiles + 3);
  for (std::size_t i = 0; i < snapshot.captions.size(); ++i) {
    EXPECT_EQ(snapshot.captions[i].tiles.empty(), i < 3) << i;
    EXPECT_EQ(snapshot.captions[i].text, "t");
  }
}

TEST(Apply, CaptionsStopAndAreSaved) {
  Snapshot snapshot;
  apply(snapshot, FolderEvent{"a"});
  apply(snapshot, GalleryEvent{"a", {{.path = "1"}}, 0});
  apply(snapshot, CaptionEvent{{.path = "1", .state = CaptionState::kWriting}});
  apply(snapshot, CaptionEvent{{.path = "2"}});
  apply(snapshot, CaptionsStoppedEvent{});
  ASSERT_EQ(snapshot.captions.size(), 1u);
  apply(snapshot, CaptionEvent{{.path = "3", .state = CaptionState::kReading}});
  apply(snapshot, CaptionGoneEvent{"3"});
  apply(snapshot, CaptionGoneEvent{"1"});
  ASSERT_EQ(snapshot.captions.size(), 1u) << "one that is written stays";
  apply(snapshot, CaptionSavedEvent{"1", "a text"});
  EXPECT_TRUE(snapshot.captions[0].saved);
  EXPECT_EQ(snapshot.captions[0].text, "a text");
  EXPECT_EQ(snapshot.gallery[0].caption, "a text");
}

TEST(Apply, ProblemsAreBounded) {
  Snapshot snapshot;
  for (int i = 0; i < 100; ++i) apply(snapshot, ProblemEvent{{.where = std::to_string(i)}});
  EXPECT_EQ(snapshot.problems.size(), kKeptProblems);
  EXPECT_EQ(snapshot.problems.back().where, "99");
}

}  // namespace
}  // namespace tessera::apply_test
