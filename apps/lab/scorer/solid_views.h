// One solid of a video as the renderer draws it wherever it may stand: what the frames of a video are
// compared with to find out where it went.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/lab/scene/video.h"
#include "engine/core/index.h"
#include "engine/core/thread_pool.h"

namespace tessera {

// A place of the lattice: what a solid of the world moves in a frame from one to the next.
struct LatticePlace {
  int column = 0, row = 0;  // to the right, away from the camera
  bool operator==(const LatticePlace&) const = default;
};

class SolidViews {
 public:
  static constexpr double kPitch = 0.12;           // units between two places
  static constexpr int kColumns = 51, kRows = 41;  // over the whole table
  static constexpr int kPlaces = kColumns * kRows;
  static double x_of(LatticePlace place) { return (place.column - kColumns / 2) * kPitch; }
  static double z_of(LatticePlace place) { return (place.row - kRows / 2) * kPitch; }
  static bool on_table(LatticePlace place) {
    return place.column >= 0 && place.column < kColumns && place.row >= 0 && place.row < kRows;
  }

  // Of `told` floor, camera and the solid's look are taken, neither its place nor its motion.
  // Images of size x size pixels.
  SolidViews(const Video& heard, std::size_t solid, int size, ThreadPool& pool);

  // At rest at a place of the table; no pixels where its middle is out of the image.
  const SolidView& at(int frame, LatticePlace place) const {
    const auto first = moving_camera_ ? to_size(frame) * kPlaces : 0;
    return views_[first + to_size(place.row * kColumns + place.column)];
  }
  // By how many pixels' rows a bounce has lifted it there.
  int lift(int frame, LatticePlace place) const;
  // Where it spins, having begun in the first frame as cubes of the world stand.
  SolidView spinning(int frame, LatticePlace place) const;

  const Video& alone() const { return alone_; }

 private:
  Video standing(LatticePlace place) const;

  Video alone_;  // the one solid
  int size_;
  bool moving_camera_;
  double height_;                 // of its middle, units
  std::vector<SolidView> views_;  // [frames of a moving camera, else 1][rows][columns]
};

}  // namespace tessera
