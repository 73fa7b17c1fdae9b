// Pillow's resampling, from its documented behaviour: an output pixel is a weighted mean of the
// input pixels whose centres lie within the filter's support, which is scaled by the shrink factor.
#include "vision/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

namespace {

// 8 bits for the pixel and 2 for overshoot leave 22 of 32 bits to a weight.
constexpr int kWeightBits = 32 - 8 - 2;

double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Keys' cubic with a = -0.5, in the order of operations that the reference uses.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0; }

struct Kernel {
  double (*weight)(double);
  double support;  // input pixels to each side of the centre when not shrinking
};

Kernel kernel_of(ResampleFilter filter) {
  switch (filter) {
    case ResampleFilter::kBox:
      return {&box, 0.5};
    case ResampleFilter::kBilinear:
      return {&bilinear, 1.0};
    case ResampleFilter::kBicubic:
      return {&bicubic, 2.0};
    case ResampleFilter::kLanczos:
      return {&lanczos, 3.0};
  }
  expects(false, "a known filter");
  return {};
}

// The input pixels that make one output pixel: first, count, and where their weights begin.
struct Window {
  std::int64_t first;
  std::int64_t count;
  std::size_t weights;
};

struct Windows {
  std::vector<Window> windows;
  std::vector<std::int32_t> weights;  // fixed point, kWeightBits after the point
};

std::int32_t to_fixed(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

Windows windows_of(std::int64_t in_size, std::int64_t out_size, const Kernel& kernel) {
  const double scale = to_double(in_size) / to_double(out_size);
  const double stretch = std::max(scale, 1.0);
  const double support = kernel.support * stretch;
  const double shrink = 1.0 / stretch;
  Windows out;
  out.windows.reserve(static_cast<std::size_t>(out_size));
  std::vector<double> raw;
  for (std::int64_t i = 0; i < out_size; ++i) {
    const double centre = (to_double(i) + 0.5) * scale;
    const auto first =
        std::max(static_cast<std::int64_t>(centre - support + 0.5), std::int64_t{0});
    const auto end = std::min(static_cast<std::int64_t>(centre + support + 0.5), in_size);
    raw.clear();
    double sum = 0.0;
    for (std::int64_t j = first; j < end; ++j) {
      // (j - first) + first - centre in the reference: sums of integers in double are exact.
      raw.push_back(kernel.weight((to_double(j) - centre + 0.5) * shrink));
      sum += raw.back();
    }
    out.windows.push_back({first, end - first, out.weights.size()});
    for (const double weight : raw) out.weights.push_back(to_fixed(sum != 0 ? weight / sum : weight));
  }
  return out;
}

std::uint8_t to_pixel(std::int32_t sum) {
  return low_bits<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

Image resize_columns(const Image& image, std::int64_t width, const Kernel& kernel) {
  const Windows all = windows_of(image.width, width, kernel);
  Image out(width, image.height);
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::uint8_t* to = out.at(0, y);
    for (const Window& window : all.windows) {
      const std::uint8_t* from = image.at(window.first, y);
      const std::int32_t* weight = all.weights.data() + window.weights;
      std::int32_t r = kHalf, g = kHalf, b = kHalf;
      for (std::int64_t j = 0; j < window.count; ++j, from += 3) {
        r += from[0] * weight[j];
        g += from[1] * weight[j];
        b += from[2] * weight[j];
      }
      *to++ = to_pixel(r);
      *to++ = to_pixel(g);
      *to++ = to_pixel(b);
    }
  }
  return out;
}

Image resize_rows(const Image& image, std::int64_t height, const Kernel& kernel) {
  const Windows all = windows_of(image.height, height, kernel);
  Image out(image.width, height);
  const auto row = static_cast<std::size_t>(image.width * 3);
  std::vector<std::int32_t> sums(row);
  for (std::int64_t y = 0; y < height; ++y) {
    const Window& window = nth(all.windows, y);
    std::fill(sums.begin(), sums.end(), kHalf);
    for (std::int64_t j = 0; j < window.count; ++j) {
      const std::int32_t weight = all.weights[window.weights + static_cast<std::size_t>(j)];
      const std::uint8_t* from = image.at(0, window.first + j);
      for (std::size_t i = 0; i < row; ++i) sums[i] += from[i] * weight;
    }
    std::uint8_t* to = out.at(0, y);
    for (std::size_t i = 0; i < row; ++i) to[i] = to_pixel(sums[i]);
  }
  return out;
}

}  // namespace

Image resize(const Image& image, std::int64_t width, std::int64_t height, ResampleFilter filter,
             PassOrder order) {
  expects(image.width > 0 && image.height > 0, "an image to resize has pixels");
  expects(width > 0 && height > 0, "a size to resize to is at least 1x1");
  const Kernel kernel = kernel_of(filter);
  if (width == image.width) {
    return height == image.height ? image : resize_rows(image, height, kernel);
  }
  const std::int64_t rows_lost = image.height - height, columns_lost = image.width - width;
  if (order == PassOrder::kPillow13 && rows_lost > 0 && rows_lost > 2 * columns_lost) {
    return resize_columns(resize_rows(image, height, kernel), width, kernel);
  }
  Image across = resize_columns(image, width, kernel);
  return height == image.height ? across : resize_rows(across, height, kernel);
}

}  // namespace tessera
