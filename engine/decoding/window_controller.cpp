#include "engine/decoding/window_controller.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kWidths[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
const double kDecay = std::exp2(-1.0 / 64);         // of a test's weight, each pass
constexpr double kPriorRight = 1, kPriorTried = 2;  // a draft nobody has tried: a coin
constexpr double kHysteresis = 1.03;                // how much better another width must look
constexpr double kLeavesPlain = 1.05;     // the same for one that is to follow plain decoding
constexpr std::int64_t kHold = 16;        // passes between two changes but back to plain
constexpr std::int64_t kProbe = 32;       // passes between two tries of the next wider window
constexpr std::int64_t kMaxIdle = 256;   // the same while one row is best: twice as long each time
constexpr std::int64_t kSureTimes = 3;    // times of a width before one is believed
constexpr double kTimeShare = 0.2;        // of a new time in the moving mean
constexpr double kPaceShare = 0.25;       // of a pass in the pace
constexpr std::int64_t kFreshPasses = 6;  // passes after a change that tell of the new width
constexpr double kMaxStretch = 3;  // passes that take longer had another program's turn in them
constexpr double kTooSlow = 5;      // widths that take this many times plain are not tried
constexpr double kSlowGap = 128;    // ... but after so many passes, by times plain
constexpr double kIdleTests = 16;  // that count for the past while plain decoding asks now and then

}  // namespace

WindowController::WindowController(std::int64_t most) {
  expects(most >= 1, "a window has rows");
  for (const std::int64_t width : kWidths) {
    if (width <= most) widths_.push_back(width);
  }
  if (widths_.back() != most && most < kWidths[std::size(kWidths) - 1]) widths_.push_back(most);
  right_.assign(to_size(widths_.back()), kPriorRight);
  tried_.assign(to_size(widths_.back()), kPriorTried);
  points_.reserve(256);
}

// Passes grow slower along an image, as there is more to attend to, and machines change their
// pace. Both stretch passes of all widths alike: what is kept of a pass is its time at pace 1.
// The first passes after a change of width tell what the new one takes, at the pace before; those
// that follow tell the pace.
void WindowController::observe_time(std::int64_t rows, double seconds) {
  seconds = std::max(seconds, 1e-9);  // a clock may stand still
  alike_ = rows == last_rows_ ? alike_ + 1 : 1;
  last_rows_ = rows;
  const auto at = std::lower_bound(points_.begin(), points_.end(), rows,
                                   [](const Point& p, std::int64_t r) { return p.rows < r; });
  if (at == points_.end() || at->rows != rows) {
    if (points_.size() < points_.capacity()) points_.insert(at, {rows, seconds / pace_, 1});
    return;
  }
  const double usual = at->seconds * pace_;
  const double took = std::clamp(seconds, usual / kMaxStretch, usual * kMaxStretch);
  if (++at->count > kSureTimes && alike_ > kFreshPasses) {
    pace_ += kPaceShare * (took / at->seconds - pace_);
  } else if (at->count == 2) {  // the first time may have met a cold cache
    at->seconds = std::min(at->seconds, seconds / pace_);
  } else {
    const double share = std::max(kTimeShare, 1 / to_double(at->count - 1));
    at->seconds += share * (took / pace_ - at->seconds);
  }
}

void WindowController::observe_tests(std::int64_t tested, std::int64_t accepted) {
  const auto most = std::ssize(right_);
  for (std::int64_t depth = 0; depth < std::min(tested, most); ++depth) {
    const auto j = to_size(depth);
    right_[j] = kDecay * right_[j] + (depth < accepted ? 1 : 0);
    tried_[j] = kDecay * tried_[j] + 1;
  }
}

double WindowController::tokens(std::int64_t window) const {
  double sum = 1, product = 1, last = 0.5;
  for (std::int64_t depth = 0; depth + 1 < window; ++depth) {
    const auto j = to_size(depth);
    // Depths with little after them lean on the one before.
    last = (right_[j] + 4 * last) / (tried_[j] + 4);
    product *= last;
    sum += product;
  }
  return sum;
}

double WindowController::seconds(std::int64_t rows) const {
  if (points_.empty()) return to_double(rows);
  // One time known: more rows may well be free, and the next pass will tell.
  if (points_.size() == 1) return points_[0].seconds;
  auto right = std::lower_bound(points_.begin(), points_.end(), rows,
                                [](const Point& p, std::int64_t r) { return p.rows < r; });
  if (right != points_.end() && right->rows == rows) return right->seconds;
  if (right == points_.end()) --right;
  if (right == points_.begin()) ++right;
  const Point& a = *(right - 1);
  const Point& b = *right;
  if (rows < a.rows) {
    return a.seconds * to_double(rows) / to_double(a.rows);
  }
  const double slope = std::max(0.0, (b.seconds - a.seconds) / to_double(b.rows - a.rows));
  return std::max(a.seconds + slope * to_double(rows - a.rows), 1e-9);
}

double WindowController::rate(std::int64_t window, std::int64_t rows_per_window) const {
  return tokens(window) / seconds(window * rows_per_window);
}

std::int64_t WindowController::best(std::int64_t rows_per_window) const {
  std::int64_t out = 1;
  for (const std::int64_t width : widths_) {
    // Beyond the most rows that were timed nothing is known; tries go there one by one.
    if (width > 1 && (points_.empty() || width * rows_per_window > points_.back().rows)) break;
    if (rate(width, rows_per_window) > rate(out, rows_per_window)) out = width;
  }
  return out;
}

// The narrowest width that was not timed often enough and might still pay, 0 if none.
std::int64_t WindowController::unmeasured(std::int64_t rows_per_window) const {
  const double now = rate(window_, rows_per_window);
  for (const std::int64_t width : widths_) {
    const std::int64_t rows = width * rows_per_window;
    const bool known = std::any_of(points_.begin(), points_.end(), [&](const Point& point) {
      return point.rows == rows && (point.count >= kSureTimes || width == 1);
    });
    if (known) continue;
    if (seconds(rows) > kTooSlow * seconds(rows_per_window)) return 0;
    return tokens(width) * 1.25 / seconds(rows) > now ? width : 0;
  }
  return 0;
}

// The width next to the one in use that is to be tried now: plain, or the next wider one.
std::int64_t WindowController::probe(std::int64_t rows_per_window) {
  idle_gap_ = window_ == 1 ? std::min(2 * idle_gap_, kMaxIdle) : kProbe / 2;
  next_probe_ = passes_ + (window_ == 1 ? idle_gap_ : kProbe);
  probe_plain_ = !probe_plain_;
  if (probe_plain_ && window_ > 1) return 1;
  const auto wider = std::upper_bound(widths_.begin(), widths_.end(), window_);
  if (wider == widths_.end()) return window_;
  const double times = seconds(*wider * rows_per_window) / seconds(rows_per_window);
  // A first time that another program spoiled must not close the door for ever.
  if (times >= kTooSlow && passes_ < next_slow_) return window_;
  next_slow_ = passes_ + static_cast<std::int64_t>(kSlowGap * times);
  // Drafts change while nobody asks for them.
  for (std::size_t j = 0; window_ == 1 && j < tried_.size(); ++j) {
    const double keep = std::min(1.0, kIdleTests / tried_[j]);
    right_[j] *= keep;
    tried_[j] *= keep;
  }
  return *wider;
}

std::int64_t WindowController::next(std::int64_t rows_per_window) {
  ++passes_;
  ++held_;
  if (rows_per_window != rows_per_window_) held_ = kHold;  // what suited another batch binds nobody
  rows_per_window_ = rows_per_window;
  const std::int64_t fresh = unmeasured(rows_per_window);
  // Widths are tried one after the other, a few passes apart at the beginning.
  if (fresh > 0 && (passes_ % 4 == 0 || passes_ <= 12)) return fresh;
  if (passes_ >= next_probe_) {
    const std::int64_t tried = probe(rows_per_window);
    if (tried != window_) return tried;
  }
  const std::int64_t wanted = best(rows_per_window);
  const double now = rate(window_, rows_per_window), plain = rate(1, rows_per_window);
  const double margin = wanted == 1 ? 1 : window_ == 1 ? kLeavesPlain : kHysteresis;
  const bool better = rate(wanted, rows_per_window) > margin * now;
  const bool may = held_ >= kHold || passes_ <= 2 * kHold || wanted == 1;
  if (wanted != window_ && better && may) {
    move_to(wanted);
  } else if (window_ != 1 && plain > now) {  // less than plain is never held
    move_to(1);
  }
  return window_;
}

void WindowController::move_to(std::int64_t window) {
  if (window_ == 1) {  // the step is checked soon, against plain first
    next_probe_ = passes_ + kProbe / 2;
    probe_plain_ = false;
  }
  window_ = window;
  held_ = 0;
}

std::string WindowController::why() const {
  const double plain = seconds(rows_per_window_);
  std::int64_t widest = 1;  // that was timed
  for (const std::int64_t width : widths_) {
    if (!points_.empty() && width * rows_per_window_ <= points_.back().rows) widest = width;
  }
  char text[256];
  std::snprintf(text, sizeof text,
                "window %" PRId64
                ": %.2f tokens a pass in %.2f of a plain pass's time, %.2f times plain; "
                "best of %zu widths, %" PRId64 " would be %.2f",
                window_, tokens(window_), seconds(window_ * rows_per_window_) / plain,
                rate(window_, rows_per_window_) * plain, widths_.size(), widest,
                rate(widest, rows_per_window_) * plain);
  return text;
}

}  // namespace tessera
