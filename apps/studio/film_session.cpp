// Playing: orders first, then the frame that is wanted, then frames ahead; one call of the reader
// at a time, so that a new request never waits for an old one.
#include "apps/studio/film_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

#include "apps/studio/boundary.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr std::int64_t kRun = 16;  // frames that are rather decoded than jumped over
constexpr std::int64_t kBackRun = 8;
// Seconds by which a frame may come late before the video is played slower instead.
constexpr double kMaxLag = 0.3;
constexpr double kLongest = 3600;  // of one sleep, seconds
constexpr double kNever = std::numeric_limits<double>::infinity();

std::int64_t number_of(const std::vector<std::int64_t>& ticks, std::int64_t at) {
  const auto after = std::upper_bound(ticks.begin(), ticks.end(), at);
  return std::max<std::int64_t>(after - ticks.begin(), 1) - 1;
}

// How long the last frame stays: as the others do on average; a single one as the file's rate says.
double last_stay(const VideoInfo& info, const std::vector<double>& times) {
  double stay = 0.1;
  if (times.size() > 1) {
    stay = times.back() / to_double(times.size() - 1);
  } else if (info.rate.num > 0) {
    stay = 1 / info.rate.value();
  }
  return std::clamp(stay, 0.001, 10.0);
}

}  // namespace

bool is_film_damage(const ErrorInfo& info) {
  return info.code == "E_VIDEO_DATA" || info.code == "E_VIDEO_CUT";
}

void refuse_frames(const std::filesystem::path& path, const char* code, std::string expected,
                   std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .file = path.string(),
               .where = "frames",
               .expected = std::move(expected),
               .found = std::move(found)});
}

FrameReaderOptions film_reader_options(const std::filesystem::path& program,
                                       double deadline_seconds,
                                       std::shared_ptr<VideoInterrupt> interrupt) {
  FrameReaderOptions options;
  options.process.program = program;
  options.process.deadline_seconds = deadline_seconds;
  options.process.interrupt = std::move(interrupt);
  options.limits.decoded_pixels = std::uint64_t{1} << 60;  // round and round for hours
  return options;
}

std::shared_ptr<const Image> image_of(VideoFrame&& frame) {
  return std::make_shared<const Image>(frame.width, frame.height, std::move(frame.rgb));
}

FilmSession::FilmSession(Film film, const FilmOptions& options, EventQueue& events)
    : options_(options),
      events_(events),
      film_(std::move(film)),
      ring_(options.kept_bytes),
      thread_([this] { work(); }) {}

FilmSession::~FilmSession() {
  end();
  thread_.join();
}

void FilmSession::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  interrupt_->fire();
  if (strip_plan_.interrupt) strip_plan_.interrupt->fire();
  changed_.notify_all();
}

bool FilmSession::post(const FilmOrder& order) {
  const std::lock_guard lock(mutex_);
  if (ended_) return true;  // there is nothing to be notified to it
  if (orders_.size() >= kMaxQueued) return false;
  orders_.push_back(order);
  changed_.notify_all();
  return true;
}

void FilmSession::work() {
  try {
    open();
    while (take_orders()) go_on();
  } catch (const std::exception& error) {  // the boundary of one video
    fail(info_of(error, "clip"));
  }
  reader_.reset();
  if (strip_.joinable()) strip_.join();
  // One that is closed may be kept for a while: not its frames.
  ring_.clear();
  small_.clear();
  film_.image.reset();
  film_.times.reset();
  strip_times_.reset();
  ticks_ = {};
  ended_ = true;
}

void FilmSession::fail(ErrorInfo error) {
  if (ending_) return;
  if (error.file.empty()) error.file = film_.path.string();
  film_.state = FilmState::kFailed;
  film_.error = error;
  film_.wanted = film_.frame;
  tell();
  events_.push(ProblemEvent{std::move(error)});
}

void FilmSession::tell() {
  film_.kept_bytes = ring_.bytes();
  events_.push(FilmEvent{film_});
}

void FilmSession::open() {
  reopen();
  info_ = reader_->info();
  film_.width = info_.width;
  film_.height = info_.height;
  film_.container = info_.container;
  film_.codec = info_.codec;
  film_.notes = info_.notes;
  try {
    ticks_ = reader_->scan();
    next_ = 0;
  } catch (const Error& error) {
    if (!is_film_damage(error.info())) throw;
    count_frames(error.info());
  }
  if (ticks_.empty()) refuse_frames(film_.path, "E_FILM_EMPTY", "a frame at least", "none");
  if (ticks_.size() > to_size(kMaxFilmFrames)) {
    refuse_frames(film_.path, "E_FILM_LONG",
                  "at most " + std::to_string(kMaxFilmFrames) + " frames",
                  std::to_string(ticks_.size()));
  }
  set_times();
  film_.state = FilmState::kPaused;
  film_.wanted = 0;
  while (film_.frame < 0 && !ending_) fetch();
  plan_strip();
}

void FilmSession::reopen() {
  next_ = -1;
  reader_.reset();  // before the new one: each is a process
  reader_ = std::make_unique<FrameReader>(
      film_.path, film_reader_options(options_.program, options_.deadline_seconds, interrupt_));
}

void FilmSession::set_times() {
  std::vector<double> times;
  times.reserve(ticks_.size());
  const auto first = to_double(ticks_.front());  // a stranger's times may lie far apart
  for (const std::int64_t at : ticks_) {
    times.push_back((to_double(at) - first) * info_.tick.value());
  }
  film_.seconds = times.back() + last_stay(info_, times);
  film_.times = std::make_shared<const std::vector<double>>(std::move(times));
}

// False: the end.
bool FilmSession::take_orders() {
  std::deque<FilmOrder> orders;
  {
    std::unique_lock lock(mutex_);
    const auto due = [&] { return ending_ || !orders_.empty(); };
    const double wait = idle_until() - monotonic_seconds();
    if (wait == kNever) {
      changed_.wait(lock, due);
    } else if (wait > 0) {
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(wait, kLongest)), due);
    }
    if (ending_) return false;
    orders.swap(orders_);
  }
  film_.taken += orders.size();
  for (const FilmOrder& order : orders) {
    std::visit([this](const auto& one) { obey(one); }, order);
  }
  if (!orders.empty()) tell();
  return true;
}

// Seconds of the monotonic clock until there is something to do; 0 = now.
double FilmSession::idle_until() const {
  if (film_.frame != film_.wanted) return 0;
  if (!playing()) return kNever;
  if (missing_ahead()) return 0;
  const double end =
      film_.wanted == last() ? film_.seconds : (*film_.times)[to_size(film_.wanted) + 1];
  return clock_.when(end);
}

void FilmSession::go_to(std::int64_t frame) {
  film_.search.reset();
  film_.wanted = std::clamp<std::int64_t>(frame, 0, last());
  clock_.start(monotonic_seconds(), nth((*film_.times), film_.wanted));
}

void FilmSession::obey(const FilmPlayCommand& order) {
  const bool on = order.on.value_or(!playing());
  if (on == playing()) return;
  film_.state = on ? FilmState::kPlaying : FilmState::kPaused;
  go_to(on && film_.wanted == last() ? 0 : film_.wanted);
}

void FilmSession::obey(const FilmLoopCommand& order) {
  film_.loop = order.on.value_or(!film_.loop);
}

void FilmSession::obey(const FilmSeekCommand& order) { go_to(order.frame); }

void FilmSession::obey(const FilmStepCommand& order) {
  film_.state = FilmState::kPaused;
  const std::int64_t by = std::clamp(order.by, -kMaxFilmFrames, kMaxFilmFrames);
  go_to(film_.wanted + by);
}

void FilmSession::obey(const FilmSpeedCommand& order) {
  const double wanted = std::clamp(order.speed, kFilmSpeeds[0], std::end(kFilmSpeeds)[-1]);
  double nearest = 1;
  for (const double speed : kFilmSpeeds) {
    if (std::abs(speed - wanted) < std::abs(nearest - wanted)) nearest = speed;
  }
  const double now = monotonic_seconds();
  clock_.start(now, clock_.at(now));
  clock_.speed = film_.speed = nearest;
}

void FilmSession::go_on() {
  if (playing() && film_.frame == film_.wanted) follow_clock(monotonic_seconds());
  if (film_.frame != film_.wanted) {
    fetch();
  } else if (playing()) {
    read_ahead();
  }
  if (film_.frame == film_.wanted && film_.times != strip_times_) plan_strip();
}

// Wants the next frame when it is due. One that is late is still shown, unless a later one that is
// due as well is there already.
void FilmSession::follow_clock(double now) {
  const double at = clock_.at(now);
  if (film_.wanted == last()) {
    if (at < film_.seconds) return;
    if (film_.loop) {
      go_to(0);
    } else {
      film_.state = FilmState::kPaused;
      tell();
    }
    return;
  }
  const std::int64_t due = film_.frame_at(at);
  if (due <= film_.wanted) return;
  std::int64_t next = due;
  while (next > film_.wanted + 1 && ring_.get(next) == nullptr) --next;
  const double begins = nth((*film_.times), next);
  if (at - begins > kMaxLag * clock_.speed) clock_.start(now, begins);
  film_.wanted = next;
}

FrameWindow FilmSession::window() const {
  return ring_.window(film_.wanted, film_.frames(), playing(), playing() && film_.loop);
}

void FilmSession::show(std::shared_ptr<const Image> image) {
  film_.image = std::move(image);
  film_.frame = film_.wanted;
  film_.search.reset();
  tell();
}

// One step towards the wanted frame: from what is kept, else by one call of the reader.
void FilmSession::fetch() {
  if (std::shared_ptr<const Image> kept = ring_.get(film_.wanted)) return show(std::move(kept));
  if (film_.search) return search();
  const std::int64_t wanted = film_.wanted;
  if (ahead_error_ && wanted >= ahead_error_->frame) {
    const Damage damage = *ahead_error_;
    return end_before(damage.frame, damage.info);
  }
  std::int64_t from = wanted;
  if (next_ >= 0 && next_ <= wanted && wanted - next_ <= kRun) {
    from = next_;
  } else if (wanted < film_.frame && film_.frame - wanted <= kBackRun) {
    // Whoever steps back goes on to do so: the frames before are read on the way.
    from = std::max<std::int64_t>(0, wanted - std::min(window().after, kBackRun));
  }
  const bool reads_on = from == next_;
  try {
    read(from);
  } catch (const Error& error) {
    if (reads_on) return end_before(from, error.info());
    begin_search(from, error.info());
  }
}

// Reads a frame of the file and keeps it; null where it was left out.
std::shared_ptr<const Image> FilmSession::read(std::int64_t from) {
  const bool next = from == next_;
  next_ = -1;
  std::optional<VideoFrame> frame = next ? reader_->next() : reader_->frame_at(nth(ticks_, from));
  if (!frame) {
    leave_out(from, next ? film_.frames() : from + 1);
    return nullptr;
  }
  if (number_of(ticks_, frame->ticks) != from) {
    leave_out(from, from + 1);
    return nullptr;
  }
  next_ = from + 1;
  std::shared_ptr<const Image> image = image_of(std::move(*frame));
  ring_.put(from, image, window(), playing());
  return image;
}

std::optional<std::int64_t> FilmSession::missing_ahead() const {
  const FrameWindow around = window();
  for (std::int64_t on = 1; on <= around.ahead && on < around.count; ++on) {
    std::int64_t frame = around.at + on;
    if (frame >= around.count) {
      if (!around.round) return std::nullopt;
      frame -= around.count;
    }
    if (ahead_error_ && frame >= ahead_error_->frame) return std::nullopt;
    if (ring_.get(frame) == nullptr) return frame;
  }
  return std::nullopt;
}

// What goes wrong here is notified when the frames before it were shown.
void FilmSession::read_ahead() {
  const std::optional<std::int64_t> frame = missing_ahead();
  if (!frame) return;
  try {
    read(*frame);
  } catch (const Error& error) {
    ahead_error_ = {*frame, error.info()};
  }
}

}  // namespace tessera
