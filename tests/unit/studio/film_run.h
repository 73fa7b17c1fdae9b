// A studio that watches videos which the test writes, and what is to be asked of what it shows.
#pragma once

#include <algorithm>

#include "tests/support/film_videos.h"
#include "tests/unit/studio/studio_run.h"

namespace tessera {

inline bool shows(const Snapshot& now, std::int64_t frame) {
  return now.film && now.film->frame == frame && now.film->wanted == frame;
}
inline bool is_frame(const Film& film, std::int64_t number) {
  return film.image != nullptr &&
         film.image->rgb == film_image(film.image->width, film.image->height, number).rgb;
}
inline bool strip_is_whole(const Snapshot& now) {
  return now.film && !now.film->strip.empty() &&
         std::all_of(now.film->strip.begin(), now.film->strip.end(),
                     [](const auto& one) { return one.image || !one.problem.empty(); });
}

struct FilmRun : StudioRun {
  using StudioRun::StudioRun;

  std::filesystem::path video(const std::string& name, std::int64_t frames, std::int64_t each) {
    write_film(folder / name, frames, each);
    return folder / name;
  }
  const Film& film() { return *studio.snapshot().film; }
  void open(const std::filesystem::path& path) {
    ASSERT_TRUE(studio.post(OpenFilmCommand{path}));
    ASSERT_TRUE(studio.snapshot().film);
    EXPECT_EQ(film().path, path);
    EXPECT_EQ(film().state, FilmState::kOpening);
    until([](const Snapshot& now) { return shows(now, 0); });
  }
};

}  // namespace tessera
