#include "apps/lab/scene/render.h"

#include <algorithm>

#include "apps/lab/scene/render_posed.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {
namespace {

using world::Camera;
using world::PixelRect;
using world::PosedScene;
using world::PosedSolid;
using world::SolidMask;
using world::Vec;

std::array<Vec, 8> corners_of(const PosedSolid& solid) {
  // A cube turned by any angle stays inside the square around its ground circle.
  const float reach = solid.measures.ground_radius;
  return world::box_corners(solid.base, reach, reach, solid.measures.height);
}

PixelRect silhouette_bounds(const PosedSolid& solid, const Camera& view, int size) {
  return world::pixels_around(corners_of(solid), view, size);
}

PixelRect shadow_bounds(const PosedSolid& solid, const Camera& view, int size) {
  const Vec light = world::light_direction();
  std::array<Vec, 8> corners = corners_of(solid);
  for (Vec& corner : corners) corner = corner - light * (corner.y / light.y);
  return world::pixels_around(corners, view, size);
}

// Ray through the image point (x, y) in pixels from the top left corner.
Vec ray_through(const Camera& view, float x, float y, int size) {
  const float scale = 2.0f * world::kTanHalfView / to_float(size);
  const float u = x * scale - world::kTanHalfView;
  const float v = world::kTanHalfView - y * scale;
  return view.forward + view.right * u + view.up * v;
}

std::uint8_t to_byte(float linear) {
  return truncate<std::uint8_t>(std::sqrt(std::clamp(linear, 0.0f, 1.0f)) * 255.0f + 0.5f);
}

struct Masks {
  SolidMask seen = 0;
  SolidMask shading = 0;
};

void fill_masks(const std::array<PixelRect, kMaxSolids>& seen,
                const std::array<PixelRect, kMaxSolids>& shade, int count, int y,
                std::vector<Masks>* masks) {
  std::fill(masks->begin(), masks->end(), Masks{});
  for (int i = 0; i < count; ++i) {
    if (y >= seen[i].top && y < seen[i].bottom) {
      for (int x = seen[i].left; x < seen[i].right; ++x) (*masks)[x].seen |= 1u << i;
    }
    if (y >= shade[i].top && y < shade[i].bottom) {
      for (int x = shade[i].left; x < shade[i].right; ++x) (*masks)[x].shading |= 1u << i;
    }
  }
}

void check_size(int size) {
  expects(size >= kMinSceneSide && size <= kMaxSceneSide, "scene image side out of range");
}

void generate_pixel(const PosedScene& posed, const Camera& view, int size, int x, int y,
                    Masks masks, std::uint8_t* rgb) {
  Vec sum;
  for (int sample = 0; sample < 4; ++sample) {
    const float at_x = to_float(x) + ((sample & 1) != 0 ? 0.75f : 0.25f);
    const float at_y = to_float(y) + ((sample & 2) != 0 ? 0.75f : 0.25f);
    const Vec light = world::radiance(posed, view.eye, ray_through(view, at_x, at_y, size),
                                      masks.seen, masks.shading);
    // Clamped before the mean, so that edges against a highlight stay smooth.
    sum = sum + Vec{std::min(light.x, 1.0f), std::min(light.y, 1.0f), std::min(light.z, 1.0f)};
  }
  rgb[0] = to_byte(sum.x * 0.25f);
  rgb[1] = to_byte(sum.y * 0.25f);
  rgb[2] = to_byte(sum.z * 0.25f);
}

}  // namespace

SceneImage render_posed(const PosedScene& posed, const Camera& view, int size) {
  check_size(size);
  std::array<PixelRect, kMaxSolids> seen{};
  std::array<PixelRect, kMaxSolids> shade{};
  for (int i = 0; i < posed.count; ++i) {
    seen[i] = silhouette_bounds(posed.solids[i], view, size);
    shade[i] = shadow_bounds(posed.solids[i], view, size);
  }
  SceneImage image{size, size, {}};
  image.rgb.resize(to_size(size) * size * 3);
  std::vector<Masks> masks(size);
  std::uint8_t* out = image.rgb.data();
  for (int y = 0; y < size; ++y) {
    fill_masks(seen, shade, posed.count, y, &masks);
    for (int x = 0; x < size; ++x, out += 3) generate_pixel(posed, view, size, x, y, masks[x], out);
  }
  return image;
}

SceneImage render_scene(const Scene& scene, int size) {
  return render_posed(world::pose(scene), world::camera(), size);
}

std::vector<SceneImage> render_scenes(std::span<const Scene> scenes, int size, ThreadPool& pool) {
  check_size(size);
  std::vector<SceneImage> images(scenes.size());
  pool.parallel_for(std::ssize(scenes), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      images[i] = render_scene(scenes[i], size);
    }
  });
  return images;
}

SceneImage contact_sheet(std::span<const SceneImage> images, int columns, int gap) {
  expects(!images.empty() && columns >= 1 && gap >= 0, "contact sheet of at least one image");
  const int across = std::min(columns, narrow<int>(images.size()));
  const int down = (narrow<int>(images.size()) + across - 1) / across;
  const int cell_width = images[0].width + gap;
  const int cell_height = images[0].height + gap;
  SceneImage sheet{across * cell_width + gap, down * cell_height + gap, {}};
  sheet.rgb.assign(to_size(sheet.width) * sheet.height * 3, 225);
  for (std::size_t i = 0; i < images.size(); ++i) {
    const SceneImage& image = images[i];
    expects(image.width == images[0].width && image.height == images[0].height,
            "contact sheet images share one size");
    const std::size_t left = gap + (i % across) * cell_width;
    const std::size_t top = gap + (i / across) * cell_height;
    const std::size_t row_bytes = to_size(image.width) * 3;
    for (int y = 0; y < image.height; ++y) {
      std::copy_n(image.rgb.begin() + y * row_bytes, row_bytes,
                  sheet.rgb.begin() + ((top + y) * sheet.width + left) * 3);
    }
  }
  return sheet;
}

namespace {

// Calls visit(pixel index, mask of all solids under the pixel's centre, nearest solid or -1).
template <typename Visit>
void for_each_centre(const PosedScene& posed, const Camera& view, int size, Visit visit) {
  std::array<PixelRect, kMaxSolids> rects{};
  for (int i = 0; i < posed.count; ++i) {
    rects[i] = silhouette_bounds(posed.solids[i], view, size);
  }
  for (int i = 0; i < posed.count; ++i) {
    // Each pixel is visited once, by the first solid whose rectangle covers it.
    for (int y = rects[i].top; y < rects[i].bottom; ++y) {
      for (int x = rects[i].left; x < rects[i].right; ++x) {
        if (std::any_of(rects.begin(), rects.begin() + i,
                        [&](const PixelRect& rect) { return rect.covers(x, y); })) {
          continue;
        }
        const Vec ray = ray_through(view, to_float(x) + 0.5f, to_float(y) + 0.5f, size);
        SolidMask under = 0;
        int nearest = -1;
        float distance = 0.0f;
        world::Hit hit;
        for (int j = i; j < posed.count; ++j) {
          if (!rects[j].covers(x, y) || !world::intersect(posed.solids[j], view.eye, ray, &hit)) {
            continue;
          }
          under |= 1u << j;
          if (nearest < 0 || hit.distance < distance) {
            nearest = j;
            distance = hit.distance;
          }
        }
        if (under != 0) visit(to_size(y) * size + x, under, nearest);
      }
    }
  }
}

}  // namespace

SolidView view_alone(const PosedScene& posed, const Camera& view, int size) {
  check_size(size);
  expects(posed.count == 1, "one solid alone");
  SolidView out{{}, {}, world::project(view, posed.solids[0].base).depth};
  for_each_centre(posed, view, size, [&](std::size_t pixel, SolidMask, int) {
    const auto at = narrow<std::int32_t>(pixel);
    out.pixels.push_back(at);
    out.rgb.resize(out.rgb.size() + 3);
    generate_pixel(posed, view, size, at % size, at / size, {1, 1}, &out.rgb[out.rgb.size() - 3]);
  });
  return out;
}

std::vector<std::uint8_t> id_buffer(const Scene& scene, int size) {
  check_size(size);
  std::vector<std::uint8_t> ids(to_size(size) * size, 0);
  for_each_centre(world::pose(scene), world::camera(), size,
                  [&](std::size_t pixel, SolidMask, int nearest) {
                    ids[pixel] = low_bits<std::uint8_t>(nearest + 1);
                  });
  return ids;
}

std::vector<double> visible_shares(const Scene& scene, int size) {
  return shares_posed(world::pose(scene), world::camera(), size);
}

std::vector<double> shares_posed(const PosedScene& posed, const Camera& view, int size) {
  check_size(size);
  std::array<int, kMaxSolids> alone{};
  std::array<int, kMaxSolids> in_sight{};
  for_each_centre(posed, view, size, [&](std::size_t, SolidMask under, int nearest) {
    for (int i = 0; i < kMaxSolids; ++i) alone[i] += narrow<int>(under >> i & 1u);
    ++in_sight[nearest];
  });
  std::vector<double> shares;
  for (int i = 0; i < posed.count; ++i) {
    shares.push_back(alone[i] > 0 ? to_double(in_sight[i]) / alone[i] : 0.0);
  }
  return shares;
}

}  // namespace tessera
