#include "video/cuts/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr int kColourLevels = 24;  // of 255, between fields of near-duplicates
constexpr std::string_view kHexDigits = "0123456789abcdef";

void put_byte(std::string& out, std::uint8_t byte) {
  out += kHexDigits[byte >> 4];
  out += kHexDigits[byte & 15];
}

}  // namespace

ImageFingerprint fingerprint_of(std::span<const std::uint8_t> rgb, std::int64_t width,
                                std::int64_t height) {
  expects(width > 0 && height > 0 && width <= (1 << 20) && height <= (1 << 20) &&
              rgb.size() == to_size(width * height * 3),
          "a whole RGB image");
  static const auto kFunction =
      reinterpret_cast<FingerprintFunction>(compare_function(kFingerprintFunction));
  ImageFingerprint out;
  if (kFunction(rgb.data(), narrow<int>(width), narrow<int>(height), &out.shape,
                out.colours.data()) != 0) {
    fail_compare(kCompareModule, "an image that it could not measure");
  }
  return out;
}

std::optional<int> distance_of(const ImageFingerprint& a, const ImageFingerprint& b) {
  for (std::size_t i = 0; i < a.colours.size(); ++i) {
    if (std::abs(int{a.colours[i]} - int{b.colours[i]}) > kColourLevels) return std::nullopt;
  }
  return std::popcount(a.shape ^ b.shape);
}

std::string fingerprint_text(const ImageFingerprint& print) {
  std::string out;
  for (int shift = 56; shift >= 0; shift -= 8) {
    put_byte(out, low_bits<std::uint8_t>(print.shape >> shift));
  }
  for (const std::uint8_t colour : print.colours) put_byte(out, colour);
  return out;
}

std::optional<ImageFingerprint> parse_fingerprint(std::string_view text) {
  ImageFingerprint out;
  if (text.size() != 2 * (sizeof out.shape + out.colours.size())) return std::nullopt;
  std::array<std::uint8_t, sizeof out.shape + sizeof out.colours> bytes{};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = kHexDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bytes[i / 2] = low_bits<std::uint8_t>(bytes[i / 2] << 4 | digit);
  }
  for (std::size_t i = 0; i < sizeof out.shape; ++i) out.shape = out.shape << 8 | bytes[i];
  std::copy(bytes.begin() + sizeof out.shape, bytes.end(), out.colours.begin());
  return out;
}

}  // namespace tessera
