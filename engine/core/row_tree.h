// The one order in which numbers of a row are summed, however the row is walked: 512 lanes, id i in
// lane i % 512, each lane from its smallest id up, in double; then the upper half of the lanes is
// added to the lower one until one is left. Ids that a distribution dropped add nothing, so a row held id by
// id and one held as a list of ids give the same bits, on the host and on a device.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

namespace tessera {

inline constexpr std::size_t kRowLanes = 512;

// Lanes of a row of `ids` >= 1 ids. Fewer than 512 where the others would stay empty.
constexpr std::size_t row_lanes(std::size_t ids) {
  const std::size_t all = std::bit_ceil(ids);
  return all < kRowLanes ? all : kRowLanes;
}

// One sum under way on the host.
class RowSum {
 public:
  // Of ids below `ids`.
  explicit RowSum(std::size_t ids) : lanes_(row_lanes(ids)) { std::fill_n(lane_, lanes_, 0.0); }

  // Ids of one lane come in ascending order.
  void add(std::size_t id, double value) { lane_[id % kRowLanes] += value; }
  // The lanes, for loops that walk whole rows; lanes() of them.
  double* data() { return lane_; }
  std::size_t lanes() const { return lanes_; }

  // Folds the lanes; nothing is added afterwards.
  double total() {
    for (std::size_t half = lanes_ / 2; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l) lane_[l] += lane_[l + half];
    }
    return lane_[0];
  }

 private:
  std::size_t lanes_;
  double lane_[kRowLanes];
};

}  // namespace tessera
