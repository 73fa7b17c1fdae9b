// Decoded frames of a video around the one that is shown, as many as a number of bytes holds, so
// that memory does not grow with the length of a video. Pure; for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "vision/image/image.h"

namespace tessera {

// Which frames are worth keeping: `ahead` after the shown one, `after` before it; in a video that
// is played round and round the first follows the last.
struct FrameWindow {
  std::int64_t at = 0, count = 0;  // the shown frame; frames of the video
  std::int64_t ahead = 0, after = 0;
  bool round = false;

  bool holds(std::int64_t frame) const;
};

class FrameRing {
 public:
  static constexpr std::int64_t kMaxFrames = 64, kMinFrames = 2;

  explicit FrameRing(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // The frames around `at` that fit: mostly those that come while it plays, mostly those that were
  // while it stands still.
  FrameWindow window(std::int64_t at, std::int64_t count, bool playing, bool round) const;
  // Keeps a frame if the window, as it is with a frame of this size, holds it; lets all go that
  // this window does not hold.
  void put(std::int64_t frame, std::shared_ptr<const Image> image, const FrameWindow& around,
           bool playing);
  // Null where it is not kept.
  std::shared_ptr<const Image> get(std::int64_t frame) const;
  void clear();
  // Whole frames, at most max_bytes, but for two of the largest that there were.
  std::size_t bytes() const { return bytes_; }
  std::size_t size() const { return frames_.size(); }

 private:
  void keep(const FrameWindow& window);

  std::size_t max_bytes_, bytes_ = 0;
  std::size_t largest_ = 1;  // bytes of a frame
  std::map<std::int64_t, std::shared_ptr<const Image>> frames_;
};

}  // namespace tessera
