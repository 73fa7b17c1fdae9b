#include "apps/lab/still_life/backdrop.h"

#include <algorithm>
#include <cmath>

#include "apps/lab/still_life/surfaces.h"
#include "engine/core/index.h"

namespace tessera::still {
namespace {

float ridge(const Stage& stage, float u, int row) {
  const Lattice& lattice = stage.lattice;
  const float x = u * 1.7f + stage.air.phase + 9.0f * to_float(row);
  const int layer = 17 + row;
  return 0.62f * lattice.at(x, 0.5f, layer) + 0.26f * lattice.at(x * 2.6f, 3.5f, layer) +
         0.12f * lattice.at(x * 7.3f, 6.5f, layer);
}

Vec clouds(const Stage& stage, Vec sky, float u, float height) {
  const Air& air = stage.air;
  const float stretch = stage.sky == Sky::kSunset ? 7.0f : 3.6f;
  const float density = stage.lattice.rough(
      {u * 1.5f + air.phase, height * stretch + air.phase * 0.7f, air.phase * 1.3f});
  const float low = 0.78f - 0.5f * air.cloudiness;
  const float cover = step_up(low - 0.10f, low + 0.12f, density);
  const float shade = 0.72f + 0.56f * stage.lattice.at(u * 4.0f + air.phase, height * 9.0f, 23);
  return mix(sky, air.cloud * shade, 0.92f * cover);
}

// One star in a third of the cells of a grid, of different brightness.
Vec stars(const Stage& stage, Vec sky, float u, float height) {
  const float x = (u + 2.0f) * 16.0f;
  const float y = (height + 1.0f) * 14.0f;
  const int column = truncate<int>(x);
  const int row = truncate<int>(y);
  const auto draw = [&](int what) { return stage.lattice.raw(column, row, 24 + what); };
  if (draw(0) > 0.36f) return sky;
  const float dx = x - to_float(column) - (0.2f + 0.6f * draw(1));
  const float dy = y - to_float(row) - (0.2f + 0.6f * draw(2));
  const float glow = std::max(0.0f, 1.0f - (dx * dx + dy * dy) * 50.0f);
  return mix(sky, {0.95f, 0.95f, 0.88f}, glow * glow * (0.25f + 0.75f * draw(3)));
}

}  // namespace

Vec sky_towards(const Air& air, float height) {
  return mix(air.sky_low, air.sky_high, step_up(-0.1f, 0.9f, height));
}

Backdrop backdrop_at(const Stage& stage, float u, float v, float edge) {
  const Air& air = stage.air;
  const float height = (v - edge) / (1.0f - edge);
  if (height < -0.06f + 0.36f * ridge(stage, u, 1)) {
    const float leaves = stage.lattice.at(u * 22.0f + 30.0f, height * 30.0f + 10.0f, 21);
    return {air.hills * (0.7f + 0.6f * leaves), 2};
  }
  if (height < 0.02f + 0.55f * ridge(stage, u, 0)) {
    const float leaves = stage.lattice.at(u * 9.0f + 30.0f, height * 16.0f + 10.0f, 22);
    return {mix(air.hills, air.sky_low, 0.42f) * (0.86f + 0.28f * leaves), 1};
  }
  Vec sky = mix(air.sky_low, air.sky_high, step_up(0.05f, 1.05f, height));
  if (stage.sky == Sky::kNight) sky = stars(stage, sky, u, height);
  return {clouds(stage, sky, u, height), 0};
}

}  // namespace tessera::still
