// What an image looks like, in 56 bytes: near-duplicates have fingerprints that are near each
// other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "video/cuts/compare_module.h"

namespace tessera {

struct ImageFingerprint {
  // A bit for each of 63 low frequencies of the grey image at 32 x 32 pixels: whether its part is
  // above the median (perceptual hash). Size, compression and small changes of tone flip few bits.
  std::uint64_t shape = 0;
  // Mean colours [4, 4, 3] of fields: the grey image alone takes a red cube for a green one.
  std::array<std::uint8_t, kFingerprintSide * kFingerprintSide * 3> colours{};

  bool operator==(const ImageFingerprint&) const = default;
};

// Of rgb [height, width, 3]. Error kGeneral, E_VIDEO_CUTS, without the module.
ImageFingerprint fingerprint_of(std::span<const std::uint8_t> rgb, std::int64_t width,
                                std::int64_t height);

// Bits of the shapes that differ, 0 to 63; nullopt if the colours of a field are too far apart.
std::optional<int> distance_of(const ImageFingerprint& a, const ImageFingerprint& b);

// 112 hexadecimal digits, and back; nullopt for any other text.
std::string fingerprint_text(const ImageFingerprint& print);
std::optional<ImageFingerprint> parse_fingerprint(std::string_view text);

}  // namespace tessera
