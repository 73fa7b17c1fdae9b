// Packed weights side by side in large pages: they outlive what made them, and memory goes back.
#include "engine/backend/cpu/panel_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/core/index.h"

namespace tessera::cpu {
namespace {

constexpr std::size_t kMatrix = std::size_t{1} << 20;

std::uintptr_t address(const Buffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.get());
}

bool mapped(std::uintptr_t at) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(at / 4096 * 4096), 4096, &resident) == 0 ||
         errno != ENOMEM;
}

TEST(PanelMemory, MatricesOfAMegabyteLieSideBySide) {
  PanelMemory memory;
  const Buffer first = memory.take(kMatrix - 100), second = memory.take(kMatrix);
  EXPECT_EQ(address(first) % 64, 0u);
  EXPECT_EQ(address(second) - address(first), kMatrix - 64);
}

TEST(PanelMemory, SmallAndLargeOnesHaveMemoryOfTheirOwn) {
  PanelMemory memory;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{9} << 20}) {
    const Buffer one = memory.take(bytes), next = memory.take(bytes);
    std::memset(one.get(), 1, bytes);
    std::memset(next.get(), 2, bytes);
    EXPECT_EQ(static_cast<const unsigned char*>(one.get())[bytes - 1], 1) << bytes;
    EXPECT_EQ(address(one) % 64, 0u) << bytes;
  }
}

TEST(PanelMemory, MatricesOutliveItAndTheLastOneReturnsTheMemory) {
  std::optional<PanelMemory> memory(std::in_place);
  std::vector<Buffer> matrices;
  for (int i = 0; i < 80; ++i) {  // more than one slab holds
    matrices.push_back(memory->take(kMatrix));
    std::memset(matrices.back().get(), i, kMatrix);
  }
  memory.reset();
  std::vector<std::uintptr_t> places;
  for (int i = 0; i < 80; ++i) {
    const auto* const bytes = static_cast<const unsigned char*>(nth(matrices, i).get());
    ASSERT_EQ(bytes[0], i);
    ASSERT_EQ(bytes[kMatrix - 1], i);
    places.push_back(address(nth(matrices, i)));
  }
  EXPECT_TRUE(mapped(places.front()));
  EXPECT_TRUE(mapped(places.back()));
  matrices.erase(matrices.begin(), matrices.begin() + 79);
  EXPECT_FALSE(mapped(places.front()));
  EXPECT_TRUE(mapped(places.back()));
  matrices.clear();
  EXPECT_FALSE(mapped(places.back()));
}

}  // namespace
}  // namespace tessera::cpu
