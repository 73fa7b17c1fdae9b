// Videos that are damaged or cut: their frames are counted by decoding, and they end before the
// first frame that cannot be decoded.
#include <algorithm>

#include "apps/studio/film_session.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr double kCountSeconds = 5;  // for the frames of a file that cannot be looked through
constexpr int kMaxProbes = 10;      // by halves; then frame by frame

}  // namespace

// A file that is cut does not tell the times of its frames; those that are whole do.
void FilmSession::count_frames(ErrorInfo why) {
  reopen();
  const double until = monotonic_seconds() + kCountSeconds;
  try {
    while (!ending_ && monotonic_seconds() < until) {
      const std::optional<VideoFrame> frame = reader_->next();
      if (!frame) break;
      if (ticks_.empty() || frame->ticks > ticks_.back()) ticks_.push_back(frame->ticks);
    }
  } catch (const Error& error) {
    if (!is_film_damage(error.info())) throw;
    why = error.info();
  }
  if (ticks_.empty()) throw Error(why);
  tell_damage(std::move(why));
  reopen();
}

void FilmSession::tell_damage(ErrorInfo info) {
  if (info.file.empty()) info.file = film_.path.string();
  if (film_.error.code.empty() && !ending_) events_.push(ProblemEvent{info});
  film_.error = std::move(info);
}

// The video ends before a frame that cannot be decoded.
void FilmSession::end_before(std::int64_t frame, const ErrorInfo& info) {
  film_.search.reset();
  if (frame == 0 || !is_film_damage(info)) throw Error(info);
  film_.state = FilmState::kPaused;
  tell_damage(info);
  reopen();
  ahead_error_.reset();
  leave_out(frame, film_.frames());
  if (film_.frame == film_.wanted) tell();
}

// A place was sought and not reached: the damage lies somewhere before. It is looked for between
// the last frame known to be whole and this one.
void FilmSession::begin_search(std::int64_t bad, const ErrorInfo& info) {
  if (bad == 0 || !is_film_damage(info)) throw Error(info);
  film_.state = FilmState::kPaused;
  tell_damage(info);
  const bool before = film_.frame >= 0 && film_.frame < bad;
  film_.search = FilmSearch{.good = before ? film_.frame : 0, .bad = bad};
  film_.probes = 0;
  tell();
}

// One step of it. What is whole is shown meanwhile.
void FilmSession::search() {
  const std::int64_t good = film_.search->good, bad = film_.search->bad;
  if (bad - good <= 1) {
    const ErrorInfo info = film_.error;
    return end_before(bad, info);
  }
  const bool halve = film_.probes < kMaxProbes;
  const std::int64_t probe = halve ? good + (bad - good) / 2 : good + 1;
  ++film_.probes;
  try {
    if (std::shared_ptr<const Image> image = read(probe)) {
      film_.search->good = film_.frame = probe;
      film_.image = std::move(image);
    }
  } catch (const Error& error) {
    if (!is_film_damage(error.info())) throw;
    tell_damage(error.info());
    film_.search->bad = probe;
  }
  if (film_.search->bad <= film_.search->good) film_.search.reset();  // the others were left out
  tell();
}

// Frames from `from` to before `to` stand in the container, and the decoder does not give them: the
// others are counted anew. One of them that is shown gives way to the wanted one.
void FilmSession::leave_out(std::int64_t from, std::int64_t to) {
  ticks_.erase(ticks_.begin() + from, ticks_.begin() + to);
  if (ticks_.empty()) refuse_frames(film_.path, "E_FILM_EMPTY", "a frame at least", "none");
  set_times();
  ring_.clear();
  const auto moved = [&](std::int64_t frame) {
    return std::min(frame < from ? frame : std::max(from, frame - (to - from)), last());
  };
  const bool gone = film_.frame >= from && film_.frame < to;
  if (film_.frame >= 0) film_.frame = gone ? -1 : moved(film_.frame);
  film_.wanted = moved(film_.wanted);
  if (film_.search) film_.search->bad = moved(film_.search->bad);
}

}  // namespace tessera
