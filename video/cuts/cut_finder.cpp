// Histograms are three-dimensional, 32 levels a channel, of a frame made small, so that noise and
// small movements change little, and smoothed, so that a colour that drifts over the edge of a
// level is near what it was.
#include "video/cuts/cut_finder.h"

#include <opencv2/imgproc.hpp>

#include "engine/core/error.h"

namespace tessera {

namespace {

constexpr int kSmallSide = 96;  // pixels: the longest side of the frame that is counted
constexpr int kLevels = 32;
constexpr int kTaps = 15;
constexpr double kSmooth = 2.5;  // levels: the standard deviation that counts are spread by

cv::Mat small_frame(std::span<const std::uint8_t> rgb, int width, int height) {
  // The matrix borrows and is only read.
  const cv::Mat whole(height, width, CV_8UC3, const_cast<std::uint8_t*>(rgb.data()));
  const int longest = std::max(width, height);
  if (longest <= kSmallSide) return whole;
  const cv::Size size(std::max(1, width * kSmallSide / longest),
                      std::max(1, height * kSmallSide / longest));
  cv::Mat out;
  cv::resize(whole, out, size, 0, 0, cv::INTER_AREA);
  return out;
}

// Along each of the three axes; what would leave the cube is reflected, so that counts keep their
// sum.
void smooth(cv::Mat& counts) {
  constexpr int kPlane = kLevels * kLevels;
  auto* data = counts.ptr<float>();
  cv::Mat slow(kLevels, kPlane, CV_32F, data), fast(kPlane, kLevels, CV_32F, data);
  cv::GaussianBlur(slow, slow, cv::Size(1, kTaps), 0.1, kSmooth, cv::BORDER_REFLECT);
  cv::GaussianBlur(fast, fast, cv::Size(kTaps, 1), kSmooth, 0.1, cv::BORDER_REFLECT);
  for (int i = 0; i < kLevels; ++i) {
    cv::Mat slice(kLevels, kLevels, CV_32F, data + i * kPlane);
    cv::GaussianBlur(slice, slice, cv::Size(1, kTaps), 0.1, kSmooth, cv::BORDER_REFLECT);
  }
}

std::vector<float> histogram(const cv::Mat& frame) {
  const int channels[] = {0, 1, 2};
  const int levels[] = {kLevels, kLevels, kLevels};
  const float range[] = {0, 256};
  const float* ranges[] = {range, range, range};
  cv::Mat counts;
  cv::calcHist(&frame, 1, channels, cv::Mat(), counts, 3, levels, ranges);
  smooth(counts);
  const auto* data = counts.ptr<float>();
  std::vector<float> out(data, data + kLevels * kLevels * kLevels);
  const auto all = static_cast<float>(frame.total());
  for (float& count : out) count /= all;
  return out;
}

}  // namespace

bool CutFinder::add(std::span<const std::uint8_t> rgb, std::int64_t width, std::int64_t height) {
  expects(width > 0 && height > 0 && width <= (1 << 20) && height <= (1 << 20) &&
              rgb.size() == static_cast<std::size_t>(width * height * 3),
          "a whole RGB frame");
  std::vector<float> now =
      histogram(small_frame(rgb, static_cast<int>(width), static_cast<int>(height)));
  const bool first = before_.empty();
  distance_ = first ? 0 : cv::compareHist(before_, now, cv::HISTCMP_BHATTACHARYYA);
  before_ = std::move(now);
  const double mean = frames_ > 1 ? sum_ / static_cast<double>(frames_ - 1) : 0;
  const bool cut = !first && frames_ >= settings_.least_frames && distance_ >= settings_.distance &&
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
