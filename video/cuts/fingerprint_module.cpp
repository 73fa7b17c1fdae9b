// Fingerprints of images by OpenCV, in the module of histograms.
//
// C. Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010, 3.2.1: the
// hash by the discrete cosine transform.
#include <algorithm>
#include <exception>
#include <opencv2/imgproc.hpp>
#include <vector>

#include "engine/core/index.h"
#include "video/cuts/compare_module.h"

namespace {

constexpr int kHashSide = 32;
constexpr int kFrequencies = 8;  // a side, from the lowest
constexpr float kFlat = 1.0F;    // less above the median is rounding, not shape

std::uint64_t shape_of(const cv::Mat& rgb) {
  cv::Mat grey, small, waves;
  cv::cvtColor(rgb, grey, cv::COLOR_RGB2GRAY);
  cv::resize(grey, small, cv::Size(kHashSide, kHashSide), 0, 0, cv::INTER_AREA);
  small.convertTo(small, CV_32F);
  cv::dct(small, waves);
  std::vector<float> parts;
  for (int i = 1; i < kFrequencies * kFrequencies; ++i) {  // 0 is the brightness
    parts.push_back(waves.at<float>(i / kFrequencies, i % kFrequencies));
  }
  std::vector<float> sorted = parts;
  const auto middle = sorted.begin() + tessera::to_index(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  std::uint64_t bits = 0;
  for (const float part : parts) bits = bits << 1 | (part - *middle > kFlat ? 1U : 0U);
  return bits;
}

}  // namespace

extern "C" int tessera_image_fingerprint(const std::uint8_t* rgb, int width, int height,
                                         std::uint64_t* shape, std::uint8_t* colours) {
  try {
    // The matrix borrows and is only read.
    const cv::Mat whole(height, width, CV_8UC3, const_cast<std::uint8_t*>(rgb));
    *shape = shape_of(whole);
    const int side = tessera::kFingerprintSide;
    cv::Mat fields(side, side, CV_8UC3, colours);
    cv::resize(whole, fields, fields.size(), 0, 0, cv::INTER_AREA);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}
