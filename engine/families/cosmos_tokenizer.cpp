// The configuration of Cosmos' video tokenizer. The published ones come without: absent keys mean
// DV8x16x16.
#include <string>

#include "engine/families/family.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxLevels = 8;

std::int64_t power_of_two(const JsonReader& config, const char* key, std::int64_t fallback,
                          std::int64_t low, std::int64_t high) {
  const std::int64_t value = config.integer_or(key, fallback, low, high);
  if ((value & (value - 1)) != 0) config.fail(key, "a power of two", std::to_string(value));
  return value;
}

void check_halvings(const JsonReader& config, const char* key, const FsqVideoSpec& spec,
                    std::int64_t compression) {
  if (compression < spec.patch || spec.halvings(compression) >= spec.levels_count()) {
    config.fail(key,
                std::to_string(spec.patch) + " to " +
                    std::to_string(spec.patch << (spec.levels_count() - 1)) +
                    ", as the wavelet and all levels but one make it",
                std::to_string(compression));
  }
}

// The decoder enlarges time a level later than space: not all combinations lead back.
void check_ways(const JsonReader& config, const FsqVideoSpec& spec) {
  int space = 0, time = 0;
  for (int level = 1; level < spec.levels_count(); ++level) {
    const FsqVideoResample up = decoder_resample(spec, level);
    space += up.space ? 1 : 0;
    time += up.time ? 1 : 0;
  }
  if (space == spec.halvings(spec.spatial) && time == spec.halvings(spec.temporal)) return;
  config.fail(
      "temporal_compression", "one that the decoder's levels undo",
      std::to_string(spec.temporal) + " with spatial_compression " + std::to_string(spec.spatial));
}

}  // namespace

FsqVideoSpec parse_fsq_video(const JsonReader& config) {
  FsqVideoSpec spec;
  spec.channels = config.integer_or("channels", 128, 1, 4096);
  if (config.has("channels_mult")) {
    spec.multipliers = config.integers("channels_mult", 1, 64, kMaxLevels);
    if (spec.multipliers.empty()) config.fail("channels_mult", "1 to 8 levels", "none");
  }
  spec.res_blocks = config.integer_or("num_res_blocks", 2, 1, 16);
  spec.latent_channels = config.integer_or("z_channels", 16, 1, 8192);
  if (config.has("levels")) {
    spec.levels = config.integers("levels", 2, 256, 16);
    if (spec.levels.empty()) config.fail("levels", "1 to 16 numbers of levels", "none");
  }
  std::int64_t codes = 1;
  for (const std::int64_t level : spec.levels) {
    codes *= level;
    if (codes > kMaxCodes) config.fail("levels", "at most 1048576 codes", std::to_string(codes));
  }
  spec.patch = power_of_two(config, "patch_size", 4, 1, 4);
  spec.spatial = power_of_two(config, "spatial_compression", 16, 1, 1024);
  spec.temporal = power_of_two(config, "temporal_compression", 8, 1, 1024);
  check_halvings(config, "spatial_compression", spec, spec.spatial);
  check_halvings(config, "temporal_compression", spec, spec.temporal);
  check_ways(config, spec);
  return spec;
}

}  // namespace tessera
