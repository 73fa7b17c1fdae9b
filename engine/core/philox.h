// Counter-based random numbers, Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC'11). Every draw of the program is addressed, never sequenced:
// the key is (seed, item), the counter (position, pass, purpose, lane), so that batch size, order
// and threads cannot change it.
#pragma once

#include <array>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>

#include "engine/core/index.h"
#endif

namespace tessera {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {low_bits<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               low_bits<std::uint32_t>(product1),
               low_bits<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               low_bits<std::uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Four blocks whose counters differ in the last number, which runs on from the one given.
using PhiloxQuad = std::array<std::uint32_t, 16>;

inline PhiloxQuad philox4x32_plain_quad(const PhiloxBlock& counter,
                                        std::array<std::uint32_t, 2> key) {
  PhiloxQuad out{};
  for (std::uint32_t block = 0; block < 4; ++block) {
    const PhiloxBlock one =
        philox4x32({counter[0], counter[1], counter[2], counter[3] + block}, key);
    for (std::uint32_t i = 0; i < 4; ++i) out[4 * block + i] = one[i];
  }
  return out;
}

#if defined(__SSE2__)
namespace philox_detail {
// Two blocks, one number of each in the low half of a 64-bit lane; high halves are never read.
struct Pair {
  __m128i c0, c1, c2, c3;
};

inline __m128i both(std::uint32_t value) { return _mm_set1_epi64x(value); }

inline Pair round_of(const Pair& c, __m128i key0, __m128i key1) {
  const __m128i product0 = _mm_mul_epu32(c.c0, both(0xD2511F53u));
  const __m128i product1 = _mm_mul_epu32(c.c2, both(0xCD9E8D57u));
  return {_mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(product1, 32), c.c1), key0), product1,
          _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(product0, 32), c.c3), key1), product0};
}

inline void store(const Pair& c, std::uint32_t* out) {
  const __m128i first = _mm_unpacklo_epi64(_mm_unpacklo_epi32(c.c0, c.c1),
                                           _mm_unpacklo_epi32(c.c2, c.c3));
  const __m128i second = _mm_unpacklo_epi64(_mm_unpackhi_epi32(c.c0, c.c1),
                                            _mm_unpackhi_epi32(c.c2, c.c3));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), first);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4), second);
}
}  // namespace philox_detail

inline PhiloxQuad philox4x32_quad(const PhiloxBlock& counter, std::array<std::uint32_t, 2> key) {
  using namespace philox_detail;
  const auto lane = [&](std::uint32_t add) { return static_cast<long long>(counter[3] + add); };
  const __m128i c0 = both(counter[0]), c1 = both(counter[1]), c2 = both(counter[2]);
  Pair low{c0, c1, c2, _mm_set_epi64x(lane(1), lane(0))};
  Pair high{c0, c1, c2, _mm_set_epi64x(lane(3), lane(2))};
  for (int round = 0; round < 10; ++round) {
    const __m128i key0 = both(key[0]), key1 = both(key[1]);
    low = round_of(low, key0, key1);
    high = round_of(high, key0, key1);
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  PhiloxQuad out;
  store(low, out.data());
  store(high, out.data() + 8);
  return out;
}
#else
inline PhiloxQuad philox4x32_quad(const PhiloxBlock& counter, std::array<std::uint32_t, 2> key) {
  return philox4x32_plain_quad(counter, key);
}
#endif

// What a draw is for. Part of the counter, so no two purposes ever share a number.
enum class Purpose : std::uint32_t {
  kSample = 0,    // noise of a position; the only one that leaves the pass out
  kAccept = 1,    // test of a draft
  kResidual = 2,  // draw after a failed test
  kDraft = 3,     // fresh draw of a draft
  kInit = 4,      // draft for a slot that nothing is known about
  kWeights = 5,
  kScene = 6,
  kTest = 7,
  kKeep = 8,    // does a draft stay when its distribution has moved (maximal coupling)
  kMove = 9,    // the draft it becomes when it does not stay
  kMeter = 10,  // probability integral transform
  kSibling = 11,  // a further candidate for one position
  kPrune = 12,    // lots of visual tokens
};

// A 64-bit key from (seed, item), well mixed, so that neighbouring seeds are unrelated.
constexpr std::array<std::uint32_t, 2> philox_key(std::uint64_t seed, std::uint64_t item) {
  const PhiloxBlock mixed =
      philox4x32({low_bits<std::uint32_t>(seed), low_bits<std::uint32_t>(seed >> 32),
                  low_bits<std::uint32_t>(item), low_bits<std::uint32_t>(item >> 32)},
                 {0x54657373u, 0x65726131u});
  return {mixed[0], mixed[1]};
}

// Uniform in the open interval (0, 1): never 0, never 1. 23 random bits and the half between.
constexpr float uniform_open(std::uint32_t bits) {
  return (to_float(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

}  // namespace tessera
