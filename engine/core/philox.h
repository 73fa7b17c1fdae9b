// Counter-based random numbers, Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC'11). Every draw of the program is addressed, never sequenced:
// the key is (seed, item), the counter (position, pass, purpose, lane), so that batch size, order
// and threads cannot change it.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// What a draw is for. Part of the counter, so no two purposes ever share a number.
enum class Purpose : std::uint32_t {
  kSample = 0,    // noise of a position; the only one that leaves the pass out
  kAccept = 1,    // test of a draft
  kResidual = 2,  // draw after a failed test
  kDraft = 3,     // fresh draw of a draft
  kInit = 4,      // guess for a slot that nothing is known about
  kWeights = 5,
  kScene = 6,
  kTest = 7,
  kKeep = 8,    // does a draft stay when its law has moved (maximal coupling)
  kMove = 9,    // the draft it becomes when it does not stay
  kMeter = 10,  // probability integral transform
  kSibling = 11,  // a further candidate for one position
};

// A 64-bit key from (seed, item), well mixed, so that neighbouring seeds are unrelated.
constexpr std::array<std::uint32_t, 2> philox_key(std::uint64_t seed, std::uint64_t item) {
  const PhiloxBlock mixed =
      philox4x32({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                  static_cast<std::uint32_t>(item), static_cast<std::uint32_t>(item >> 32)},
                 {0x54657373u, 0x65726131u});
  return {mixed[0], mixed[1]};
}

// Uniform in the open interval (0, 1): never 0, never 1. 23 random bits and the half between.
constexpr float uniform_open(std::uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

}  // namespace tessera
