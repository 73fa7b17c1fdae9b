// How weights that stream from memory, and inputs, are cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::cpu {

// Bytes of one task. A processor needs a while to follow a new place in memory: runs of 128 KiB
// cost it a tenth of its bandwidth, of 512 KiB a fiftieth. But each thread has four tasks at least,
// so that one that was held up does not hold up the others.
constexpr std::int64_t streaming_task_bytes(std::int64_t weight_bytes, int threads) {
  constexpr std::int64_t kMin = std::int64_t{128} << 10, kMax = std::int64_t{512} << 10;
  return std::clamp(weight_bytes / (4 * threads), kMin, kMax);
}

// Inputs of a product that are rounded before it: fewer are rounded by one thread.
inline constexpr std::int64_t kSerialInputs = std::int64_t{16} << 10;

}  // namespace tessera::cpu
