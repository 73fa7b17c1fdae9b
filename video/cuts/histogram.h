// What the module of histograms and those who load it agree on.
#pragma once

#include <cstdint>

namespace tessera {

inline constexpr int kHistogramLevels = 32;  // of each channel
inline constexpr const char* kHistogramModule = "tessera-cuts.so";
inline constexpr const char* kHistogramFunction = "tessera_colour_histogram";
// rgb [height, width, 3]; out [levels^3] sums to 1. 0, or another number when it failed.
using HistogramFunction = int (*)(const std::uint8_t* rgb, int width, int height, float* out);

}  // namespace tessera
