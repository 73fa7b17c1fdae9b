// Fingerprints: of images that people would call the same, and of others.
#include "video/cuts/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/core/error.h"

namespace tessera::fingerprint_test {
namespace {

struct Pixels {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
  std::uint8_t& at(std::int64_t x, std::int64_t y, std::int64_t c) {
    return rgb[static_cast<std::size_t>((y * width + x) * 3 + c)];
  }
};

// Blocks whose places and colours depend on the number.
Pixels blocks(std::uint32_t number, std::int64_t width = 96, std::int64_t height = 72) {
  Pixels out{width, height, {}};
  out.rgb.resize(static_cast<std::size_t>(width * height * 3));
  std::uint32_t state = number * 2654435761u + 12345u;
  std::array<std::uint8_t, 8 * 6 * 3> fields{};
  for (std::uint8_t& field : fields) {
    state = state * 1664525u + 1013904223u;
    field = static_cast<std::uint8_t>(state >> 24);
  }
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        out.at(x, y, c) =
            fields[static_cast<std::size_t>((y * 6 / height * 8 + x * 8 / width) * 3 + c)];
      }
    }
  }
  return out;
}

template <typename Change>
Pixels changed(Pixels image, Change change) {
  std::uint32_t state = 7;
  for (std::uint8_t& value : image.rgb) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint8_t>(
        std::clamp(change(int{value}, static_cast<int>(state >> 29)), 0, 255));
  }
  return image;
}

ImageFingerprint print_of(const Pixels& image) {
  return fingerprint_of(image.rgb, image.width, image.height);
}

TEST(Fingerprint, NearDuplicatesAreNear) {
  int farthest = 0;
  for (std::uint32_t i = 0; i < 50; ++i) {
    const Pixels image = blocks(i);
    const ImageFingerprint own = print_of(image);
    EXPECT_EQ(distance_of(own, own), 0);
    const auto noisy = changed(image, [](int v, int noise) { return v + noise - 4; });
    const auto brighter = changed(image, [](int v, int) { return v + 10; });
    const auto flatter = changed(image, [](int v, int) { return 128 + (v - 128) * 9 / 10; });
    for (const Pixels& other : {noisy, brighter, flatter, blocks(i, 192, 144), blocks(i, 64, 48)}) {
      const std::optional<int> distance = distance_of(own, print_of(other));
      ASSERT_TRUE(distance) << i;
      farthest = std::max(farthest, *distance);
    }
  }
  EXPECT_LE(farthest, 6) << "the default of --skip-similar";
}

TEST(Fingerprint, OthersAreFar) {
  std::vector<ImageFingerprint> prints;
  for (std::uint32_t i = 0; i < 100; ++i) prints.push_back(print_of(blocks(i)));
  for (std::size_t i = 0; i < prints.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_GT(distance_of(prints[i], prints[j]).value_or(64), 8) << i << ' ' << j;
    }
  }
}

TEST(Fingerprint, AnotherColourIsAnotherImage) {
  Pixels red{40, 40, std::vector<std::uint8_t>(40 * 40 * 3, 200)};
  for (std::int64_t y = 10; y < 30; ++y) {
    for (std::int64_t x = 10; x < 30; ++x) {
      red.at(x, y, 0) = 180;
      red.at(x, y, 1) = red.at(x, y, 2) = 60;
    }
  }
  Pixels green = red;
  for (std::size_t i = 0; i < green.rgb.size(); i += 3) std::swap(green.rgb[i], green.rgb[i + 1]);
  EXPECT_FALSE(distance_of(print_of(red), print_of(green)));
  const Pixels white{5, 9, std::vector<std::uint8_t>(135, 255)};
  const Pixels black{5, 9, std::vector<std::uint8_t>(135, 0)};
  EXPECT_FALSE(distance_of(print_of(white), print_of(black)));
  EXPECT_EQ(print_of(white).shape, 0u) << "a flat image has no shape";
  EXPECT_EQ(distance_of(print_of(white), print_of({1, 1, {250, 250, 250}})), 0);
}

TEST(Fingerprint, TextsComeBackAndOthersAreRefused) {
  const ImageFingerprint print = print_of(blocks(3));
  const std::string text = fingerprint_text(print);
  EXPECT_EQ(text.size(), 112u);
  EXPECT_EQ(parse_fingerprint(text), print);
  EXPECT_EQ(parse_fingerprint(text.substr(1)), std::nullopt);
  EXPECT_EQ(parse_fingerprint(text + "0"), std::nullopt);
  EXPECT_EQ(parse_fingerprint("G" + text.substr(1)), std::nullopt);
  EXPECT_EQ(parse_fingerprint(""), std::nullopt);
}

}  // namespace
}  // namespace tessera::fingerprint_test
