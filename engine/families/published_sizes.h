// Published dimensions that weight files do not tell by themselves.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

struct PublishedSize {
  std::string_view name;
  std::int64_t layers, width, heads;
};

inline constexpr std::array<PublishedSize, 8> kLlamaGenSizes = {{{"B", 12, 768, 12},
                                                                 {"L", 24, 1024, 16},
                                                                 {"XL", 36, 1280, 20},
                                                                 {"XXL", 48, 1536, 24},
                                                                 {"XXXL", 48, 2560, 40},
                                                                 {"1B", 22, 2048, 32},
                                                                 {"3B", 24, 3200, 32},
                                                                 {"7B", 32, 4096, 32}}};

inline constexpr std::array<PublishedSize, 2> kJanusSizes = {
    {{"1B", 24, 2048, 16}, {"7B", 30, 4096, 32}}};

inline constexpr std::array<PublishedSize, 2> kChameleonSizes = {
    {{"7B", 32, 4096, 32}, {"30B", 48, 8192, 64}}};

inline constexpr std::array<PublishedSize, 3> kNbpSizes = {
    {{"base", 24, 1536, 16}, {"xl", 24, 2048, 32}, {"3B", 32, 3072, 32}}};

}  // namespace tessera
