// Videos that are damaged after a single key frame, strips that follow a video's length, and videos
// that are closed while their processes work.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "engine/core/io.h"
#include "tests/unit/studio/film_run.h"
#include "tests/support/packets.h"
#include "video/frame_reader.h"
#include "vision/image/image_reader.h"

namespace tessera::film_damage_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFrames = 320, kDamaged = 170;

void put_video(const fs::path& path, const MemoryFile& file) {
  put_file(path, std::string(file.bytes.begin(), file.bytes.end()));
}

// All frames after one key frame.
MemoryFile one_group() {
  std::vector<std::int64_t> ticks(kFrames);
  std::iota(ticks.begin(), ticks.end(), 0);
  return muxed(encoded("mpeg4", 64, 48, ticks, {{"g", "600"}, {"bf", "0"}}), "mp4");
}

void damage(MemoryFile& file, std::size_t number) {
  const StoredPacket packet = demuxed(file).packets[number];
  ASSERT_FALSE(packet.key);
  for (std::size_t i = 0; i < packet.data.size(); ++i) file.bytes[packet.offset + i] = 0xff;
}

// The real process, counted by a line in a file for each.
fs::path counted_helper(const TempFolder& folder) {
  const fs::path real = helper_next_to_program().parent_path() / "tessera-video";
  put_file(folder / "counted", "#!/bin/sh\necho >> '" + (folder / "starts").string() + "'\nexec '" +
                                   real.string() + "' \"$@\"\n");
  fs::permissions(folder / "counted", fs::perms::owner_all);
  return folder / "counted";
}

std::vector<VideoFrame> frames_of(const fs::path& path) {
  FrameReader reader(path);
  std::vector<VideoFrame> out;
  while (std::optional<VideoFrame> frame = reader.next()) out.push_back(std::move(*frame));
  return out;
}

TEST(FilmDamage, ASeekAfterItFindsItInFewSteps) {
  TempFolder helpers;
  StudioOptions options;
  options.video_helper = counted_helper(helpers);
  FilmRun run(options);
  MemoryFile file = one_group();
  put_video(run.folder / "whole.mp4", file);
  const std::vector<VideoFrame> whole = frames_of(run.folder / "whole.mp4");
  ASSERT_EQ(whole.size(), static_cast<std::size_t>(kFrames));
  damage(file, kDamaged);
  const fs::path path = run.folder / "damaged.mp4";
  put_video(path, file);
  run.open(path);
  EXPECT_EQ(run.film().frames(), kFrames);

  ASSERT_TRUE(run.studio.post(FilmSeekCommand{kFrames - 1}));
  std::int64_t good = 0;
  ASSERT_TRUE(run.until([&](const Snapshot& now) {
    const Film& film = *now.film;
    if (film.search) {
      EXPECT_EQ(film.error.code, "E_VIDEO_DATA") << "it is notified what is looked for";
      EXPECT_GE(film.search->good, good);
      EXPECT_LT(film.search->good, film.search->bad);
      EXPECT_EQ(film.frame, film.search->good) << "what is whole is shown meanwhile";
      good = film.search->good;
    }
    return film.taken == film.asked && film.frame == film.wanted && !film.search;
  }));
  EXPECT_GE(run.film().probes, 7);
  EXPECT_LE(run.film().probes, 9) << "halves of 320";
  EXPECT_EQ(run.film().state, FilmState::kPaused);
  EXPECT_EQ(run.film().error.code, "E_VIDEO_DATA");
  EXPECT_EQ(run.film().frames(), kDamaged) << "the video ends before its damage";
  EXPECT_EQ(run.film().frame, kDamaged - 1);
  EXPECT_EQ(run.film().image->rgb, whole[kDamaged - 1].rgb);
  ASSERT_EQ(run.studio.snapshot().problems.size(), 1u) << "told once";
  EXPECT_EQ(run.studio.snapshot().problems[0].file, path.string());

  // The small images are those of what is left.
  run.until(strip_is_whole);
  ASSERT_EQ(run.film().strip.size(), kFilmThumbnails);
  for (std::size_t i = 0; i < kFilmThumbnails; ++i) {
    const FilmThumbnail& cell = run.film().strip[i];
    const double middle = (static_cast<double>(i) + 0.5) / kFilmThumbnails * run.film().seconds;
    EXPECT_EQ(cell.frame, run.film().frame_at(middle)) << i;
    ASSERT_TRUE(cell.image) << cell.problem;
    EXPECT_EQ(cell.image->rgb, whole[static_cast<std::size_t>(cell.frame)].rgb) << i;
  }
  EXPECT_LE(get_file(helpers / "starts").size(), 10u) << "not a process for each step";
}

// A request that comes while it looks is heard.
TEST(FilmDamage, AnotherStopRequestEndsTheSearch) {
  FilmRun run;
  const fs::path path = run.folder / "damaged.mp4";
  MemoryFile file = one_group();
  put_video(path, file);
  const std::vector<VideoFrame> whole = frames_of(path);
  damage(file, kDamaged);
  put_video(path, file);
  for (int i = 0; i < 5; ++i) {
    run.open(path);
    run.studio.post(FilmSeekCommand{kFrames - 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(i * 8));
    run.studio.post(FilmSeekCommand{20});
    run.until([](const Snapshot& now) { return shows(now, 20); });
    EXPECT_FALSE(run.film().search);
    EXPECT_EQ(run.film().image->rgb, whole[20].rgb);
  }
  run.studio.post(FilmSeekCommand{kFrames - 1});
  run.until([](const Snapshot& now) { return shows(now, kDamaged - 1); });
  EXPECT_EQ(run.film().frames(), kDamaged);
}

TEST(FilmDamage, AClosedVideoKeepsNoFrames) {
  FilmRun run;
  run.open(run.video("a.mkv", 40, 4));
  const std::weak_ptr<const Image> first = run.film().image;
  for (std::int64_t i = 1; i < 4; ++i) {
    run.studio.post(FilmStepCommand{1});
    run.until([&](const Snapshot& now) { return shows(now, i); });
  }
  const std::weak_ptr<const Image> shown = run.film().image;
  EXPECT_FALSE(first.expired()) << "kept for a step back";
  ASSERT_TRUE(run.studio.post(CloseFilmCommand{}));
  run.until([&](const Snapshot&) { return first.expired() && shown.expired(); });
}

// A process that works on a long answer is killed when nobody wants it any more.
TEST(FilmDamage, ClosingWaitsForNoAnswer) {
  TempFolder folder;
  write_film(folder / "a.mkv", 5, 4);
  put_file(folder / "hang", "#!/bin/sh\nexec sleep 100\n");
  fs::permissions(folder / "hang", fs::perms::owner_all);
  const double start = monotonic_seconds();
  for (int i = 0; i < 3; ++i) {
    StudioOptions options;
    options.video_helper = folder / "hang";
    StudioRun run(options);
    ASSERT_TRUE(run.studio.post(OpenFilmCommand{folder / "a.mkv"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(i * 40));
  }
  EXPECT_LT(monotonic_seconds() - start, 20) << "an answer may take 60 s";
}

TEST(FilmDamage, AnInterruptedReaderEndsItsAnswer) {
  TempFolder folder;
  write_film(folder / "a.mkv", 5, 4);
  put_file(folder / "hang", "#!/bin/sh\nexec sleep 100\n");
  fs::permissions(folder / "hang", fs::perms::owner_all);
  FrameReaderOptions options;
  options.process.interrupt = std::make_shared<VideoInterrupt>();
  FrameReader healthy(folder / "a.mkv", options);
  EXPECT_TRUE(healthy.next());
  options.process.program = folder / "hang";
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    options.process.interrupt->fire();
  });
  const double start = monotonic_seconds();
  const auto code_of = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      return error.info().code;
    }
    return "";
  };
  EXPECT_EQ(code_of([&] { FrameReader(folder / "a.mkv", options); }), "E_VIDEO_HELPER");
  other.join();
  EXPECT_EQ(code_of([&] { healthy.frame_at(0); }), "E_VIDEO_HELPER") << "all that it was given to";
  EXPECT_EQ(code_of([&] { FrameReader(folder / "a.mkv", options); }), "E_VIDEO_HELPER")
      << "those that start later too";
  EXPECT_LT(monotonic_seconds() - start, 20);
}

}  // namespace
}  // namespace tessera::film_damage_test
