// Colour histograms of frames by OpenCV, as a module that is loaded when the first video is cut
// into scenes: nothing else in the program needs OpenCV, which takes several MiB and milliseconds
// to load.
//
// Histograms are three-dimensional, 32 levels a channel, of a frame made small, so that noise and
// small movements change little, and smoothed, so that a colour that drifts over the edge of a
// level is near what it was.
#include "video/cuts/compare_module.h"

#include <algorithm>
#include <exception>
#include <opencv2/imgproc.hpp>

namespace {

constexpr int kSmallSide = 96;  // pixels: the longest side of the frame that is counted
constexpr int kLevels = tessera::kHistogramLevels;
constexpr int kTaps = 15;
constexpr double kSmooth = 2.5;  // levels: the standard deviation that counts are spread by

cv::Mat small_frame(const std::uint8_t* rgb, int width, int height) {
  // The matrix borrows and is only read.
  const cv::Mat whole(height, width, CV_8UC3, const_cast<std::uint8_t*>(rgb));
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

}  // namespace

extern "C" int tessera_colour_histogram(const std::uint8_t* rgb, int width, int height,
                                        float* out) {
  try {
    const cv::Mat frame = small_frame(rgb, width, height);
    const int channels[] = {0, 1, 2};
    const int levels[] = {kLevels, kLevels, kLevels};
    const float range[] = {0, 256};
    const float* ranges[] = {range, range, range};
    cv::Mat counts;
    cv::calcHist(&frame, 1, channels, cv::Mat(), counts, 3, levels, ranges);
    smooth(counts);
    const auto all = static_cast<float>(frame.total());
    const auto* data = counts.ptr<float>();
    for (int i = 0; i < kLevels * kLevels * kLevels; ++i) out[i] = data[i] / all;
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}
