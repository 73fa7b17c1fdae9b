#include "engine/backend/cuda/device_pool.h"

#include <unordered_map>
#include <vector>

namespace tessera::cuda {

namespace {

// A Buffer's deleter knows the address alone: which pool a block in use belongs to stands here.
struct Owner {
  std::shared_ptr<DevicePool> pool;
  std::size_t bytes = 0;
};
struct Owners {
  std::mutex mutex;
  std::unordered_map<void*, Owner> of;
  std::vector<DevicePool*> pools;
};
Owners& owners() {
  static Owners* const all = new Owners;  // tensors may outlive statics
  return *all;
}

}  // namespace

DevicePool::DevicePool(bool pinned) : pinned_(pinned) {
  if (pinned) return;  // no help to a device that is full
  const std::lock_guard lock(owners().mutex);
  owners().pools.push_back(this);
}

DevicePool::~DevicePool() {
  {
    const std::lock_guard lock(owners().mutex);
    std::erase(owners().pools, this);
  }
  release();
}

void release_unused_memory() {
  const std::lock_guard lock(owners().mutex);
  for (DevicePool* pool : owners().pools) pool->release();
}

Buffer DevicePool::allocate(std::size_t bytes) const {
  return pinned_ ? allocate_pinned(bytes) : allocate_device(bytes);
}

Buffer DevicePool::take(std::size_t bytes) {
  if (bytes < kMinBlock) return allocate(bytes);
  constexpr std::size_t kUnit = std::size_t{32} << 10;
  std::size_t whole = (bytes + kUnit - 1) / kUnit * kUnit;
  void* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = unused_.lower_bound(whole);
    if (found != unused_.end() && found->first / 4 * 3 <= whole) {
      whole = found->first;
      block = found->second;
      unused_.erase(found);
    }
  }
  if (block == nullptr) block = allocate(whole).release();
  const std::lock_guard lock(owners().mutex);
  owners().of[block] = {shared_from_this(), whole};
  return Buffer(block, &DevicePool::drop);
}

void DevicePool::drop(void* block) {
  Owner owner;
  {
    const std::lock_guard lock(owners().mutex);
    const auto found = owners().of.find(block);
    owner = std::move(found->second);
    owners().of.erase(found);
  }
  owner.pool->return_block(block, owner.bytes);
}

void DevicePool::return_block(void* block, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  unused_.emplace(bytes, block);
}

void DevicePool::release() {
  std::multimap<std::size_t, void*> blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks.swap(unused_);
  }
  for (const auto& [bytes, block] : blocks) pinned_ ? cudaFreeHost(block) : cudaFree(block);
}

std::size_t DevicePool::unused_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [bytes, block] : unused_) sum += bytes;
  return sum;
}

}  // namespace tessera::cuda
