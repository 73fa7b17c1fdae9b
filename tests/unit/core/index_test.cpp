// Checked conversions and access: what fits passes unchanged, what does not ends the program with
// the place of the call.
#include "engine/core/index.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tessera::index_test {
namespace {

constexpr Index kLow = std::numeric_limits<Index>::min();
constexpr Index kHigh = std::numeric_limits<Index>::max();
enum class Colour { kRed, kGreen, kBlue, kNone };

TEST(Narrow, NumberThatFits_IsUnchanged) {
  static_assert(narrow<std::uint8_t>(Index{255}) == 255);
  static_assert(narrow<std::int32_t>(Index{-2147483648}) == std::numeric_limits<std::int32_t>::min());
  static_assert(narrow<std::uint64_t>(kHigh) == 0x7fffffffffffffffu);
  static_assert(to_size(7) == 7u);
  static_assert(to_index(std::size_t{7}) == 7);
}

TEST(Narrow, NumberThatDoesNotFit_EndsTheProgramAtTheCall) {
  EXPECT_DEATH(narrow<std::uint8_t>(256), "a number fits its type .*index_test.cpp:[0-9]+");
  EXPECT_DEATH(narrow<std::uint8_t>(-1), "a number fits its type");
  EXPECT_DEATH(narrow<std::int32_t>(Index{1} << 31), "a number fits its type");
  EXPECT_DEATH(narrow<std::int32_t>(std::uint32_t{1} << 31), "a number fits its type");
  EXPECT_DEATH(to_size(Index{-1}), "a number fits its type .*index_test.cpp:[0-9]+");
  EXPECT_DEATH(to_index(std::uint64_t{1} << 63), "a number fits its type .*index_test.cpp:[0-9]+");
}

TEST(LowBits, HighBits_AreDropped) {
  static_assert(low_bits<std::uint32_t>(0x123456789abcdef0u) == 0x9abcdef0u);
  static_assert(low_bits<std::uint64_t>(Index{-1}) == ~std::uint64_t{0});
  static_assert(low_bits<std::uint8_t>(-2) == 254);
}

TEST(Truncate, NumberInRange_IsRoundedTowardsZero) {
  static_assert(truncate<int>(2.9) == 2);
  static_assert(truncate<int>(-2.9f) == -2);
  static_assert(truncate<std::uint8_t>(255.9) == 255);
  static_assert(truncate<std::uint8_t>(-0.9) == 0);
  static_assert(truncate<std::int32_t>(-2147483648.9) == std::numeric_limits<std::int32_t>::min());
  static_assert(truncate<Index>(-9223372036854775808.0) == kLow);
  static_assert(truncate<Index>(9223372036854774784.0) == kHigh - 1023);
  static_assert(truncate<std::uint64_t>(9223372036854775808.0) == std::uint64_t{1} << 63);
}

TEST(Truncate, NumberOutOfRange_EndsTheProgram) {
  const char* const kWhat = "a rounded number fits its type .*index_test.cpp:[0-9]+";
  EXPECT_DEATH(truncate<std::uint8_t>(256.0), kWhat);
  EXPECT_DEATH(truncate<std::uint8_t>(-1.0), kWhat);
  EXPECT_DEATH(truncate<std::int32_t>(2147483648.0), kWhat);
  EXPECT_DEATH(truncate<std::int32_t>(2147483648.0f), kWhat);
  EXPECT_DEATH(truncate<Index>(9223372036854775808.0), kWhat);
  EXPECT_DEATH(truncate<int>(std::numeric_limits<double>::quiet_NaN()), kWhat);
  EXPECT_DEATH(truncate<int>(std::numeric_limits<float>::infinity()), kWhat);
}

TEST(Characters, EveryByte_ComesBack) {
  for (int i = 0; i < 256; ++i) EXPECT_EQ(byte_of(char_of(i)), i);
}

TEST(Nth, EveryKindOfList_GivesReferences) {
  std::vector<int> list{1, 2, 3};
  nth(list, Index{2}) = 9;
  EXPECT_EQ(list[2], 9);
  std::vector<bool> marks(3);
  nth(marks, 1) = true;
  EXPECT_TRUE(marks[1]);
  const std::span<const int> view = list;
  EXPECT_EQ(&nth(view, 1), &list[1]);
  constexpr std::array<int, 4> kOf = {5, 6, 7, 8};
  static_assert(nth(kOf, Colour::kBlue) == 7);
  int plain[2] = {3, 4};
  nth(plain, 0) = 5;
  EXPECT_EQ(plain[0], 5);
  EXPECT_EQ(nth(std::string("ab"), 1), 'b');
}

TEST(Nth, PlaceOutsideTheList_EndsTheProgramAtTheCall) {
  std::vector<int> list{1, 2, 3};
  const char* const kWhat = "an index lies inside its list .*index_test.cpp:[0-9]+";
  EXPECT_DEATH(nth(list, 3) = 1, kWhat);
  EXPECT_DEATH(nth(list, Index{-1}) = 1, kWhat);
  const std::array<int, 3> three{};
  EXPECT_DEATH(EXPECT_EQ(nth(three, Colour::kNone), 0), kWhat);
  int plain[2] = {3, 4};
  EXPECT_DEATH(nth(plain, 2) = 1, kWhat);
}

}  // namespace
}  // namespace tessera::index_test
