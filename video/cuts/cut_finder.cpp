// Distances of histograms; the histograms themselves come from a module.
#include "video/cuts/cut_finder.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "video/cuts/compare_module.h"

namespace tessera {

namespace {

// Square root of 1 minus the overlap of two distributions.
double hellinger(const std::vector<float>& a, const std::vector<float>& b) {
  double overlap = 0, sum_a = 0, sum_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    overlap += std::sqrt(double{a[i]} * b[i]);
    sum_a += a[i];
    sum_b += b[i];
  }
  return std::sqrt(std::max(0.0, 1 - overlap / std::sqrt(sum_a * sum_b)));
}

}  // namespace

bool CutFinder::add(std::span<const std::uint8_t> rgb, std::int64_t width, std::int64_t height) {
  expects(width > 0 && height > 0 && width <= (1 << 20) && height <= (1 << 20) &&
              rgb.size() == to_size(width * height * 3),
          "a whole RGB frame");
  std::vector<float> now(kHistogramLevels * kHistogramLevels * kHistogramLevels);
  static const auto kFunction =
      reinterpret_cast<HistogramFunction>(compare_function(kHistogramFunction));
  if (kFunction(rgb.data(), narrow<int>(width), narrow<int>(height), now.data()) != 0) {
    fail_compare(kCompareModule, "a frame that it could not count");
  }
  const bool first = before_.empty();
  distance_ = first ? 0 : hellinger(before_, now);
  before_ = std::move(now);
  const double mean = frames_ > 1 ? sum_ / to_double(frames_ - 1) : 0;
  const bool cut = !first && frames_ >= settings_.min_frames && distance_ >= settings_.distance &&
                   distance_ >= settings_.times * mean;
  if (cut) {
    frames_ = 1;
    sum_ = 0;
    return true;
  }
  if (!first) sum_ += distance_;
  ++frames_;
  return false;
}

}  // namespace tessera
