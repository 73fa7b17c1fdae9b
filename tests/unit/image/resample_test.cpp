// The resampler against Pillow, bit for bit, on stored fingerprints; and against the definition in
// floating point, so that a wrong fixture would be noticed too.
#include "vision/image/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/image_noise.h"

namespace tessera::resample_test {
namespace {

struct Vector {
  std::string filter, pattern, hex;
  std::int64_t in_width = 0, in_height = 0, width = 0, height = 0;
  std::uint32_t seed = 0, crc = 0, crc_of_13 = 0;
};

std::vector<Vector> read_vectors() {
  std::ifstream in(std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/image/resample.txt");
  std::vector<Vector> out;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Vector v;
    words >> v.filter;
    const bool with_pixels = v.filter == "pixels";
    if (with_pixels) words >> v.filter;
    words >> v.pattern >> v.in_width >> v.in_height >> v.width >> v.height >> v.seed;
    words >> std::hex >> v.crc >> v.crc_of_13 >> std::dec;
    if (with_pixels) words >> v.hex;
    EXPECT_FALSE(words.fail()) << line;
    out.push_back(v);
  }
  return out;
}

ResampleFilter filter_named(const std::string& name) {
  if (name == "box") return ResampleFilter::kBox;
  if (name == "bilinear") return ResampleFilter::kBilinear;
  if (name == "bicubic") return ResampleFilter::kBicubic;
  EXPECT_EQ(name, "lanczos");
  return ResampleFilter::kLanczos;
}

std::string to_hex(const Image& image) {
  std::string out;
  for (const std::uint8_t byte : image.rgb) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

TEST(Resample, EqualsPillowBitForBit) {
  const std::vector<Vector> vectors = read_vectors();
  EXPECT_GE(vectors.size(), 250u);
  for (const Vector& v : vectors) {
    const Image in =
        noise_image(v.in_width, v.in_height, v.seed,
                      v.pattern == "noise" ? NoisePattern::kNoise : NoisePattern::kEdges);
    const Image out = resize(in, v.width, v.height, filter_named(v.filter));
    ASSERT_EQ(out.width, v.width);
    ASSERT_EQ(out.height, v.height);
    const std::string name = v.filter + " " + v.pattern + " " + std::to_string(v.in_width) + "x" +
                             std::to_string(v.in_height) + " to " + std::to_string(v.width) + "x" +
                             std::to_string(v.height);
    EXPECT_EQ(crc32_of(out), v.crc) << name;
    const auto filter = filter_named(v.filter);
    EXPECT_EQ(crc32_of(resize(in, v.width, v.height, filter, PassOrder::kPillow13)), v.crc_of_13)
        << name;
    if (!v.hex.empty()) {
      EXPECT_EQ(to_hex(out), v.hex) << name;
    }
  }
}

// A fingerprint notices one level in one byte.
TEST(Resample, TheFingerprintNoticesOneLevel) {
  Image decoded_image = noise_image(40, 30, 5);
  const std::uint32_t before = crc32_of(decoded_image);
  decoded_image.rgb[1234] ^= 1;
  EXPECT_NE(crc32_of(decoded_image), before);
}

// Shrinking by a whole number with the box filter is the mean of the blocks.
TEST(Resample, BoxIsTheMeanOfBlocks) {
  const Image in = noise_image(12, 8, 3);
  const Image out = resize(in, 3, 8, ResampleFilter::kBox);
  for (std::int64_t y = 0; y < 8; ++y) {
    for (std::int64_t x = 0; x < 3; ++x) {
      double mean = 0;
      for (std::int64_t i = 0; i < 4; ++i) mean += in.at(4 * x + i, y)[1] / 4.0;
      EXPECT_NEAR(out.at(x, y)[1], mean, 0.51);
    }
  }
}

TEST(Resample, OneColourStaysItself) {
  Image flat(9, 14);
  for (std::uint8_t& byte : flat.rgb) byte = 201;
  for (const auto filter : {ResampleFilter::kBox, ResampleFilter::kBilinear,
                            ResampleFilter::kBicubic, ResampleFilter::kLanczos}) {
    for (const auto& [width, height] : {std::pair{3, 3}, {9, 5}, {31, 40}, {1, 1}}) {
      for (const std::uint8_t byte : resize(flat, width, height, filter).rgb) EXPECT_EQ(byte, 201);
    }
  }
}

TEST(Resample, TheSameSizeIsACopy) {
  const Image in = noise_image(21, 13, 8);
  EXPECT_EQ(resize(in, 21, 13, ResampleFilter::kLanczos).rgb, in.rgb);
}

}  // namespace
}  // namespace tessera::resample_test
