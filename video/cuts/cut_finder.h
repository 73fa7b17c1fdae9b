// Where one scene of a video ends and the next begins: frames whose colours are spread otherwise
// than those of the frame before. Holds two histograms of 128 KiB, whatever the length of the
// video.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

struct CutSettings {
  // A cut is where the Hellinger distance of two neighbours' colour histograms, 0 to 1, is at
  // least this and at least `times` the mean of the distances since the last cut.
  double distance = 0.3;
  double times = 3;
  std::int64_t min_frames = 3;  // of a scene; a change before that is no cut
};

class CutFinder {
 public:
  explicit CutFinder(const CutSettings& settings = {}) : settings_(settings) {}

  // The next frame, rgb [height, width, 3] u8. Whether a scene begins with it; the first one begins
  // none.
  bool add(std::span<const std::uint8_t> rgb, std::int64_t width, std::int64_t height);
  // Distance of the frame added last to the one before; 0 at the first.
  double distance() const { return distance_; }

 private:
  CutSettings settings_;
  std::vector<float> before_;  // histogram of the last frame
  double distance_ = 0;
  double sum_ = 0;           // of distances since the last cut
  std::int64_t frames_ = 0;  // since then
};

}  // namespace tessera
