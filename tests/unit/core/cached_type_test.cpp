// The table of types of caches: sizes, and what comes back of numbers that were kept.
#include "engine/core/cached_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera::cached_type_test {
namespace {

// Numbers of both signs, of sizes that a head may have: up to `largest`.
std::vector<float> numbers(std::int64_t count, float largest) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const float part = static_cast<float>(i * 7919 % 1009) / 1009.0f;
    out.push_back(i % 11 == 0 ? 0.0f : i % 3 == 0 ? -part * largest : part * largest);
  }
  return out;
}

struct Kept {
  std::vector<std::byte> bytes;
  std::vector<float> numbers;

  Kept(const CachedType& type, const std::vector<float>& given)
      : bytes(type.bytes(std::ssize(given))), numbers(given.size()) {
    type.write(given.data(), std::ssize(given), bytes.data());
    type.read(bytes.data(), std::ssize(given), numbers.data());
  }
};

TEST(CachedTypes, EachIsFoundByItsNameAndByItsElements) {
  for (const CachedType& type : cached_types()) {
    EXPECT_EQ(&cached_type(type.type), &type);
    EXPECT_EQ(find_cached(type.element), &type);
    EXPECT_EQ(cached_named(dtype_name(type.type)), type.type);
  }
  EXPECT_FALSE(cached_named("q4"));
  EXPECT_EQ(find_cached(DType::kF64), nullptr);
  EXPECT_EQ(cached_type(DType::kQ8).bytes(64), 68u);
  EXPECT_EQ(cached_type(DType::kBF16).bytes(64), 128u);
}

TEST(CachedTypes, WhatWasKeptOnceIsKeptExactlyTheSecondTime) {
  for (const CachedType& type : cached_types()) {
    for (const std::int64_t count : {1, 6, 64, 100, 128}) {
      for (int size = -90; size < 120; ++size) {
        const Kept once(type, numbers(count, std::ldexp(1.37f, size)));
        const Kept twice(type, once.numbers);
        ASSERT_EQ(once.numbers, twice.numbers) << dtype_name(type.type) << ", 2^" << size;
        ASSERT_EQ(once.bytes, twice.bytes) << dtype_name(type.type) << ", 2^" << size;
      }
    }
  }
}

// Half a part in 127 of the largest number of a head, and what rounding the scale up adds.
TEST(CachedTypes, EightBitsAreTheNearestOfTheirScale) {
  const CachedType& type = cached_type(DType::kQ8);
  for (const float largest : {1e-20f, 0.02f, 1.0f, 700.0f, 1e30f}) {
    for (const std::int64_t count : {1, 20, 128}) {
      const std::vector<float> given = numbers(count, largest);
      const Kept kept(type, given);
      double most = 0, worst = 0;
      for (const float value : given) most = std::max(most, std::abs(double{value}));
      for (std::size_t i = 0; i < given.size(); ++i) {
        worst = std::max(worst, std::abs(double{given[i]} - double{kept.numbers[i]}));
      }
      EXPECT_LE(worst, most / 127 * (0.5 + 127 * std::ldexp(1.0, -15))) << largest;
      if (count == 128) {
        EXPECT_GE(worst, most / 127 * 0.4) << "it is 8 bits that are kept";
      }
    }
  }
}

TEST(CachedTypes, TinyNumbersAreZeroAndWhatIsNoNumberIsNone) {
  const CachedType& type = cached_type(DType::kQ8);
  EXPECT_EQ(Kept(type, {1e-31f, -1e-38f, 0.0f}).numbers, (std::vector<float>{0, 0, 0}));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(Kept(type, {largest, 0.0f}).numbers[1], 0.0f);
  for (const float bad : {std::numeric_limits<float>::infinity(), NAN, -NAN}) {
    for (const float value : Kept(type, {1.0f, bad, 2.0f}).numbers) EXPECT_TRUE(std::isnan(value));
  }
}

// Each head has a scale of its own, and a row may be written over.
TEST(CachedTypes, RowsOfATableAreHeadsByThemselves) {
  for (const CachedType& type : cached_types()) {
    Tensor table = Tensor::host(type.element, {3, 2, type.stored(6)});
    std::vector<float> row = numbers(12, 1.0f);
    for (std::size_t i = 0; i < 6; ++i) row[i] *= 1000.0f;
    EXPECT_EQ(cached_head(table.view()), 6);
    EXPECT_EQ(cached_width(table.view()), 12);
    for (const std::int64_t at : {0, 2, 1, 2}) write_cached(row.data(), table.view(), at);
    std::vector<float> back(12);
    for (const std::int64_t at : {0, 1, 2}) {
      read_cached(table.view(), at, back.data());
      const Kept first(type, {row.begin(), row.begin() + 6});
      const Kept second(type, {row.begin() + 6, row.end()});
      EXPECT_EQ(std::vector<float>(back.begin(), back.begin() + 6), first.numbers);
      EXPECT_EQ(std::vector<float>(back.begin() + 6, back.end()), second.numbers);
    }
  }
}

}  // namespace
}  // namespace tessera::cached_type_test
