// Ray tracer of the tabletop world: one directional light, hard shadows, one mirror bounce on shiny
// solids, 2x2 samples a pixel (Whitted, "An improved illumination model for shaded display", 1980).
// The same scene and size give the same bytes for any thread count and on any IEEE machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/lab/scene/scene.h"
#include "engine/core/thread_pool.h"

namespace tessera {

// rgb: [height, width, 3] u8, row-major.
struct SceneImage {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
};

// Smallest and largest side, in pixels, that the functions below render.
inline constexpr int kMinSceneSide = 16;
inline constexpr int kMaxSceneSide = 4096;

// A square image of the scene. expects() kMinSceneSide <= size <= kMaxSceneSide.
SceneImage render_scene(const Scene& scene, int size);

// One image per scene, scenes shared among the pool's threads.
std::vector<SceneImage> render_scenes(std::span<const Scene> scenes, int size, ThreadPool& pool);

// Contact sheet: images of one size, row by row, `columns` a row, a `gap` of pixels of light gray
// between them and around. expects() at least one image.
SceneImage contact_sheet(std::span<const SceneImage> images, int columns, int gap = 2);

// What each pixel's centre shows: [size, size] u8, 0 is floor or sky, i + 1 is solid i.
std::vector<std::uint8_t> id_buffer(const Scene& scene, int size);

// For each solid: pixels of it in sight / pixels it would cover alone, at `size` pixels a side.
std::vector<double> visible_shares(const Scene& scene, int size);

}  // namespace tessera
