// Describing images without a window, on the seeded tiny captioner: texts that grow, tokens that
// were kept, bad files and bad settings that fail alone.
#include <algorithm>

#include "apps/studio/caption_worker.h"
#include "apps/studio/local_describer.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera::caption_test {
namespace {

Image gradient(int shift) {
  Image out(48, 40);
  for (std::size_t i = 0; i < out.rgb.size(); ++i) {
    out.rgb[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(shift));
  }
  return out;
}

StudioOptions captioning() {
  StudioOptions options;
  options.captioner = "test:tiny";
  return options;
}

CaptionEntry described(StudioRun& run, const std::filesystem::path& path) {
  CaptionEntry out;
  run.until([&](const Snapshot& now) {
    for (const CaptionEntry& one : now.captions) {
      if (one.path != path) continue;
      out = one;
      return one.state == CaptionState::kDone || one.state == CaptionState::kFailed;
    }
    return false;
  });
  return out;
}

TEST(StudioCaptions, QueuedImagesAreDescribedOneBadOneFailsAlone) {
  StudioRun run(captioning());
  save_png(run.folder / "a.png", gradient(0));
  put_file(run.folder / "b.png", "bad");
  save_png(run.folder / "c.png", gradient(99));
  run.studio.post(CaptionCommand{
      .images = {run.folder / "a.png", run.folder / "b.png", run.folder / "c.png"}});
  ASSERT_EQ(run.studio.snapshot().captions.size(), 3u) << "shown at once";
  bool grew = false;
  run.until([&](const Snapshot& now) {
    for (const CaptionEntry& one : now.captions) {
      grew = grew || (one.state == CaptionState::kWriting && !one.text.empty());
    }
    return now.captions[2].state == CaptionState::kDone;
  });
  const auto& captions = run.studio.snapshot().captions;
  EXPECT_EQ(captions[0].state, CaptionState::kDone);
  EXPECT_FALSE(captions[0].text.empty());
  EXPECT_TRUE(grew) << "a text was seen on its way";
  EXPECT_GT(captions[0].visual_tokens, 0);
  EXPECT_EQ(captions[0].kept_tokens, captions[0].visual_tokens);
  ASSERT_EQ(captions[0].tiles.size(), 1u);
  EXPECT_EQ(std::count(captions[0].tiles[0].kept.begin(), captions[0].tiles[0].kept.end(), 1),
            captions[0].visual_tokens);
  EXPECT_EQ(captions[1].state, CaptionState::kFailed);
  EXPECT_FALSE(captions[1].error.code.empty());
  EXPECT_NE(captions[2].text, captions[0].text);
}

// This method keeps most of what its encoder attends to, and some for variety.
TEST(StudioCaptions, KeptTokensAndTheirScores) {
  StudioRun run(captioning());
  save_png(run.folder / "a.png", gradient(3));
  run.studio.post(CaptionCommand{
      .images = {run.folder / "a.png"}, .prune_method = "visionzip", .prune_rate = 0.5});
  const CaptionEntry entry = described(run, run.folder / "a.png");
  ASSERT_EQ(entry.state, CaptionState::kDone) << format_error(entry.error);
  EXPECT_EQ(entry.prune, "visionzip");
  EXPECT_LT(entry.kept_tokens, entry.visual_tokens);
  ASSERT_EQ(entry.tiles.size(), 1u);
  const VisualTile& tile = entry.tiles[0];
  EXPECT_EQ(std::count(tile.kept.begin(), tile.kept.end(), 1), entry.kept_tokens);
  float most = 0;
  double kept = 0, pruned = 0;
  for (std::size_t i = 0; i < tile.kept.size(); ++i) {
    ASSERT_GE(tile.scores[i], 0) << i;
    most = std::max(most, tile.scores[i]);
    (tile.kept[i] == 1 ? kept : pruned) += static_cast<double>(tile.scores[i]);
  }
  EXPECT_EQ(most, 1.0f);
  const auto left = static_cast<double>(entry.kept_tokens);
  const auto gone = static_cast<double>(entry.visual_tokens) - left;
  EXPECT_GT(kept / left, pruned / gone);
}

TEST(StudioCaptions, BadSettingsFailTheirImagesOnly) {
  StudioRun run(captioning());
  save_png(run.folder / "a.png", gradient(3));
  save_png(run.folder / "b.png", gradient(5));
  run.studio.post(CaptionCommand{.images = {run.folder / "a.png"}, .model = "no-such-captioner"});
  run.studio.post(CaptionCommand{.images = {run.folder / "b.png"}});
  EXPECT_EQ(described(run, run.folder / "a.png").error.code, "E_MODEL_MISSING");
  EXPECT_EQ(described(run, run.folder / "b.png").state, CaptionState::kDone);
  EXPECT_EQ(run.studio.snapshot().problems.size(), 1u);
  run.studio.post(
      CaptionCommand{.images = {run.folder / "a.png"}, .prune_method = "no-such-method"});
  run.until([&](const Snapshot& now) {
    return now.captions[0].state == CaptionState::kFailed &&
           now.captions[0].error.code != "E_MODEL_MISSING";
  });
}

TEST(StudioCaptions, StoppingTakesOutWhatNobodyBeganWith) {
  StudioRun run(captioning());
  std::vector<std::filesystem::path> images;
  for (int i = 0; i < 40; ++i) {
    images.push_back(run.folder / (std::to_string(i) + ".png"));
    save_png(images.back(), gradient(i));
  }
  run.studio.post(CaptionCommand{.images = images});
  described(run, images[0]);
  run.studio.post(StopCaptionsCommand{});
  run.until([](const Snapshot& now) {
    return std::none_of(now.captions.begin(), now.captions.end(), [](const CaptionEntry& one) {
      return one.state != CaptionState::kDone && one.state != CaptionState::kFailed;
    });
  });
  EXPECT_LT(run.studio.snapshot().captions.size(), 40u);
  run.studio.post(CaptionCommand{.images = {images[39]}});
  EXPECT_EQ(described(run, images[39]).state, CaptionState::kDone) << "and goes on afterwards";
}

// Whether a text at work was left when its worker ended right after the first words.
bool left_after(const std::filesystem::path& image) {
  EventQueue events(64);
  {
    CaptionWorker worker(std::make_unique<LocalDescriber>(CaptionerOptions{.threads = 1, .helper = {}}),
                       "test:tiny", events);
    worker.queue(CaptionCommand{.images = {image}});
    for (int i = 0; i < 60000; ++i) {
      for (const Event& event : events.take()) {
        const auto* text = std::get_if<CaptionEvent>(&event);
        if (text != nullptr && text->entry.state == CaptionState::kWriting) i = 60000;
      }
      std::this_thread::yield();
    }
    worker.end();
  }
  const std::vector<Event> last = events.take();
  return std::none_of(last.begin(), last.end(), [](const Event& event) {
    const auto* text = std::get_if<CaptionEvent>(&event);
    return text != nullptr && is_final(text->entry.state);
  });
}

TEST(CaptionWorker, AnEndLeavesTheTextAtWork) {
  TempFolder folder;
  save_png(folder / "a.png", gradient(3));
  int left = 0;  // the tiny model is quick: the end may come too late
  for (int i = 0; i < 20 && left == 0; ++i) left += left_after(folder / "a.png") ? 1 : 0;
  EXPECT_EQ(left, 1);
}

// A queue without room holds the first text's end, while the next images are read ahead.
TEST(CaptionWorker, AStopFinishesTheTextAtWorkAlone) {
  TempFolder folder;
  std::vector<std::filesystem::path> images;
  for (int i = 0; i < 8; ++i) {
    images.push_back(folder / (std::to_string(i) + ".png"));
    save_png(images.back(), gradient(i));
  }
  EventQueue events(1);
  ASSERT_TRUE(events.push(ProblemEvent{}));
  CaptionWorker worker(std::make_unique<LocalDescriber>(CaptionerOptions{.threads = 1, .helper = {}}),
                       "test:tiny", events);
  ASSERT_TRUE(worker.queue(CaptionCommand{.images = images}));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  worker.stop();
  ASSERT_TRUE(worker.queue(CaptionCommand{.images = {images.back()}}));
  std::vector<std::filesystem::path> done;
  for (int i = 0; i < 30000 && (done.empty() || done.back() != images.back()); ++i) {
    for (const Event& event : events.take()) {
      const auto* text = std::get_if<CaptionEvent>(&event);
      if (text != nullptr && is_final(text->entry.state)) done.push_back(text->entry.path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), images.back()) << "and goes on afterwards";
  EXPECT_LE(done.size(), 2u);
  events.close();
}

// More images than the gallery shows: all are described, but those that have a text already, be
// it a file or of this run; the captioner's queue never holds more than a few of them.
TEST(StudioCaptions, AWholeFolderBeyondWhatIsShown) {
  constexpr std::int64_t kAll = 520;
  StudioRun run(captioning());
  const std::filesystem::path folder = run.folder / "pictures";
  std::filesystem::create_directory(folder);
  const auto name = [&](std::int64_t i) { return folder / (std::to_string(i) + ".png"); };
  for (std::int64_t i = 0; i < kAll; ++i) put_file(name(i), "bad");  // quick to be done with
  for (const std::int64_t i : {3, 4}) save_png(name(i), gradient(static_cast<int>(i)));
  put_file(folder / "5.txt", "a text");
  run.studio.post(CaptionCommand{.images = {name(3)}});
  ASSERT_EQ(described(run, name(3)).state, CaptionState::kDone);
  const auto left = [](const Snapshot& now) {
    return std::count_if(now.captions.begin(), now.captions.end(),
                         [](const CaptionEntry& one) { return !is_final(one.state); });
  };
  ASSERT_TRUE(run.studio.post(CaptionFolderCommand{}));
  EXPECT_TRUE(run.studio.snapshot().folder_captions.listing);
  std::int64_t most = 0;
  run.until([&](const Snapshot& now) {
    most = std::max<std::int64_t>(most, left(now));
    const FolderCaptions& counts = now.folder_captions;
    return !counts.listing && counts.waiting == 0 && left(now) == 0;
  });
  const Snapshot& now = run.studio.snapshot();
  EXPECT_EQ(now.folder_captions.asked, kAll - 2);
  EXPECT_EQ(now.folder_captions.described, 2);
  EXPECT_EQ(now.folder_captions.left_out, 0);
  EXPECT_EQ(now.captions.size(), static_cast<std::size_t>(kAll - 1));
  EXPECT_LE(most, 16);
  EXPECT_GT(most, 0);
  std::int64_t done = 0;
  for (const CaptionEntry& one : now.captions) {
    EXPECT_NE(one.path, name(5));
    done += one.state == CaptionState::kDone ? 1 : 0;
  }
  EXPECT_EQ(done, 2) << "the others are bad files";
  // Once more: only those that failed.
  ASSERT_TRUE(run.studio.post(CaptionFolderCommand{}));
  run.until([](const Snapshot& then) { return !then.folder_captions.listing; });
  EXPECT_EQ(run.studio.snapshot().folder_captions.asked, kAll - 3);
  run.studio.post(StopCaptionsCommand{});
  EXPECT_EQ(run.studio.snapshot().folder_captions.waiting, 0);
  run.until([&](const Snapshot& then) { return left(then) == 0; });
}

// More of them than the thread of files takes at once; a file that is there already stays.
TEST(StudioCaptions, AllTextsAreSavedAtOnce) {
  constexpr int kAll = 70;
  StudioRun run(captioning());
  CaptionCommand command;
  for (int i = 0; i < kAll; ++i) {
    command.images.push_back(run.folder / (std::to_string(i) + ".png"));
    save_png(command.images.back(), gradient(i));
  }
  run.studio.post(command);
  run.until([](const Snapshot& now) {
    return std::all_of(now.captions.begin(), now.captions.end(),
                       [](const CaptionEntry& one) { return is_final(one.state); });
  });
  put_file(run.folder / "7.txt", "mine");
  ASSERT_TRUE(run.studio.post(SaveAllCaptionsCommand{}));
  run.until([](const Snapshot& now) {
    return !now.problems.empty() &&
           std::count_if(now.captions.begin(), now.captions.end(),
                         [](const CaptionEntry& one) { return one.saved; }) == kAll - 1;
  });
  for (const CaptionEntry& one : run.studio.snapshot().captions) {
    std::filesystem::path file = one.path;
    file.replace_extension(".txt");
    EXPECT_EQ(get_file(file), one.path.stem() == "7" ? "mine" : one.text + "\n");
  }
  EXPECT_EQ(run.studio.snapshot().problems[0].code, "E_CAPTION_EXISTS");
}

TEST(StudioCaptions, AStopBeforeTheFolderIsListedHolds) {
  StudioRun run(captioning());
  std::filesystem::create_directory(run.folder / "pictures");
  save_png(run.folder / "pictures" / "a.png", gradient(1));
  ASSERT_TRUE(run.studio.post(CaptionFolderCommand{}));
  run.studio.post(StopCaptionsCommand{});
  run.studio.post(OpenCommand{run.folder / "pictures" / "a.png"});  // after it in the queue
  run.until([](const Snapshot& now) { return now.opened.size() == 1; });
  EXPECT_TRUE(run.studio.snapshot().captions.empty());
}

TEST(StudioCaptions, TheQueueIsBounded) {
  StudioRun run(captioning());
  CaptionCommand command;
  for (std::size_t i = 0; i <= CaptionWorker::kMaxQueued; ++i) {
    command.images.push_back(run.folder / (std::to_string(i) + ".png"));
  }
  EXPECT_FALSE(run.studio.post(command));
  EXPECT_TRUE(run.studio.snapshot().captions.empty()) << "all or nothing";
  command.images.pop_back();
  EXPECT_TRUE(run.studio.post(command));
  EXPECT_EQ(run.studio.snapshot().captions.size(), CaptionWorker::kMaxQueued);
  run.studio.post(StopCaptionsCommand{});
}

TEST(StudioCaptions, GenerationAndDescribingAtOnce) {
  StudioRun run(captioning());
  save_png(run.folder / "a.png", gradient(3));
  run.studio.post(GenerateCommand{tiny_settings("x", 1), SeedMode::kPlusOne, 4});
  run.studio.post(CaptionCommand{.images = {run.folder / "a.png"}});
  EXPECT_EQ(described(run, run.folder / "a.png").state, CaptionState::kDone);
  EXPECT_EQ(run.finished(4).state, GenerateState::kDone);
}

}  // namespace
}  // namespace tessera::caption_test
