// How scenes and videos are random: seeds, numbers, attributes. Internal to apps/lab/scene.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "apps/lab/scene/geometry.h"
#include "apps/lab/scene/scene.h"
#include "engine/core/index.h"
#include "engine/core/philox.h"

namespace tessera {

// Numbers of one scene, in the order asked for. Local to one call: no generator is ever shared.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_(philox_key(seed, 0)) {}

  // Uniform in [0, count), count <= 2^16: the bias is below 2^-16.
  int below(int count) {
    return narrow<int>(std::uint64_t{next()} * narrow<std::uint64_t>(count) >> 32);
  }

  // A multiple of 1/100 in [-limit, limit].
  double place(float limit) {
    const int steps = truncate<int>(limit * 100.0f + 0.5f);
    return (below(2 * steps + 1) - steps) / 100.0;
  }

 private:
  std::uint32_t next() {
    if (lane_ == 4) {
      block_ = philox4x32({counter_++, 0, static_cast<std::uint32_t>(Purpose::kScene), 0}, key_);
      lane_ = 0;
    }
    return block_[lane_++];
  }

  std::array<std::uint32_t, 2> key_;
  PhiloxBlock block_{};
  std::uint32_t counter_ = 0;
  unsigned lane_ = 4;
};

// What is drawn: scenes, videos and still lifes of one set have nothing in common.
enum class DrawnKind : std::uint32_t { kScene = 0, kVideo = 16, kStillLife = 32 };

// The seed of number `index` of a split.
std::uint64_t drawn_seed(DrawnKind kind, std::uint64_t seed, SceneSplit split, std::uint64_t index);

// Attributes of `count` solids, no two alike, exactly one of them held out if the split says so.
std::vector<Solid> draw_solids(Dice& dice, SceneSplit split, int count);

// Whether the ground circle of a solid lies well inside the image.
bool inside_frame(const Solid& solid, const world::Camera& view);

// Silhouettes stay inside this part of the image.
inline constexpr float kFrame = 0.97f;
inline constexpr float kMinScreenGap = 0.26f;  // between neighbours' centres; an image is 2 wide
inline constexpr int kShareSide = 64;            // images on which the share in sight is measured
inline constexpr double kShareWanted = 0.72;     // there; leaves a margin for other image sizes

}  // namespace tessera
