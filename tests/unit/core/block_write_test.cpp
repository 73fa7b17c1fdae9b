// Blocks put together are blocks taken apart; searched ones are close to the best there are.
#include "engine/core/block_write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/core/block_types.h"
#include "engine/core/index.h"

namespace tessera {
namespace {

std::vector<const BlockType*> formed_types() {
  std::vector<const BlockType*> out;
  for (const BlockType& type : block_types()) {
    if (find_block_form(type.id) != nullptr) out.push_back(&type);
  }
  return out;
}

TEST(BlockWrite, PutTogetherIsTheInverseOfTakenApart) {
  std::mt19937 random(1);
  for (const BlockType* type : formed_types()) {
    const BlockForm& form = *find_block_form(type->id);
    for (int i = 0; i < 200; ++i) {
      std::vector<std::byte> block(type->bytes), again(type->bytes, std::byte{0xff});
      for (std::byte& byte : block) byte = std::byte(random() & 255u);
      BlockParts parts;
      form.take_apart(block.data(), parts);
      put_together(form, parts, again.data());
      ASSERT_EQ(block, again) << type->name;
    }
  }
}

double weighted_error(const std::vector<float>& a, const std::vector<float>& b,
                      const std::vector<float>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double off = double{a[i]} - double{b[i]};
    sum += (weights.empty() ? 1.0 : double{weights[i]}) * off * off;
  }
  return sum;
}

struct Draw {
  std::vector<float> numbers, weights;
};
Draw draw(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f), spread(0.0f, 1.5f);
  Draw out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.numbers.push_back(normal(random));
    out.weights.push_back(std::exp(spread(random)));
  }
  return out;
}

std::vector<float> searched(const BlockType& type, const Draw& from, bool weighted) {
  const auto blocks = std::ssize(from.numbers) / type.numbers;
  std::vector<std::byte> bytes(to_size(blocks) * type.bytes);
  write_searched(*find_block_form(type.id), type.bytes, from.numbers.data(),
                 weighted ? from.weights.data() : nullptr, blocks, bytes.data());
  std::vector<float> back(from.numbers.size());
  type.read(bytes.data(), blocks, back.data());
  return back;
}

TEST(BlockWrite, WeightsMakeTheirNumbersBetter) {
  for (const BlockType* type : formed_types()) {
    double weighted = 0, even = 0, rounded = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Draw from = draw(1024, seed);
      weighted += weighted_error(from.numbers, searched(*type, from, true), from.weights);
      even += weighted_error(from.numbers, searched(*type, from, false), from.weights);
      const auto blocks = std::ssize(from.numbers) / type->numbers;
      std::vector<std::byte> bytes(to_size(blocks) * type->bytes);
      std::vector<float> back(from.numbers.size());
      type->write(from.numbers.data(), blocks, bytes.data());
      type->read(bytes.data(), blocks, back.data());
      rounded += weighted_error(from.numbers, back, from.weights);
    }
    EXPECT_LT(weighted, 0.93 * even) << type->name;
    EXPECT_LE(even, rounded * 1.0001) << type->name;
  }
}

// Every f16 scale there is, both signs: none is better by much.
TEST(BlockWrite, ScalesOfFourBitsAreNearTheBestOfAll) {
  const BlockType& type = *find_block_type(2);
  double found = 0, best = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const Draw from = draw(32, 100 + seed);
    found += weighted_error(from.numbers, searched(type, from, true), from.weights);
    double least = std::numeric_limits<double>::infinity();
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
      BlockParts parts{};
      parts.scale = narrow<std::uint16_t>(bits);
      std::vector<std::byte> block(type.bytes);
      std::vector<float> back(32);
      parts.quants.fill(9);  // one step above zero: back is the scale
      put_together(*find_block_form(2), parts, block.data());
      type.read(block.data(), 1, back.data());
      const float scale = back[0];
      if (!std::isfinite(scale) || scale == 0.0f || std::abs(scale) > 1.0f) continue;
      for (std::size_t i = 0; i < 32; ++i) {
        back[i] = scale * std::clamp(std::nearbyint(from.numbers[i] / scale), -8.0f, 7.0f);
      }
      least = std::min(least, weighted_error(from.numbers, back, from.weights));
    }
    best += least;
  }
  EXPECT_GE(found, best * 0.9999);
  EXPECT_LE(found, best * 1.03);
}

// More bits, less error; the K formats of as many bits are no worse than the plain ones.
TEST(BlockWrite, ErrorsFollowTheBits) {
  const Draw from = draw(std::int64_t{256} * 64, 7);
  const double norm = [&] {
    double sum = 0;
    for (const float number : from.numbers) sum += double{number} * double{number};
    return sum;
  }();
  const auto relative = [&](std::uint32_t id) {
    const BlockType& type = *find_block_type(id);
    const auto blocks = std::ssize(from.numbers) / type.numbers;
    std::vector<std::byte> bytes(to_size(blocks) * type.bytes);
    std::vector<float> back(from.numbers.size());
    type.write(from.numbers.data(), blocks, bytes.data());
    type.read(bytes.data(), blocks, back.data());
    return std::sqrt(weighted_error(from.numbers, back, {}) / norm);
  };
  const double q2 = relative(10), q3 = relative(11), q4_0 = relative(2), q4 = relative(12),
               q5_0 = relative(6), q5 = relative(13), q6 = relative(14);
  EXPECT_LT(q3, q2);
  EXPECT_LT(q4, q3);
  EXPECT_LT(q4, q4_0);
  EXPECT_LT(q5, q4);
  EXPECT_LT(q5, q5_0);
  EXPECT_LT(q6, q5);
  EXPECT_LT(q4, 0.085);
  EXPECT_LT(q6, 0.022);
}

// Numbers that a format can hold come back: what the search finds for them is no further off than
// a thousandth of their size.
TEST(BlockWrite, NumbersOfEqualSizeAndZeros) {
  for (const BlockType* type : formed_types()) {
    std::vector<float> zeros(to_size(type->numbers), 0.0f), back(zeros.size(), 1.0f);
    std::vector<std::byte> block(type->bytes);
    type->write(zeros.data(), 1, block.data());
    type->read(block.data(), 1, back.data());
    for (const float number : back) EXPECT_EQ(number, 0.0f) << type->name;
    std::vector<float> equal(zeros.size(), -0.75f);
    type->write(equal.data(), 1, block.data());
    type->read(block.data(), 1, back.data());
    for (const float number : back) EXPECT_NEAR(number, -0.75f, 2e-3f) << type->name;
  }
}

}  // namespace
}  // namespace tessera
