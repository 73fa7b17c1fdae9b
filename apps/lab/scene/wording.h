// Pieces of sentences about scenes and videos. Internal to apps/lab/scene.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/lab/scene/scene.h"
#include "engine/core/index.h"
#include "engine/core/philox.h"

namespace tessera {

// Choices about wording, addressed by what they are for, so that one never shifts another.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : key_(philox_key(seed, 2)) {}
  int below(int count, std::uint32_t about) const {
    const PhiloxBlock block =
        philox4x32({about, 0, static_cast<std::uint32_t>(Purpose::kScene), 0}, key_);
    return narrow<int>(std::uint64_t{block[0]} * narrow<std::uint64_t>(count) >> 32);
  }

 private:
  std::array<std::uint32_t, 2> key_;
};

// "zero" to "four".
std::string number_word(int count);
// "A", "A and B", "A, B and C".
std::string join_list(const std::vector<std::string>& parts);
// "on a gray floor".
std::string floor_phrase(FloorKind floor);
// "two solids on a gray floor: A and B".
std::string counted(FloorKind floor, const std::vector<std::string>& solids);
// "on a gray floor there are A and B".
std::string there_are(FloorKind floor, const std::vector<std::string>& solids);

}  // namespace tessera
