// Keys and buttons of the open video.
#include "apps/viewer/film_actions.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Where a jump of a 24th of the time leads: to another frame in any case.
std::int64_t jumped(const Film& film, int direction) {
  if (film.frames() == 0) return 0;
  const double now = nth((*film.times), std::max<std::int64_t>(film.wanted, 0));
  const double part = film.seconds / to_double(kFilmThumbnails);
  const std::int64_t to = film.frame_at(now + direction * part);
  return direction > 0 ? std::max(to, film.wanted + 1) : std::min(to, film.wanted - 1);
}

double next_speed(double now, int steps) {
  const auto* const first = std::begin(kFilmSpeeds);
  const auto* const last = std::end(kFilmSpeeds) - 1;
  const auto* here = std::find(first, last + 1, now);
  if (here > last) return 1;
  return *std::clamp(here + steps, first, last);
}

void look_at_film(UiState& state, const Snapshot& snapshot) {
  state.shown = {0, snapshot.film->path};
  state.follow = false;
  state.mode = StageMode::kImage;
}

void close_film(UiState& state, const Snapshot& snapshot, const Poster& post) {
  const std::filesystem::path path = snapshot.film->path;
  if (!post(CloseFilmCommand{}) || state.shown.file != path) return;
  state.shown = {};
  state.follow = true;
}

// What the open video is notified. Empty for other actions.
std::optional<Command> film_command(Action action, const Film& film) {
  switch (action) {
    case Action::kFilmPlay:
      return FilmPlayCommand{};
    case Action::kFilmBack:
      return FilmStepCommand{-1};
    case Action::kFilmOn:
      return FilmStepCommand{1};
    case Action::kFilmJumpBack:
      return FilmSeekCommand{jumped(film, -1)};
    case Action::kFilmJumpOn:
      return FilmSeekCommand{jumped(film, 1)};
    case Action::kFilmStart:
      return FilmSeekCommand{0};
    case Action::kFilmEnd:
      return FilmSeekCommand{film.frames() - 1};
    case Action::kFilmLoop:
      return FilmLoopCommand{};
    case Action::kFilmSlower:
      return FilmSpeedCommand{next_speed(film.speed, -1)};
    case Action::kFilmFaster:
      return FilmSpeedCommand{next_speed(film.speed, 1)};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool use_film(Action action, UiState& state, const Snapshot& snapshot, const Poster& post) {
  const bool whole = action == Action::kFilmView || action == Action::kFilmClose;
  if (!whole && !film_command(action, Film{})) return false;
  if (!snapshot.film) {
    state.notice = "no video is open: drop one here, or choose one of the gallery";
    return true;
  }
  if (action == Action::kFilmClose) {
    close_film(state, snapshot, post);
    return true;
  }
  if (!whole && snapshot.film->state == FilmState::kFailed) {
    state.notice = "this video cannot be played; see the problems";
    return true;
  }
  // Whoever uses the video sees it.
  if (whole || !film_in_sight(state, snapshot)) look_at_film(state, snapshot);
  if (!whole && !post(*film_command(action, *snapshot.film))) state.notice = "the queue is full";
  return true;
}

}  // namespace tessera
