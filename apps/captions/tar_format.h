// Places of the fields in the 512-byte header of POSIX.1-2001 tar (ustar, pax interchange format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::tar {

inline constexpr std::size_t kBlock = 512;
inline constexpr std::size_t kRecord = 20 * kBlock;  // archives are padded to this

struct Field {
  std::size_t at, size;
};
inline constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kType{156, 1}, kLinkName{157, 100}, kMagic{257, 8},
    kPrefix{345, 155};
inline constexpr std::string_view kPosixMagic{"ustar\00000", 8}, kGnuMagic{"ustar  \0", 8};

inline std::string_view field(std::string_view block, Field f) {
  return block.substr(f.at, f.size);
}

// Sum of all bytes with the sum's own field taken as spaces.
template <typename Byte>
std::int64_t header_sum(std::string_view block) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const bool own = i >= kSum.at && i < kSum.at + kSum.size;
    sum += own ? ' ' : static_cast<Byte>(block[i]);
  }
  return sum;
}

}  // namespace tessera::tar
