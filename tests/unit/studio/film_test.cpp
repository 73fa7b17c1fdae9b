// Videos that are watched: exact frames by number, steps both ways, times of their own, round and
// round; another one in their place; broken files.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "engine/core/io.h"
#include "tests/unit/studio/film_run.h"

namespace tessera::film_test {
namespace {

namespace fs = std::filesystem;

// Processes that this one started and that read videos.
int video_processes() {
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

TEST(Film, OpensWithItsFirstFrameItsTimesAndAStrip) {
  FilmRun run;
  run.open(run.video("a.mkv", 40, 10));
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
    EXPECT_EQ(cell.image->rgb, film_image(64, 48, cell.frame).rgb) << "small already: as it is";
  }
  EXPECT_TRUE(run.studio.snapshot().problems.empty());
}

TEST(Film, SeeksEveryFrameExactly) {
  FilmRun run;
  run.open(run.video("a.mkv", 90, 4));
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
  run.open(run.video("a.mkv", 30, 4));
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
  run.open(run.video("a.mkv", 25, 2));  // half a second
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
  run.open(run.video("a.mkv", 12, 2));
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
  // What is wanted of one video holds for the next.
  run.studio.post(FilmLoopCommand{});
  run.open(run.video("b.mkv", 3, 2));
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
  run.open(run.video("a.mkv", 100, 1));
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
  const fs::path first = run.video("a.mkv", 200, 2);
  const fs::path second = run.video("b.mkv", 5, 2);
  for (int i = 0; i < 5; ++i) {
    run.open(first);
    run.studio.post(FilmPlayCommand{true});
    run.until([](const Snapshot& now) { return now.film->frame > 2; });
    EXPECT_GE(video_processes(), 1);
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
  // A list of children may miss one while another ends (proc_pid_children(5)).
  int none = 0;
  for (int i = 0; i < 5000 && none < 10; ++i) {
    none = video_processes() == 0 ? none + 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(none, 10) << "no process is left over";
  run.studio.update();
  EXPECT_FALSE(run.studio.snapshot().film);
  // Nobody minds orders without a video.
  EXPECT_TRUE(run.studio.post(FilmPlayCommand{}));
  EXPECT_TRUE(run.studio.post(FilmSeekCommand{3}));
  EXPECT_TRUE(run.studio.post(CloseFilmCommand{}));
}

// Whatever is asked for in whatever order: a frame is always the one that its number says.
TEST(Film, AThousandOrdersInAnyOrder) {
  FilmRun run;
  const fs::path videos[] = {run.video("a.mkv", 40, 1), run.video("b.mkv", 3, 2),
                            run.video("c.mkv", 120, 1)};
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
      run.studio.post(OpenFilmCommand{videos[draw(3)]});
      ASSERT_TRUE(run.studio.post(OpenFilmCommand{videos[draw(3)]}));
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
  run.open(videos[2]);
}

TEST(Film, BrokenFilesAreProblemsThatNameThem) {
  FilmRun run;
  put_file(run.folder / "text.mp4", "no video at all, whatever its name says");
  put_file(run.folder / "empty.mkv", "");
  run.video("cut.mkv", 40, 4);
  fs::resize_file(run.folder / "cut.mkv", 300);
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
  run.open(run.video("good.mkv", 3, 4));
  EXPECT_TRUE(is_frame(run.film(), 0));
}

// The frames before the damage are whole: they play, and can be gone through after it was met.
TEST(Film, AVideoEndsBeforeItsDamage) {
  FilmRun run;
  const fs::path path = run.video("a.mkv", 60, 3);
  std::string bytes = get_file(path);
  const std::size_t at = bytes.size() * 2 / 3;
  for (std::size_t i = 0; i < 40; ++i) bytes[at + i] = static_cast<char>(~bytes[at + i]);
  put_file(path, bytes);
  run.open(path);
  EXPECT_EQ(run.film().frames(), 60);
  run.studio.post(FilmLoopCommand{false});
  run.studio.post(FilmPlayCommand{true});
  run.until([](const Snapshot& now) {
    return now.film->state == FilmState::kPaused && !now.problems.empty();
  });
  EXPECT_FALSE(run.film().error.code.empty());
  const std::int64_t last = run.film().frames() - 1;
  EXPECT_GT(last, 10) << format_error(run.film().error);
  EXPECT_LT(last, 59);
  EXPECT_EQ(run.film().frame, last);
  for (const std::int64_t frame : {last, last - 1, std::int64_t{0}, last}) {
    run.studio.post(FilmSeekCommand{frame});
    run.until([&](const Snapshot& now) { return shows(now, frame); });
    EXPECT_TRUE(is_frame(run.film(), frame)) << frame;
  }
  run.studio.post(FilmStepCommand{1});
  run.studio.post(FilmPlayCommand{true});
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kPlaying; });
  run.until([](const Snapshot& now) { return now.film->state == FilmState::kPaused; });
  ASSERT_EQ(run.studio.snapshot().problems.size(), 1u) << "told once";
  EXPECT_EQ(run.studio.snapshot().problems[0].file, path.string());
}

TEST(Film, ACutFileShowsTheFramesThatAreWhole) {
  FilmRun run;
  const fs::path path = run.video("cut.mkv", 60, 3);
  fs::resize_file(path, fs::file_size(path) / 2);
  run.open(path);
  EXPECT_EQ(run.film().error.code, "E_VIDEO_CUT");
  ASSERT_EQ(run.studio.snapshot().problems.size(), 1u);
  EXPECT_EQ(run.studio.snapshot().problems[0].file, path.string());
  const std::int64_t last = run.film().frames() - 1;
  EXPECT_GT(last, 10);
  EXPECT_LT(last, 50);
  for (const std::int64_t frame : {last, std::int64_t{3}}) {
    run.studio.post(FilmSeekCommand{frame});
    run.until([&](const Snapshot& now) { return shows(now, frame); });
    EXPECT_TRUE(is_frame(run.film(), frame)) << frame;
  }
}

// The file stays readable while it is open; opened anew it is a problem.
TEST(Film, AFileThatVanishesPlaysOnAndDoesNotOpenAgain) {
  FilmRun run;
  const fs::path path = run.video("a.mkv", 50, 3);
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

}  // namespace
}  // namespace tessera::film_test
