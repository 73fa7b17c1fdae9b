// The module that compares images, and what it and those who load it agree on.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

inline constexpr const char* kCompareModule = "tessera-cuts.so";

inline constexpr int kHistogramLevels = 32;  // of each channel
inline constexpr const char* kHistogramFunction = "tessera_colour_histogram";
// rgb [height, width, 3]; out [levels^3] sums to 1. 0, or another number when it failed.
using HistogramFunction = int (*)(const std::uint8_t* rgb, int width, int height, float* out);

inline constexpr int kFingerprintSide = 4;  // fields of colour a side
inline constexpr const char* kFingerprintFunction = "tessera_image_fingerprint";
// rgb [height, width, 3]; colours [side, side, 3]. 0, or another number when it failed.
using FingerprintFunction = int (*)(const std::uint8_t* rgb, int width, int height,
                                    std::uint64_t* shape, std::uint8_t* colours);

// A function of the module, which is loaded once for the rest of the program. Error kGeneral,
// E_VIDEO_CUTS.
void* compare_function(const char* name);
[[noreturn]] void fail_compare(const std::string& file, std::string found);

}  // namespace tessera
