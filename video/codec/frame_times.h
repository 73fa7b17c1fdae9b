// Times in the units of containers that have their own: whole milliseconds, hundredths of a second.
#pragma once

#include <cstdint>

#include "video/video.h"

namespace tessera {

// Each time is rounded by itself, so that roundings never add up over a video.
class FrameTimes {
 public:
  // `units` a second. Frames stay `least` to `most` units.
  FrameTimes(Rational tick, std::int64_t units, std::int64_t least, std::int64_t most);

  // When the next frame begins, in units since the first. Error kGeneral, E_VIDEO_TIME, if ticks do
  // not grow or the frame before would stay too short or too long; nothing has changed then.
  std::int64_t begin(std::int64_t ticks);
  // Units that the last frame stays when the video ends at `end_ticks`; as long as the one before if
  // that is no later than its begin. At least `least`, at most `most`.
  std::int64_t last_stay(std::int64_t end_ticks) const;
  bool empty() const { return frames_ == 0; }

 private:
  std::int64_t units_since_first(std::int64_t ticks) const;

  Rational tick_;
  std::int64_t units_, least_, most_;
  std::uint64_t frames_ = 0;
  std::int64_t first_ = 0, last_ = 0;  // ticks
  std::int64_t at_ = 0, stay_ = 0;     // units: of the last frame, and from the one before to it
};

}  // namespace tessera
