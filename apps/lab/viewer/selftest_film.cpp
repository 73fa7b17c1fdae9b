// Orders and expectations of the self-test that are of videos. What a frame must look like is read
// from the file again, apart from the worker that plays it.
#include <algorithm>

#include "apps/lab/viewer/screen_check.h"
#include "apps/lab/viewer/selftest.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "video/frame_reader.h"

namespace tessera {

namespace {

constexpr double kFilmPatience = 60;  // seconds a line may wait

std::string_view state_name(const Snapshot& snapshot) {
  if (!snapshot.film) return "none";
  switch (snapshot.film->state) {
    case FilmState::kOpening:
      return "opening";
    case FilmState::kPaused:
      return "paused";
    case FilmState::kPlaying:
      return "playing";
    case FilmState::kFailed:
      return "failed";
  }
  return "";
}

bool opened(const Snapshot& snapshot) {
  return snapshot.film && (snapshot.film->frame >= 0 || snapshot.film->state == FilmState::kFailed);
}

bool stands(const Snapshot& snapshot) {
  if (!snapshot.film || snapshot.film->state == FilmState::kFailed) return true;
  const Film& film = *snapshot.film;
  return film.taken == film.asked && film.state == FilmState::kPaused &&
         film.frame == film.wanted && !film.strip.empty() &&
         std::all_of(film.strip.begin(), film.strip.end(), [](const FilmThumbnail& one) {
           return one.image != nullptr || !one.problem.empty();
         });
}

// Without the frame around the image, which is drawn over one that fills it.
Rect inner_part(Rect area) {
  const double edge = ImGui::GetStyle().ChildRounding + 1.0;
  return {area.left + edge, area.top + edge, area.right - edge, area.bottom - edge};
}

}  // namespace

bool SelfTest::use_film(const ScriptLine& line, const Snapshot& snapshot) {
  if (line.order == Order::kWaitFilm) return wait_film(line, snapshot);
  if (line.order == Order::kFilm) {
    if (!stop_posted_) viewer_.drop({line.words.front()});
    return std::exchange(stop_posted_, true) && wait_film(line, snapshot);
  }
  UiState& state = viewer_.state();
  const bool on = !line.words.empty() && line.words.front() == "on";
  switch (line.order) {
    case Order::kFilmStep:
      act(on ? Action::kFilmOn : Action::kFilmBack, state, snapshot, post_);
      return true;
    case Order::kFilmPlay:
      return post_(FilmPlayCommand{on});
    case Order::kFilmLoop:
      return post_(FilmLoopCommand{on});
    case Order::kFilmClose:
      act(Action::kFilmClose, state, snapshot, post_);
      return true;
    default:
      return post_(FilmSeekCommand{truncate<std::int64_t>(line.numbers.front())});
  }
}

// False while it is not so yet; true also when patience ran out, which is a failure.
bool SelfTest::wait_film(const ScriptLine& line, const Snapshot& snapshot) {
  if (line.order == Order::kFilm ? opened(snapshot) : stands(snapshot)) return true;
  const double limit = line.numbers.empty() ? kFilmPatience : line.numbers.front();
  if (monotonic_seconds() - line_started_ < limit) return false;
  fail(line, "a video that stands within " + number_text(limit, 0) + " s",
       std::string(state_name(snapshot)));
  return true;
}

void SelfTest::watch_film(const Snapshot& snapshot, const Window& window) {
  if (!plays(snapshot) || snapshot.film->frame == film_number_) return;
  film_number_ = snapshot.film->frame;
  const StageReport& report = viewer_.state().report;
  if (!report.image || report.image->zoom < 1) return;
  ++film_shown_;
  const PixelCheck check = check_pixels(window.read_pixels(), *snapshot.film->image,
                                        *report.image, inner_part(report.area));
  film_wrong_ += check.good() ? 0 : 1;
}

SelfTest::Verdict SelfTest::check_film(const ScriptLine& line, const Snapshot& snapshot,
                                       const Window& window) const {
  const std::string& what = line.words.front();
  if (what == "film_state") {
    const std::string found(state_name(snapshot));
    const bool failed = found == "failed";
    return {found == line.words[1], line.words[1],
            failed ? found + ": " + format_error(snapshot.film->error) : found};
  }
  const double wanted = line.numbers.front();
  if (what == "film_played") {
    return {to_double(film_shown_) >= wanted && film_wrong_ == 0,
            "at least " + number_text(wanted, 0) + " frames, each on the screen",
            std::to_string(film_shown_) + " frames, " + std::to_string(film_wrong_) +
                " with other pixels"};
  }
  if (!snapshot.film) return {false, "an open video", "none"};
  if (what == "film_frame") {
    return check_film_frame(*snapshot.film, truncate<std::int64_t>(wanted), window);
  }
  expects(what == "film_strip", "every expectation is checked somewhere");
  return check_film_strip(*snapshot.film, wanted, window);
}

SelfTest::Verdict SelfTest::check_film_frame(const Film& film, std::int64_t wanted,
                                             const Window& window) const {
  const std::string expected = "frame " + std::to_string(wanted) + " of the file on the screen";
  const auto& placed = viewer_.state().report.image;
  if (film.frame != wanted || !placed) {
    return {false, expected, placed ? "frame " + std::to_string(film.frame) : "no frame is drawn"};
  }
  FrameReader reader(film.path);
  std::optional<VideoFrame> frame;
  for (std::int64_t i = 0; i <= wanted; ++i) frame = reader.next();
  if (!frame) return {false, expected, "the file has fewer"};
  const Image image(frame->width, frame->height, std::move(frame->rgb));
  const PixelCheck check =
      check_pixels(window.read_pixels(), image, *placed, inner_part(viewer_.state().report.area));
  return {
      check.good(), expected,
      std::to_string(check.different) + " of " + std::to_string(check.compared) + " pixels differ"};
}

// Small images are scaled on the screen: those that are there must not be of one colour.
SelfTest::Verdict SelfTest::check_film_strip(const Film& film, double at_least,
                                             const Window& window) const {
  const auto there = std::count_if(film.strip.begin(), film.strip.end(),
                                   [](const auto& one) { return one.image != nullptr; });
  const auto& strip = viewer_.state().report.film_strip;
  const std::string expected = "at least " + number_text(at_least, 0) + " small images, drawn";
  if (!strip) return {false, expected, "no strip is drawn"};
  const Image screen = window.read_pixels();
  std::vector<Colour> colours;
  const auto y = truncate<std::int64_t>((strip->top + strip->bottom) / 2);
  for (auto x = truncate<std::int64_t>(strip->left) + 2; x < strip->right - 2; x += 3) {
    if (x < 0 || y < 0 || x >= screen.width || y >= screen.height) continue;
    const std::uint8_t* rgb = screen.at(x, y);
    colours.push_back({rgb[0], rgb[1], rgb[2]});
  }
  const std::int64_t kinds = distinct(colours);
  return {to_double(there) >= at_least && kinds > there, expected,
          std::to_string(there) + " images, " + std::to_string(kinds) + " colours across them"};
}

}  // namespace tessera
