// Ray tracer of still lifes: textures, an area lamp, cut-outs. The same scene, pack and size give
// the same bytes for any thread count and on any IEEE machine.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/lab/scene/render.h"
#include "apps/lab/still_life/still_life.h"

namespace tessera::still {

// A square image of the scene, kMinSceneSide <= size <= kMaxSceneSide. `things` holds every thing
// of the scene.
SceneImage render(const StillLife& scene, const Things& things, int size);

// What each pixel's centre shows: [size, size] u8, 0 is table or sky, i + 1 is object i.
std::vector<std::uint8_t> id_buffer(const StillLife& scene, const Things& things, int size);

// For each object: pixels of it in sight / pixels it would cover alone, at `size` pixels a side.
std::vector<double> visible_shares(const StillLife& scene, const Things& things, int size);

}  // namespace tessera::still
