// What videos may cost: processes that die or hang, memory that does not grow with the length,
// events that pile up; and videos in the gallery.
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "apps/studio/event.h"
#include "apps/studio/film_worker.h"
#include "apps/studio/gallery.h"
#include "engine/core/io.h"
#include "tests/unit/studio/film_run.h"
#include "vision/image/png.h"

namespace tessera::film_limits_test {
namespace {

namespace fs = std::filesystem;

// What a process that never answers costs: its own video.
TEST(FilmLimits, AProcessThatHangsHoldsNobodyUp) {
  TempFolder folder;
  write_film(folder / "a.mkv", 5, 4);
  put_file(folder / "hang", "#!/bin/sh\nexec sleep 100\n");
  fs::permissions(folder / "hang", fs::perms::owner_all);
  EventQueue events(64);
  Snapshot snapshot;
  FilmOptions options{.program = folder / "hang", .deadline_seconds = 0.7};
  FilmWorker films(options, events);
  Film film;
  film.path = folder / "a.mkv";
  const auto update = [&] {
    for (Event& event : events.take()) apply(snapshot, std::move(event));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  const auto open = [&](std::uint64_t number) {
    film.number = number;
    const double start = monotonic_seconds();
    const bool opened = films.open(film);
    EXPECT_LT(monotonic_seconds() - start, 0.5) << "the drawing thread waits for nobody";
    EXPECT_LE(films.leaving(), FilmWorker::kMaxLeaving);
    if (opened) apply(snapshot, FilmOpenedEvent{film});
    return opened;
  };
  constexpr std::uint64_t kOpened = 12;  // each ends the process of the one before
  for (std::uint64_t i = 1; i <= kOpened; ++i) {
    for (int tries = 0; tries < 5000 && !open(i); ++tries) update();
    EXPECT_EQ(snapshot.film->number, i);
  }
  for (int i = 0; i < 5000 && snapshot.film->state != FilmState::kFailed; ++i) update();
  EXPECT_EQ(snapshot.film->state, FilmState::kFailed);
  EXPECT_EQ(snapshot.film->number, kOpened);
  EXPECT_EQ(snapshot.film->error.code, "E_VIDEO_LATE");
  EXPECT_NE(format_error(snapshot.film->error).find("a.mkv"), std::string::npos);
  for (int i = 0; i < 5000 && films.leaving() > 0; ++i) update();
  EXPECT_EQ(films.leaving(), 0u);
  for (int i = 0; i < 50; ++i) update();
  EXPECT_EQ(snapshot.problems.size(), 1u) << "those that were closed tell nothing any more";
  events.close();
}

TEST(FilmLimits, AProcessThatDiesIsAProblem) {
  StudioOptions options;
  options.video_helper = "/bin/false";
  StudioRun run(options);
  write_film(run.folder / "a.mkv", 5, 4);
  run.studio.post(OpenFilmCommand{run.folder / "a.mkv"});
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kFailed; });
  EXPECT_EQ(run.studio.snapshot().film->error.code, "E_VIDEO_HELPER");
  EXPECT_NE(run.studio.snapshot().film->error.file.find("a.mkv"), std::string::npos);
}

// A video whose frames are four times what may be kept, played, sought through and stepped back.
TEST(FilmLimits, MemoryIsBounded) {
  TempFolder folder;
  write_film(folder / "a.mkv", 80, 1, 160, 120);
  constexpr std::size_t kFrame = 160 * 120 * 3, kKept = 20 * kFrame;
  EventQueue events(256);
  Snapshot snapshot;
  FilmWorker films({.program = {}, .deadline_seconds = 60, .kept_bytes = kKept}, events);
  Film film;
  film.number = 1;
  film.path = folder / "a.mkv";
  ASSERT_TRUE(films.open(film));
  apply(snapshot, FilmOpenedEvent{film});
  std::uint64_t most = 0;
  const auto until = [&](const auto& there) {
    for (int i = 0; i < 60000; ++i) {
      for (Event& event : events.take()) {
        if (auto* one = std::get_if<FilmEvent>(&event)) {
          most = std::max(most, one->film.kept_bytes);
        }
        apply(snapshot, std::move(event));
      }
      if (there()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  };
  ASSERT_TRUE(until([&] { return shows(snapshot, 0); }));
  films.post(FilmPlayCommand{true});
  int rounds = 0;
  std::int64_t before = 0;
  ASSERT_TRUE(until([&] {
    rounds += snapshot.film->frame < before ? 1 : 0;
    before = snapshot.film->frame;
    return rounds == 2;
  }));
  for (std::int64_t frame : {70, 3, 41, 79}) {
    films.post(FilmSeekCommand{frame});
    films.post(FilmPlayCommand{false});
    ASSERT_TRUE(until([&] { return shows(snapshot, frame); }));
  }
  for (std::int64_t frame = 78; frame >= 40; --frame) {
    films.post(FilmStepCommand{-1});
    ASSERT_TRUE(until([&] { return shows(snapshot, frame); }));
    EXPECT_TRUE(is_frame(*snapshot.film, frame)) << frame;
  }
  EXPECT_LE(most, kKept);
  EXPECT_GE(most, 10 * kFrame) << "frames are kept indeed";
  events.close();
}

TEST(FilmLimits, TheGalleryShowsVideosByTheirFirstFrame) {
  FilmRun run;
  fs::create_directory(run.folder / "pictures");
  run.video("pictures/a.MKV.tmp", 3, 4);
  run.video("pictures/b.mkv", 3, 4);
  put_file(run.folder / "pictures/bad.mp4", "nothing of the kind");
  put_file(run.folder / "pictures/notes.txt", "x");
  save_png(run.folder / "pictures/c.png", Image(4, 4));
  run.until([](const Snapshot& now) {
    return now.gallery.size() == 3 &&
           std::all_of(now.gallery.begin(), now.gallery.end(),
                       [](const auto& one) { return one.thumbnail || !one.problem.empty(); });
  });
  for (const GalleryEntry& one : run.studio.snapshot().gallery) {
    EXPECT_EQ(one.video, one.path.extension() != ".png") << one.path;
    EXPECT_EQ(one.problem.empty(), one.path.filename() != "bad.mp4") << one.problem;
    if (one.path.filename() != "b.mkv") continue;
    EXPECT_EQ(one.thumbnail->rgb, film_image(64, 48, 0).rgb);
    EXPECT_EQ(one.width, 64);
  }
  EXPECT_EQ(undescribed_images(run.folder / "pictures").images.size(), 1u)
      << "a video is no image to be described";
  for (const char* name : {"a.mp4", "a.MOV", "a.mkv", "a.webm", "a.avi"}) {
    EXPECT_TRUE(is_video_name(name)) << name;
  }
  for (const char* name : {"a.png", ".a.mp4", "mp4", "a.mp4.txt", ""}) {
    EXPECT_FALSE(is_video_name(name)) << name;
  }
}

TEST(FrameRing, KeepsWhatIsAroundWithinItsBytes) {
  const auto image = [](std::int64_t side) { return std::make_shared<const Image>(side, side); };
  constexpr std::size_t kFrame = 10 * 10 * 3;
  FrameRing ring(9 * kFrame);
  for (std::int64_t at = 0; at < 100; ++at) {
    for (std::int64_t frame = at; frame < at + 10; ++frame) {
      ring.put(frame, image(10), ring.window(at, 100, true, false), true);
      EXPECT_LE(ring.bytes(), 9 * kFrame);
    }
    EXPECT_NE(ring.get(at), nullptr);
  }
  EXPECT_EQ(ring.get(50), nullptr);
  const FrameWindow playing = ring.window(50, 100, true, false);
  const FrameWindow still = ring.window(50, 100, false, false);
  EXPECT_EQ(playing.ahead + playing.after + 1, 9);
  EXPECT_GT(playing.ahead, playing.after);
  EXPECT_GT(still.after, still.ahead);
  // Larger frames make room for themselves.
  ring.put(99, image(40), ring.window(99, 100, false, false), false);
  EXPECT_LE(ring.size(), 2u);
  EXPECT_NE(ring.get(99), nullptr);
  EXPECT_LE(ring.bytes(), 2u * 40 * 40 * 3);
  ring.clear();
  EXPECT_EQ(ring.bytes(), 0u);
}

TEST(FrameRing, RoundAndRoundTheFirstFollowsTheLast) {
  FrameWindow window{.at = 8, .count = 10, .ahead = 3, .after = 1, .round = true};
  std::set<std::int64_t> held;
  for (std::int64_t i = -3; i < 13; ++i) {
    if (window.holds(i)) held.insert(i);
  }
  EXPECT_EQ(held, (std::set<std::int64_t>{7, 8, 9, 0, 1}));
  window.round = false;
  EXPECT_FALSE(window.holds(0));
  EXPECT_TRUE(window.holds(9));
  window = {.at = 0, .count = 10, .ahead = 1, .after = 2, .round = true};
  EXPECT_TRUE(window.holds(9));
  EXPECT_TRUE(window.holds(8));
  EXPECT_FALSE(window.holds(7));
}

Film of_number(std::uint64_t number, std::int64_t frame, FilmState state) {
  Film out;
  out.number = number;
  out.frame = frame;
  out.state = state;
  return out;
}

TEST(FilmEvents, OnlyTheNewestOpeningCounts) {
  Snapshot snapshot;
  apply(snapshot, FilmEvent{of_number(1, 3, FilmState::kPaused)});
  EXPECT_FALSE(snapshot.film) << "nothing is open";
  apply(snapshot, FilmOpenedEvent{of_number(2, -1, FilmState::kOpening)});
  apply(snapshot, FilmThumbnailEvent{1, 0, 3, {7, nullptr, ""}});
  apply(snapshot, FilmEvent{of_number(1, 3, FilmState::kPaused)});
  EXPECT_EQ(snapshot.film->frame, -1);
  EXPECT_TRUE(snapshot.film->strip.empty());
  apply(snapshot, FilmThumbnailEvent{2, 1, 3, {7, nullptr, ""}});
  apply(snapshot, FilmThumbnailEvent{2, 3, 3, {8, nullptr, ""}});
  apply(snapshot, FilmEvent{of_number(2, 5, FilmState::kPlaying)});
  EXPECT_EQ(snapshot.film->frame, 5);
  ASSERT_EQ(snapshot.film->strip.size(), 3u) << "the strip stays";
  EXPECT_EQ(snapshot.film->strip[1].frame, 7);
  apply(snapshot, FilmClosedEvent{});
  apply(snapshot, FilmEvent{of_number(2, 6, FilmState::kPlaying)});
  EXPECT_FALSE(snapshot.film);
}

TEST(FilmEvents, OneOfAVideoWaitsAtMostAndTheLastIsNeverLost) {
  EventQueue queue(2);
  for (std::int64_t frame = 0; frame < 50; ++frame) {
    const bool plays = frame % 2 == 0;
    queue.push(FilmEvent{of_number(1, frame, plays ? FilmState::kPlaying : FilmState::kPaused)});
  }
  EXPECT_EQ(queue.size(), 1u);
  queue.push(FilmThumbnailEvent{1, 0, 1, {}});
  EXPECT_FALSE(queue.push(FilmEvent{of_number(2, 0, FilmState::kPlaying)})) << "no room, no wait";
  EXPECT_TRUE(queue.push(FilmEvent{of_number(1, 51, FilmState::kPaused)})) << "takes its place";
  const std::vector<Event> events = queue.take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<FilmEvent>(events[0]).film.frame, 51);
}

}  // namespace
}  // namespace tessera::film_limits_test
