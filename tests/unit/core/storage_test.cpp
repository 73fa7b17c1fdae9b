// The table of storage types: sizes, and what comes back of numbers that were kept.
#include "engine/core/storage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/block_types.h"

namespace tessera::storage_test {
namespace {

// Numbers of both signs and many sizes, with zeros.
std::vector<float> numbers(std::int64_t count) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const float mantissa = 1.0f + static_cast<float>(i * 37 % 101) / 101.0f;
    const float value = std::ldexp(mantissa, static_cast<int>(i % 40) - 20);
    out.push_back(i % 11 == 0 ? 0.0f : i % 3 == 0 ? -value : value);
  }
  return out;
}

TEST(Storage, EveryTypeStandsOnceAndItsSizesAreThoseOfItsBlocks) {
  for (const StorageType& type : storage_types()) {
    EXPECT_EQ(&storage_of(type.dtype), &type);
    EXPECT_EQ(is_storage(type.dtype), type.kept);
    EXPECT_NE(type.read, nullptr);
    EXPECT_TRUE(type.kept || type.write == nullptr);
    EXPECT_EQ(storage_in_gguf(type.gguf), type.dtype);
    const BlockType& gguf = *find_block_type(type.gguf);
    EXPECT_EQ(gguf.numbers, type.block);
    EXPECT_EQ(gguf.bytes, type.block_bytes);
    EXPECT_EQ(type.bytes(0), 0u);
    for (const std::int64_t k : {1, 7, 255, 256, 4096}) {
      const auto blocks = static_cast<std::size_t>((k + type.block - 1) / type.block);
      EXPECT_EQ(type.bytes(k), blocks * type.block_bytes);
      EXPECT_EQ(type.bytes(3, k), 3 * type.bytes(k));
    }
    EXPECT_TRUE(type.block != 1 || type.block_bytes == dtype_size(type.dtype));
  }
}

TEST(Storage, OfAFileEachTensorIsKeptAsItIs) {
  for (const StorageType& type : storage_types()) {
    EXPECT_EQ(kept_as(type.dtype, DType::kFile), type.kept ? type.dtype : DType::kF32);
    EXPECT_EQ(kept_as(type.dtype, DType::kQ8), DType::kQ8);
  }
  EXPECT_EQ(head_storage(DType::kFile), DType::kFile);
  EXPECT_EQ(storage_named("q4_k"), std::nullopt) << "no numbers become that";
  for (const std::string_view name : kKeptNames) EXPECT_EQ(dtype_name(*storage_named(name)), name);
}

TEST(Storage, OutputLayersKeepEightBitsOrMore) {
  for (const StorageType& type : storage_types()) {
    if (!type.kept) continue;
    EXPECT_TRUE(is_storage(head_storage(type.dtype))) << dtype_name(type.dtype);
    EXPECT_EQ(head_storage(type.dtype), type.dtype == DType::kQ4 ? DType::kQ8 : type.dtype);
  }
}

TEST(Storage, WhatWasKeptOnceIsKeptExactlyTheSecondTime) {
  for (const StorageType& type : storage_types()) {
    if (type.write == nullptr) continue;
    for (const std::int64_t count : {20, 31, 32, 500}) {
      const std::vector<float> given = numbers(count);
      std::vector<std::byte> kept(type.bytes(count)), again(kept.size());
      std::vector<float> once(given.size()), twice(given.size());
      type.write(given.data(), count, kept.data());
      type.read(kept.data(), 0, 1, count, once.data());
      type.write(once.data(), count, again.data());
      type.read(again.data(), 0, 1, count, twice.data());
      EXPECT_EQ(once, twice) << dtype_name(type.dtype);
      EXPECT_EQ(kept, again) << dtype_name(type.dtype);
    }
  }
}

TEST(Storage, F32IsExactAndBf16IsTheNearestOne) {
  const std::vector<float> given = numbers(300);
  std::vector<float> exact(300), rounded(300);
  std::vector<std::byte> memory(1200);
  const StorageType &f32 = storage_of(DType::kF32), &bf16 = storage_of(DType::kBF16);
  f32.write(given.data(), 300, memory.data());
  f32.read(memory.data(), 0, 1, 300, exact.data());
  EXPECT_EQ(exact, given);
  bf16.write(given.data(), 300, memory.data());
  bf16.read(memory.data(), 0, 1, 300, rounded.data());
  for (std::size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(rounded[i], bf16_to_float(float_to_bf16(given[i])));
  }
}

TEST(Storage, StridesReadWhatLooseReadsDo) {
  const std::vector<float> given = numbers(60);
  for (const StorageType& type : storage_types()) {
    if (type.block != 1) continue;
    // Any bits will do that are numbers: halves of small integers as 16 bits of each type.
    std::vector<std::uint16_t> halves;
    for (int i = 0; i < 60; ++i) halves.push_back(static_cast<std::uint16_t>(0x3c00 + 16 * i));
    const std::vector<double> wide(given.begin(), given.end());
    const void* memory = type.block_bytes == 8   ? static_cast<const void*>(wide.data())
                         : type.block_bytes == 4 ? static_cast<const void*>(given.data())
                                                 : static_cast<const void*>(halves.data());
    const ConstTensorView view{type.dtype, {60}, memory, {}};
    for (const std::int64_t step : {1, 3, 9}) {
      std::vector<float> together(6), one(1);
      read_numbers(view, 2, step, 6, together.data());
      for (std::int64_t i = 0; i < 6; ++i) {
        read_numbers(view, 2 + i * step, 1, 1, one.data());
        EXPECT_EQ(together[static_cast<std::size_t>(i)], one[0]) << dtype_name(type.dtype);
      }
    }
    EXPECT_EQ(widened(view).shape(), Shape{60});
    EXPECT_FALSE(std::isnan(widened(view).f32()[59]));
  }
}

TEST(StorageDeathTest, OtherTypesEndTheProgram) {
  EXPECT_FALSE(is_storage(DType::kI32));
  EXPECT_FALSE(is_storage(DType::kF64));
  EXPECT_FALSE(is_storage(DType::kFile));
  EXPECT_DEATH(storage_of(DType::kI32), "weights are f32, f16, bf16 or f64");
  EXPECT_DEATH(kept_storage(DType::kF64), "weights are kept as f32, bf16, f16 or blocks");
}

}  // namespace
}  // namespace tessera::storage_test
