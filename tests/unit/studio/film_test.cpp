// Clips that are watched: exact frames by number, steps both ways, times of their own, round and
// round; broken files, processes that die or hang; memory that does not grow with the length.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>

#include "apps/studio/event.h"
#include "apps/studio/film_worker.h"
#include "apps/studio/gallery.h"
#include "engine/core/io.h"
#include "tests/support/film_clips.h"
#include "tests/unit/studio/studio_run.h"
#include "vision/image/png.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool shows(const Snapshot& now, std::int64_t frame) {
  return now.film && now.film->frame == frame && now.film->wanted == frame;
}
bool is_frame(const Film& film, std::int64_t number) {
  return film.image != nullptr &&
         film.image->rgb == film_picture(film.image->width, film.image->height, number).rgb;
}
bool strip_is_whole(const Snapshot& now) {
  return now.film && !now.film->strip.empty() &&
         std::all_of(now.film->strip.begin(), now.film->strip.end(),
                     [](const auto& one) { return one.image || !one.problem.empty(); });
}

// Processes that this one started and that read clips.
int clip_processes() {
  int count = 0;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (std::string pid; children >> pid;) {
      std::string name;
      std::getline(std::ifstream("/proc/" + pid + "/comm") >> std::ws, name);
      count += name.starts_with("tessera-video") ? 1 : 0;
    }
  }
  return count;
}

struct FilmRun : StudioRun {
  fs::path clip(const std::string& name, std::int64_t frames, std::int64_t each) {
    write_film(folder / name, frames, each);
    return folder / name;
  }
  const Film& film() { return *studio.snapshot().film; }
  void open(const fs::path& path) {
    ASSERT_TRUE(studio.post(OpenFilmCommand{path}));
    ASSERT_TRUE(studio.snapshot().film);
    EXPECT_EQ(film().path, path);
    EXPECT_EQ(film().state, FilmState::kOpening);
    until([](const Snapshot& now) { return shows(now, 0); });
  }
};

TEST(Film, OpensWithItsFirstFrameItsTimesAndAStrip) {
  FilmRun run;
  run.open(run.clip("a.mkv", 40, 10));
  EXPECT_EQ(run.film().state, FilmState::kPaused);
  EXPECT_TRUE(is_frame(run.film(), 0));
  EXPECT_EQ(run.film().frames(), 40);
  EXPECT_EQ(run.film().codec, "ffv1");
  EXPECT_EQ(run.film().width, 64);
  EXPECT_EQ(run.film().height, 48);
  EXPECT_NEAR(run.film().seconds, 4.0, 1e-9);
  EXPECT_NEAR((*run.film().times)[39], 3.9, 1e-9);
  EXPECT_EQ(run.film().frame_at(1.25), 12);
  EXPECT_EQ(run.film().frame_at(-1), 0);
  EXPECT_EQ(run.film().frame_at(99), 39);
  run.until(strip_is_whole);
  ASSERT_EQ(run.film().strip.size(), kFilmThumbnails);
  for (std::size_t i = 0; i < kFilmThumbnails; ++i) {
    const FilmThumbnail& cell = run.film().strip[i];
    const double middle = (static_cast<double>(i) + 0.5) / kFilmThumbnails * 4.0;
    EXPECT_EQ(cell.frame, run.film().frame_at(middle)) << i;
    ASSERT_TRUE(cell.image) << cell.problem;
    EXPECT_EQ(cell.image->rgb, film_picture(64, 48, cell.frame).rgb) << "small already: as it is";
  }
  EXPECT_TRUE(run.studio.snapshot().problems.empty());
}

TEST(Film, SeeksEveryFrameExactly) {
  FilmRun run;
  run.open(run.clip("a.mkv", 90, 4));
  std::int64_t frame = 7;
  for (int i = 0; i < 60; ++i) {
    frame = (frame * 37 + 11) % 90;
    ASSERT_TRUE(run.studio.post(FilmSeekCommand{frame}));
    ASSERT_TRUE(run.until([&](const Snapshot& now) { return shows(now, frame); }));
    EXPECT_TRUE(is_frame(run.film(), frame)) << frame;
  }
  run.studio.post(FilmSeekCommand{-5});
  run.until([](const Snapshot& now) { return shows(now, 0); });
  run.studio.post(FilmSeekCommand{1'000'000'000'000});
  run.until([](const Snapshot& now) { return shows(now, 89); });
  EXPECT_TRUE(is_frame(run.film(), 89));
}

TEST(Film, StepsOneFrameBothWaysAndStopsAtTheEnds) {
  FilmRun run;
  run.open(run.clip("a.mkv", 30, 4));
  const auto step = [&](std::int64_t by, std::int64_t to) {
    ASSERT_TRUE(run.studio.post(FilmStepCommand{by}));
    ASSERT_TRUE(run.until([&](const Snapshot& now) { return shows(now, to); })) << to;
    EXPECT_TRUE(is_frame(run.film(), to)) << to;
  };
  for (std::int64_t i = 1; i < 30; ++i) step(1, i);
  step(1, 29);
  for (std::int64_t i = 28; i >= 0; --i) step(-1, i);
  step(-1, 0);
  // Presses that come faster than frames all count.
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(run.studio.post(FilmStepCommand{1}));
  run.until([](const Snapshot& now) { return shows(now, 12); });
  EXPECT_TRUE(is_frame(run.film(), 12));
  step(-10, 2);
  step(20, 22);
}

TEST(Film, PlaysToTheEndAndBeginsAnew) {
  FilmRun run;
  run.open(run.clip("a.mkv", 25, 2));  // half a second
  ASSERT_TRUE(run.studio.post(FilmLoopCommand{false}));
  const double start = monotonic_seconds();
  ASSERT_TRUE(run.studio.post(FilmPlayCommand{}));
  std::vector<std::int64_t> seen;
  ASSERT_TRUE(run.until([&](const Snapshot& now) {
    if (seen.empty() || seen.back() != now.film->frame) {
      seen.push_back(now.film->frame);
      EXPECT_TRUE(is_frame(*now.film, now.film->frame)) << now.film->frame;
    }
    return seen.size() > 1 && now.film->state == FilmState::kPaused;
  }));
  EXPECT_GE(monotonic_seconds() - start, 0.49) << "the last frame stays its time as well";
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), 24);
  EXPECT_GT(seen.size(), 3u);
  run.studio.post(FilmPlayCommand{true});  // from the end: from the start
  run.until([](const Snapshot& now) { return now.film->frame < 24; });
  EXPECT_EQ(run.film().state, FilmState::kPlaying);
  run.studio.post(FilmPlayCommand{});
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kPaused; });
}

TEST(Film, GoesRoundAndRound) {
  FilmRun run;
  run.open(run.clip("a.mkv", 12, 2));
  EXPECT_TRUE(run.film().loop);
  run.studio.post(FilmPlayCommand{true});
  int rounds = 0;
  std::int64_t before = 0;
  ASSERT_TRUE(run.until([&](const Snapshot& now) {
    if (now.film->frame < before) ++rounds;
    before = now.film->frame;
    EXPECT_NE(now.film->state, FilmState::kFailed);
    return rounds == 4;
  }));
  EXPECT_TRUE(is_frame(run.film(), run.film().frame));
  // What is wanted of one clip holds for the next.
  run.studio.post(FilmLoopCommand{});
  run.open(run.clip("b.mkv", 3, 2));
  EXPECT_FALSE(run.film().loop);
}

TEST(Film, FramesOfVariableRateStayTheirOwnTimes) {
  FilmRun run;
  const std::vector<std::int64_t> ticks = {0, 5, 35, 40, 70};
  write_film(run.folder / "v.mkv", 64, 48, ticks, 80);
  run.open(run.folder / "v.mkv");
  ASSERT_EQ(run.film().frames(), 5);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    EXPECT_NEAR((*run.film().times)[i], static_cast<double>(ticks[i]) / 100, 1e-9);
  }
  run.studio.post(FilmLoopCommand{false});
  run.until([](const Snapshot& now) { return !now.film->loop; });
  std::vector<double> came(5, 0);
  const double start = monotonic_seconds();
  run.studio.post(FilmPlayCommand{true});
  run.until([&](const Snapshot& now) {
    double& at = came[static_cast<std::size_t>(now.film->frame)];
    if (at == 0) at = monotonic_seconds() - start;
    return now.film->frame == 4;
  });
  // Never early; how late depends on the machine. The long stays are not cut short.
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    if (came[i] == 0) continue;
    EXPECT_GE(came[i], (*run.film().times)[i] - 0.002) << i;
  }
  EXPECT_GT(came[2], 0) << "it stays 50 ms";
  EXPECT_GT(came[4], 0);
}

TEST(Film, SpeedsAreTheNearestThatThereIs) {
  FilmRun run;
  run.open(run.clip("a.mkv", 100, 1));
  run.studio.post(FilmLoopCommand{false});
  run.studio.post(FilmSpeedCommand{0.3});
  run.until([](const Snapshot& now) { return now.film->speed == 0.25; });
  const double start = monotonic_seconds();
  run.studio.post(FilmSeekCommand{90});
  run.studio.post(FilmPlayCommand{true});
  run.until([](const Snapshot& now) { return now.film->frame == 99; });
  EXPECT_GE(monotonic_seconds() - start, 0.35) << "90 ms at a quarter of the speed";
  run.studio.post(FilmSpeedCommand{1e300});
  run.until([](const Snapshot& now) { return now.film->speed == 4; });
}

TEST(Film, AnotherOneStopsTheOneThatPlaysAtOnce) {
  FilmRun run;
  const fs::path first = run.clip("a.mkv", 200, 2);
  const fs::path second = run.clip("b.mkv", 5, 2);
  for (int i = 0; i < 5; ++i) {
    run.open(first);
    run.studio.post(FilmPlayCommand{true});
    run.until([](const Snapshot& now) { return now.film->frame > 2; });
    EXPECT_GE(clip_processes(), 1);
    ASSERT_TRUE(run.studio.post(OpenFilmCommand{second}));
    EXPECT_EQ(run.film().path, second) << "at once";
    EXPECT_EQ(run.film().image, nullptr);
    run.until([&](const Snapshot& now) {
      EXPECT_EQ(now.film->path, second) << "nothing more of the old one";
      EXPECT_EQ(now.film->frames() == 0 || now.film->frames() == 5, true);
      return shows(now, 0);
    });
    EXPECT_EQ(run.film().state, FilmState::kPaused);
  }
  ASSERT_TRUE(run.studio.post(CloseFilmCommand{}));
  EXPECT_FALSE(run.studio.snapshot().film);
  for (int i = 0; i < 5000 && clip_processes() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(clip_processes(), 0) << "no process is left behind";
  run.studio.update();
  EXPECT_FALSE(run.studio.snapshot().film);
  // Nobody minds orders without a clip.
  EXPECT_TRUE(run.studio.post(FilmPlayCommand{}));
  EXPECT_TRUE(run.studio.post(FilmSeekCommand{3}));
  EXPECT_TRUE(run.studio.post(CloseFilmCommand{}));
}

// Whatever is asked for in whatever order: a frame is always the one that its number says.
TEST(Film, AThousandOrdersInAnyOrder) {
  FilmRun run;
  const fs::path clips[] = {run.clip("a.mkv", 40, 1), run.clip("b.mkv", 3, 2),
                            run.clip("c.mkv", 120, 1)};
  std::uint32_t lot = 12345;
  const auto draw = [&lot](std::uint32_t most) {
    lot = lot * 1664525u + 1013904223u;
    return (lot >> 16) % most;
  };
  int frames = 0;
  const Image* seen = nullptr;
  for (int i = 0; i < 1000; ++i) {
    const auto one = draw(40);
    if (i % 150 == 0) {  // one while the other still opens
      run.studio.post(OpenFilmCommand{clips[draw(3)]});
      ASSERT_TRUE(run.studio.post(OpenFilmCommand{clips[draw(3)]}));
      run.until([](const Snapshot& now) { return now.film->frame >= 0; });
    } else if (i % 400 == 399) {
      run.studio.post(CloseFilmCommand{});
    } else if (one < 12) {
      run.studio.post(FilmSeekCommand{draw(130)});
    } else if (one < 22) {
      run.studio.post(FilmStepCommand{static_cast<std::int64_t>(draw(9)) - 4});
    } else if (one < 34) {
      run.studio.post(FilmPlayCommand{});
    } else if (one < 37) {
      run.studio.post(FilmSpeedCommand{draw(2) == 0 ? 4.0 : 0.5});
    } else {
      run.studio.post(FilmLoopCommand{});
    }
    if (draw(3) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(draw(12)));
    const Snapshot& now = run.studio.update();
    if (!now.film || now.film->image == nullptr || now.film->image.get() == seen) continue;
    seen = now.film->image.get();
    ASSERT_TRUE(is_frame(*now.film, now.film->frame)) << now.film->path << now.film->frame;
    ++frames;
  }
  EXPECT_GT(frames, 20) << "how many depends on the machine";
  EXPECT_TRUE(run.studio.snapshot().problems.empty());
  run.open(clips[2]);
}

TEST(Film, BrokenFilesAreProblemsThatNameThem) {
  FilmRun run;
  put_file(run.folder / "text.mp4", "no clip at all, whatever its name says");
  put_file(run.folder / "empty.mkv", "");
  run.clip("cut.mkv", 40, 4);
  fs::resize_file(run.folder / "cut.mkv", fs::file_size(run.folder / "cut.mkv") / 3);
  std::size_t problems = 0;
  for (const char* name : {"text.mp4", "empty.mkv", "cut.mkv", "missing.webm"}) {
    run.studio.post(OpenFilmCommand{run.folder / name});
    run.until([&](const Snapshot& now) {
      return now.film->state == FilmState::kFailed && now.problems.size() > problems;
    });
    EXPECT_EQ(run.film().error.file, (run.folder / name).string());
    const auto& all = run.studio.snapshot().problems;
    ASSERT_EQ(all.size(), ++problems) << name;
    EXPECT_NE(format_error(all.back()).find(name), std::string::npos) << format_error(all.back());
    EXPECT_TRUE(run.studio.post(FilmPlayCommand{})) << "a failed one hears nothing";
  }
  run.open(run.clip("good.mkv", 3, 4));
  EXPECT_TRUE(is_frame(run.film(), 0));
}

// The frames before the damage are whole: they play, and the last of them stays.
TEST(Film, DamageEndsTheClipWhereItIsReached) {
  FilmRun run;
  const fs::path path = run.clip("a.mkv", 60, 3);
  std::string bytes = get_file(path);
  const std::size_t at = bytes.size() * 2 / 3;
  for (std::size_t i = 0; i < 40; ++i) bytes[at + i] = static_cast<char>(~bytes[at + i]);
  put_file(path, bytes);
  run.open(path);
  run.studio.post(FilmLoopCommand{false});
  run.studio.post(FilmPlayCommand{true});
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kFailed; });
  EXPECT_GT(run.film().frame, 10) << format_error(run.film().error);
  EXPECT_LT(run.film().frame, 59);
  EXPECT_TRUE(is_frame(run.film(), run.film().frame)) << run.film().frame;
  run.until([](const Snapshot& now) { return !now.problems.empty(); });
  EXPECT_EQ(run.studio.snapshot().problems[0].file, path.string());
}

// The file stays readable while it is open; opened anew it is a problem.
TEST(Film, AFileThatVanishesPlaysOnAndDoesNotOpenAgain) {
  FilmRun run;
  const fs::path path = run.clip("a.mkv", 50, 3);
  run.open(path);
  run.until(strip_is_whole);
  fs::remove(path);
  run.studio.post(FilmSeekCommand{44});
  run.until([](const Snapshot& now) { return shows(now, 44); });
  EXPECT_TRUE(is_frame(run.film(), 44));
  run.studio.post(OpenFilmCommand{path});
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kFailed; });
  EXPECT_EQ(run.film().error.code, "E_IO_OPEN");
  EXPECT_EQ(run.film().error.file, path.string());
}

TEST(Film, AFileThatIsRewrittenIsAProblem) {
  FilmRun run;
  const fs::path path = run.folder / "a.mkv";
  write_film(path, 200, 2, 160, 120);  // larger than what is read ahead of it
  run.open(path);
  run.until(strip_is_whole);
  std::ofstream(path, std::ios::app) << "more";
  run.studio.post(FilmSeekCommand{150});
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kFailed; });
  EXPECT_EQ(run.film().error.code, "E_IO_CHANGED");
  EXPECT_TRUE(is_frame(run.film(), 0)) << "the last good frame stays";
}

// What a process that never answers costs: its own clip.
TEST(Film, AProcessThatHangsHoldsNobodyUp) {
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
  const auto open = [&](std::uint64_t number) {
    film.number = number;
    const double start = monotonic_seconds();
    const bool opened = films.open(film);
    EXPECT_LT(monotonic_seconds() - start, 0.5) << "the drawing thread waits for nobody";
    if (opened) apply(snapshot, FilmOpenedEvent{film});
    return opened;
  };
  for (std::uint64_t i = 1; i <= FilmWorker::kMostLeaving + 1; ++i) EXPECT_TRUE(open(i));
  EXPECT_FALSE(open(99)) << "so many that hang are enough";
  EXPECT_EQ(films.leaving(), FilmWorker::kMostLeaving);
  const auto update = [&] {
    for (Event& event : events.take()) apply(snapshot, std::move(event));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  for (int i = 0; i < 5000 && snapshot.film->state != FilmState::kFailed; ++i) update();
  EXPECT_EQ(snapshot.film->state, FilmState::kFailed);
  EXPECT_EQ(snapshot.film->number, FilmWorker::kMostLeaving + 1);
  EXPECT_NE(format_error(snapshot.film->error).find("a.mkv"), std::string::npos);
  for (int i = 0; i < 5000 && films.leaving() > 0; ++i) update();
  EXPECT_EQ(films.leaving(), 0u);
  for (int i = 0; i < 50; ++i) update();
  EXPECT_EQ(snapshot.problems.size(), 1u) << "those that were closed tell nothing any more";
  events.close();
}

TEST(Film, AProcessThatDiesIsAProblem) {
  StudioOptions options;
  options.clip_helper = "/bin/false";
  StudioRun run(options);
  write_film(run.folder / "a.mkv", 5, 4);
  run.studio.post(OpenFilmCommand{run.folder / "a.mkv"});
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kFailed; });
  EXPECT_EQ(run.studio.snapshot().film->error.code, "E_VIDEO_HELPER");
  EXPECT_NE(run.studio.snapshot().film->error.file.find("a.mkv"), std::string::npos);
}

// A clip whose frames are four times what may be kept, played, sought through and stepped back.
TEST(Film, MemoryIsBounded) {
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

TEST(Film, TheGalleryShowsClipsByTheirFirstFrame) {
  FilmRun run;
  fs::create_directory(run.folder / "pictures");
  run.clip("pictures/a.MKV.tmp", 3, 4);
  run.clip("pictures/b.mkv", 3, 4);
  put_file(run.folder / "pictures/bad.mp4", "nothing of the kind");
  put_file(run.folder / "pictures/notes.txt", "x");
  save_png(run.folder / "pictures/c.png", Image(4, 4));
  run.until([](const Snapshot& now) {
    return now.gallery.size() == 3 &&
           std::all_of(now.gallery.begin(), now.gallery.end(),
                       [](const auto& one) { return one.thumbnail || !one.problem.empty(); });
  });
  for (const GalleryEntry& one : run.studio.snapshot().gallery) {
    EXPECT_EQ(one.clip, one.path.extension() != ".png") << one.path;
    EXPECT_EQ(one.problem.empty(), one.path.filename() != "bad.mp4") << one.problem;
    if (one.path.filename() != "b.mkv") continue;
    EXPECT_EQ(one.thumbnail->rgb, film_picture(64, 48, 0).rgb);
    EXPECT_EQ(one.width, 64);
  }
  EXPECT_EQ(undescribed_pictures(run.folder / "pictures").pictures.size(), 1u)
      << "a clip is no picture to be described";
  for (const char* name : {"a.mp4", "a.MOV", "a.mkv", "a.webm", "a.avi"}) {
    EXPECT_TRUE(is_clip_name(name)) << name;
  }
  for (const char* name : {"a.png", ".a.mp4", "mp4", "a.mp4.txt", ""}) {
    EXPECT_FALSE(is_clip_name(name)) << name;
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
  EXPECT_EQ(playing.ahead + playing.behind + 1, 9);
  EXPECT_GT(playing.ahead, playing.behind);
  EXPECT_GT(still.behind, still.ahead);
  // Larger frames make room for themselves.
  ring.put(99, image(40), ring.window(99, 100, false, false), false);
  EXPECT_LE(ring.size(), 2u);
  EXPECT_NE(ring.get(99), nullptr);
  EXPECT_LE(ring.bytes(), 2u * 40 * 40 * 3);
  ring.clear();
  EXPECT_EQ(ring.bytes(), 0u);
}

TEST(FrameRing, RoundAndRoundTheFirstFollowsTheLast) {
  FrameWindow window{.at = 8, .count = 10, .ahead = 3, .behind = 1, .round = true};
  std::set<std::int64_t> held;
  for (std::int64_t i = -3; i < 13; ++i) {
    if (window.holds(i)) held.insert(i);
  }
  EXPECT_EQ(held, (std::set<std::int64_t>{7, 8, 9, 0, 1}));
  window.round = false;
  EXPECT_FALSE(window.holds(0));
  EXPECT_TRUE(window.holds(9));
  window = {.at = 0, .count = 10, .ahead = 1, .behind = 2, .round = true};
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

TEST(FilmEvents, OneOfAClipWaitsAtMostAndTheLastIsNeverLost) {
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
}  // namespace tessera
