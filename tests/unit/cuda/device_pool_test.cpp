// Memory of a device that is used again.
#include "engine/backend/cuda/device_pool.h"

#include <gtest/gtest.h>

#include "tests/support/simt/simulated_device.h"

namespace tessera::cuda {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(DevicePool, ADroppedBlockIsHandedOutAgain) {
  const auto pool = std::make_shared<DevicePool>();
  Buffer first = pool->take(kMiB);
  Buffer second = pool->take(kMiB);
  void* const place = first.get();
  EXPECT_NE(place, second.get());
  first.reset();
  EXPECT_EQ(pool->unused_bytes(), kMiB);
  const std::int64_t before = simt::counts().allocations;
  const Buffer again = pool->take(kMiB - 5);
  EXPECT_EQ(again.get(), place);
  EXPECT_EQ(simt::counts().allocations, before);
  EXPECT_EQ(pool->unused_bytes(), 0u);
}

TEST(DevicePool, PinnedMemoryIsTheHostsAndLeavesTheDeviceAlone) {
  simt::set_device({.memory = 10 * kMiB});
  const auto pinned = std::make_shared<DevicePool>(true);
  Buffer block = pinned->take(kMiB);
  static_cast<char*>(block.get())[kMiB - 1] = 1;
  void* const place = block.get();
  block.reset();
  const Buffer most = allocate_device(9 * kMiB + kMiB / 2);
  EXPECT_THROW(allocate_device(kMiB), Error);
  EXPECT_EQ(pinned->unused_bytes(), kMiB) << "no room on the device is made of it";
  EXPECT_EQ(pinned->take(kMiB).get(), place);
  simt::set_device({});
}

TEST(DevicePool, ABlockMuchTooLargeStays) {
  const auto pool = std::make_shared<DevicePool>();
  Buffer large = pool->take(8 * kMiB);
  void* const place = large.get();
  large.reset();
  EXPECT_NE(pool->take(kMiB).get(), place);
  EXPECT_EQ(pool->take(7 * kMiB).get(), place);
}

TEST(DevicePool, SmallBlocksGoBackToTheDriver) {
  const auto pool = std::make_shared<DevicePool>();
  Buffer small = pool->take(100);
  small.reset();
  EXPECT_EQ(pool->unused_bytes(), 0u);
}

TEST(DevicePool, UnusedBlocksMakeRoom) {
  simt::set_device({.memory = 10 * kMiB});
  const auto pool = std::make_shared<DevicePool>();
  pool->take(6 * kMiB).reset();
  EXPECT_EQ(pool->unused_bytes(), 6 * kMiB);
  const Buffer other = pool->take(9 * kMiB);  // too large for the unused one, and for both
  EXPECT_EQ(pool->unused_bytes(), 0u);
  try {
    pool->take(2 * kMiB);
    ADD_FAILURE() << "more than there is";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().kind, ErrorKind::kMemory);
  }
  simt::set_device({});
}

TEST(DevicePool, AnyAllocationFindsWhatOtherPoolsDoNotUse) {
  simt::set_device({.memory = 10 * kMiB});
  const auto pool = std::make_shared<DevicePool>(), other = std::make_shared<DevicePool>();
  pool->take(6 * kMiB).reset();
  EXPECT_NO_THROW(other->take(9 * kMiB));
  pool->take(6 * kMiB).reset();
  EXPECT_NO_THROW(allocate_device(9 * kMiB));
  simt::set_device({});
}

TEST(DevicePool, BlocksMayOutliveTheirBackend) {
  auto pool = std::make_shared<DevicePool>();
  Buffer block = pool->take(kMiB);
  pool.reset();
  block.reset();
}

}  // namespace
}  // namespace tessera::cuda
