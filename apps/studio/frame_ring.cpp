#include "apps/studio/frame_ring.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

bool FrameWindow::holds(std::int64_t frame) const {
  if (frame < 0 || frame >= count) return false;
  std::int64_t on = frame - at;
  if (!round) return on >= -after && on <= ahead;
  if (on < 0) on += count;
  return on <= ahead || count - on <= after;
}

FrameWindow FrameRing::window(std::int64_t at, std::int64_t count, bool playing, bool round) const {
  const auto fit = to_index(max_bytes_ / largest_);
  const std::int64_t others = std::clamp(fit, kMinFrames, kMaxFrames) - 1;
  const std::int64_t few = others / 4;
  FrameWindow out{at, count, playing ? others - few : few, playing ? few : others - few, round};
  return out;
}

void FrameRing::put(std::int64_t frame, std::shared_ptr<const Image> image,
                    const FrameWindow& around, bool playing) {
  largest_ = std::max(largest_, image->rgb.size());
  const FrameWindow now = window(around.at, around.count, playing, around.round);
  keep(now);
  if (!now.holds(frame) || frames_.contains(frame)) return;
  bytes_ += image->rgb.size();
  frames_.emplace(frame, std::move(image));
}

std::shared_ptr<const Image> FrameRing::get(std::int64_t frame) const {
  const auto found = frames_.find(frame);
  return found == frames_.end() ? nullptr : found->second;
}

void FrameRing::clear() {
  frames_.clear();
  bytes_ = 0;
}

void FrameRing::keep(const FrameWindow& window) {
  for (auto one = frames_.begin(); one != frames_.end();) {
    if (window.holds(one->first)) {
      ++one;
      continue;
    }
    bytes_ -= one->second->rgb.size();
    one = frames_.erase(one);
  }
}

}  // namespace tessera
