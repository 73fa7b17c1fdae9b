#include "video/codec/frame_times.h"

#include <algorithm>
#include <string>

#include "engine/core/index.h"
#include "video/codec/ffmpeg.h"

namespace tessera {

FrameTimes::FrameTimes(Rational tick, std::int64_t units, std::int64_t least, std::int64_t most)
    : tick_(tick), units_(units), least_(least), most_(most), stay_(least) {}

std::int64_t FrameTimes::units_since_first(std::int64_t ticks) const {
  const AVRational from = {narrow<int>(tick_.num), narrow<int>(tick_.den)};
  const AVRational to = {1, narrow<int>(units_)};
  std::int64_t since = 0;
  if (__builtin_sub_overflow(ticks, first_, &since)) return INT64_MAX;
  const std::int64_t units = av_rescale_q(since, from, to);
  return units < 0 ? INT64_MAX : units;
}

std::int64_t FrameTimes::begin(std::int64_t ticks) {
  if (frames_ == 0) {
    first_ = last_ = ticks;
    ++frames_;
    return 0;
  }
  if (ticks <= last_) {
    ffmpeg::fail("E_VIDEO_TIME", "", "a time after tick " + std::to_string(last_),
                 "tick " + std::to_string(ticks));
  }
  const std::int64_t at = units_since_first(ticks);
  if (at - at_ < least_ || at - at_ > most_) {
    ffmpeg::fail("E_VIDEO_TIME", "",
                 "frames that stay " + std::to_string(least_) + " to " + std::to_string(most_) +
                     " of 1/" + std::to_string(units_) + " s in this container",
                 std::to_string(at - at_));
  }
  stay_ = at - at_;
  at_ = at;
  last_ = ticks;
  ++frames_;
  return at;
}

std::int64_t FrameTimes::last_stay(std::int64_t end_ticks) const {
  const std::int64_t stay = end_ticks > last_ ? units_since_first(end_ticks) - at_ : stay_;
  return std::clamp(stay, least_, most_);
}

}  // namespace tessera
