// Random numbers against published vectors, UTF-8, element types, error lines, host memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/core/checked.h"
#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/core/philox.h"
#include "engine/core/tensor.h"
#include "engine/core/utf8.h"

namespace tessera::core_test {
namespace {

// The known-answer vectors of the Random123 distribution for philox4x32 with 10 rounds.
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NeighbouringKeysAreFarApart) {
  std::set<std::array<std::uint32_t, 2>> keys;
  int flipped = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (std::uint64_t item = 0; item < 64; ++item) {
      const auto key = philox_key(seed, item);
      const auto next = philox_key(seed, item + 1);
      keys.insert(key);
      flipped += std::popcount(key[0] ^ next[0]) + std::popcount(key[1] ^ next[1]);
    }
  }
  EXPECT_EQ(keys.size(), 64u * 64u);
  // Half of 64 bits each, 4096 times: standard deviation 256 around 131072.
  EXPECT_NEAR(flipped, 32 * 4096, 6 * 256);
}

TEST(Philox, UniformStaysInsideTheOpenInterval) {
  EXPECT_GT(uniform_open(0), 0.0f);
  EXPECT_LT(uniform_open(0xffffffff), 1.0f);
  EXPECT_LT(uniform_open(0x7fffffff), uniform_open(0x80000000));
}

TEST(Utf8, EveryCodePointSurvivesARoundTrip) {
  for (char32_t code = 0; code <= 0x10ffff; ++code) {
    if (code == 0xd800) code = 0xe000;
    std::string text;
    append_utf8(text, code);
    const Utf8Char back = decode_utf8(text, 0);
    ASSERT_TRUE(back.valid) << std::hex << static_cast<unsigned>(code);
    ASSERT_EQ(back.code, code);
    ASSERT_EQ(back.length, text.size());
  }
}

TEST(Utf8, RefusesWhatTheStandardRefuses) {
  for (const std::string_view bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x80\x80", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xe1\x80", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xf1\x80\x80"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << bad.size();
    EXPECT_EQ(decode_utf8(bad, 0).length, 1u);
  }
  EXPECT_TRUE(is_valid_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82"));
  // A character must not be completed by bytes past the end of the view.
  EXPECT_FALSE(is_valid_utf8(std::string_view("\xc3\xa4", 1)));
}

TEST(DType, HalfConversionsEqualTheCompilers) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float want = static_cast<float>(std::bit_cast<_Float16>(half));
    const float got = f16_to_float(half);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << bits;
    }
  }
}

TEST(DType, Bf16RoundsToTheNearestEven) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
      continue;
    }
    ASSERT_EQ(float_to_bf16(value), bits);
    if (!std::isfinite(value) || (bits & 0x7fff) == 0x7f7f) continue;
    // The middle between two neighbours goes to the even one, anything next to it to the nearer.
    const std::uint32_t middle = (bits << 16) | 0x8000u;
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle)), bits + (bits & 1));
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle - 1)), bits);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle + 1)), bits + 1);
  }
}

TEST(Checked, NeverWraps) {
  EXPECT_FALSE(checked_add(UINT64_MAX, 1));
  EXPECT_EQ(checked_add(UINT64_MAX, 0), UINT64_MAX);
  EXPECT_FALSE(checked_mul(std::uint64_t{1} << 32, std::uint64_t{1} << 32));
  const std::int64_t negative[] = {3, -1};
  EXPECT_FALSE(checked_product(negative));
  const std::int64_t zero_first[] = {0, INT64_MAX, INT64_MAX};
  EXPECT_EQ(checked_product(zero_first), 0u);
  const std::int64_t wraps[] = {INT64_MAX, 3};
  EXPECT_FALSE(checked_product(wraps));
  EXPECT_EQ(checked_product({}), 1u);
}

TEST(Error, LineNamesFilePlaceExpectedFoundHint) {
  const Error error({.kind = ErrorKind::kModel,
                     .code = "E_X",
                     .file = "a.json",
                     .where = "byte 3",
                     .expected = "b",
                     .found = "c",
                     .hint = "d"});
  EXPECT_STREQ(error.what(), "a.json: byte 3: expected b, found c (d)");
  EXPECT_EQ(error.exit_code(), 4);
}

TEST(Error, LineHoldsNoControlBytesAndIsCut) {
  std::string hostile = "x\x1b[31m\n\x7f\xff\xc2\x9b\xe2\x80\xae";
  EXPECT_EQ(escape_for_terminal(hostile),
            "x\\u{001b}[31m\\u{000a}\\u{007f}\\xff\\u{009b}\\u{202e}");
  const std::string line = format_error({.file = std::string(5000, 'f')});
  EXPECT_EQ(line.size(), 1024u);
  EXPECT_EQ(line.substr(1021), "...");
  for (std::size_t cut = 4; cut < 40; ++cut) {
    const std::string piece =
        escape_for_terminal("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4" + hostile, cut);
    EXPECT_LE(piece.size(), cut);
    EXPECT_TRUE(is_valid_utf8(piece));
  }
}

TEST(Arena, HandsOutAlignedPiecesAndRemembersThePeak) {
  Arena arena(1024);
  const TensorView a = arena.take(DType::kF32, {3});
  const TensorView b = arena.take(DType::kU8, {65});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data) % 64, 0u);
  EXPECT_EQ(static_cast<std::byte*>(b.data) - static_cast<std::byte*>(a.data), 64);
  EXPECT_EQ(arena.used(), 64u + 128u);
  const std::size_t mark = arena.used();
  arena.take(DType::kF32, {128});
  arena.rewind(mark);
  EXPECT_EQ(arena.used(), mark);
  EXPECT_EQ(arena.peak(), mark + 512);
  arena.reset();
  EXPECT_EQ(arena.take(DType::kF32, {256}).data, a.data);
}

TEST(ArenaDeathTest, EndsTheProgramPastItsEnd) {
  Arena arena(128);
  arena.take(DType::kF32, {16});
  EXPECT_DEATH(arena.take(DType::kF32, {17}), "planned large enough");
}

TEST(Tensor, CloneOwnsItsBytes) {
  Tensor a = Tensor::host(DType::kI32, {2, 3});
  for (int i = 0; i < 6; ++i) a.view().as<std::int32_t>()[i] = i;
  Tensor b = a.clone();
  a.view().as<std::int32_t>()[5] = 9;
  EXPECT_EQ(b.view().as<std::int32_t>()[5], 5);
  EXPECT_EQ(b.shape().to_string(), "[2, 3]");
  EXPECT_EQ(b.bytes(), 24u);
}

TEST(Tensor, HostMemoryThatCannotBeHadIsAnErrorOfKindMemory) {
  try {
    allocate_host(SIZE_MAX);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 5);
  }
}

std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * 4096;
}

TEST(HostMemory, IsAlignedAndAllOfItIsThere) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4096}, kHuge - 1, kHuge,
        kHuge + 1, 3 * kHuge + 4095}) {
    std::vector<Buffer> held;
    for (int i = 0; i < 5; ++i) {
      const Buffer& buffer = held.emplace_back(allocate_host(bytes));
      const auto address = reinterpret_cast<std::uintptr_t>(buffer.get());
      EXPECT_EQ(address % (bytes >= kHuge ? kHuge : 64), 0u) << bytes;
      std::memset(buffer.get(), i + 1, bytes);
    }
    for (int i = 0; i < 5; ++i) {  // none lies over another
      const auto* data = static_cast<const unsigned char*>(held[static_cast<std::size_t>(i)].get());
      for (std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1}) {
        if (bytes == 0) continue;
        EXPECT_EQ(data[at], i + 1) << bytes << " at " << at;
      }
    }
  }
}

// Tensors that come and go next to small things that stay: memory must not grow with their number.
TEST(HostMemory, ComingAndGoingTakesNoMoreThanWhatIsThere) {
  std::vector<Buffer> live;
  for (int i = 0; i < 8; ++i) live.push_back(allocate_host(1));
  std::vector<std::unique_ptr<std::string>> lasting;
  std::uint32_t state = 1;
  const auto next = [&] { return (state = state * 1103515245u + 12345u) >> 16; };
  const std::int64_t before = resident_bytes();
  for (int i = 0; i < 1500; ++i) {
    Buffer& slot = live[next() % live.size()];
    const bool huge = i % 3 == 0;
    const std::size_t bytes =
        huge ? (std::size_t{2} << 20) + next() % 64 * 65536 : 4096 + next() % 512 * 64;
    slot = Buffer(
        nullptr, +[](void*) {});
    slot = allocate_host(bytes);
    static_cast<char*>(slot.get())[bytes - 1] = 1;
    if (huge) std::memset(slot.get(), 1, bytes);
    lasting.push_back(std::make_unique<std::string>(40 + next() % 50, 'x'));
  }
  EXPECT_LT(resident_bytes() - before, std::int64_t{8 * 6 + 4} << 20);
}

}  // namespace
}  // namespace tessera::core_test
