#include "apps/lab/still_life/render.h"

#include <algorithm>
#include <cmath>

#include "apps/lab/still_life/backdrop.h"
#include "apps/lab/still_life/stage.h"
#include "apps/lab/still_life/surfaces.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera::still {
namespace {

using world::dot;
using world::normalised;
using world::PixelRect;
using Mask = std::uint32_t;  // bit i: object i may matter to a ray

constexpr float kSolidAlpha = 0.98f;
constexpr float kBlur = 0.03f;  // width of a mirrored pixel at one unit of distance
constexpr int kTableKey = 100;
constexpr int kBackdropKey = 200;

// Light of one ray, and a number that changes where the image may have an edge.
struct Seen {
  Vec light;
  int key;
};

class Renderer {
 public:
  Renderer(const StillLife& scene, const Things& things, int size)
      : stage_(scene, things),
        size_(size),
        footprint_(2.0f * stage_.view.tan_half / to_float(size)),
        table_edge_(world::project(stage_.view, {0.0f, 0.0f, kTableBack}).v) {
    expects(size >= kMinSceneSide && size <= kMaxSceneSide, "scene image side out of range");
    for (int i = 0; i < stage_.count; ++i) {
      nth(windows_, i) = window_of(nth(stage_.objects, i));
      shadows_[i] = shadow_of(nth(stage_.objects, i));
    }
    table_mean_ = mix(albedo_of(stage_.table_colour), Vec{0.42f, 0.40f, 0.37f}, 0.28f);
  }

  SceneImage image() const {
    const std::size_t count = to_size(size_) * to_size(size_);
    std::vector<Seen> seen(count);
    std::vector<Mask> masks(count);
    for (int y = 0, i = 0; y < size_; ++y) {
      for (int x = 0; x < size_; ++x, ++i) {
        masks[i] = mask_at(x, y);
        seen[i] = look(to_float(x) + 0.5f, to_float(y) + 0.5f, masks[i]);
      }
    }
    SceneImage image{size_, size_, std::vector<std::uint8_t>(count * 3)};
    for (int y = 0, i = 0; y < size_; ++y) {
      for (int x = 0; x < size_; ++x, ++i) {
        const Vec light =
            at_edge(seen, x, y, i) ? four_looks(x, y, masks[i]) : capped(seen[i].light);
        write(light, &image.rgb[to_size(i) * 3]);
      }
    }
    return image;
  }

  // Calls visit(pixel, mask of all objects under its centre, nearest or -1).
  template <typename Visit>
  void for_each_centre(Visit visit) const {
    for (int y = 0, i = 0; y < size_; ++y) {
      for (int x = 0; x < size_; ++x, ++i) {
        const Mask mask = mask_at(x, y);
        if (mask == 0) continue;
        const Vec ray = ray_at(to_float(x) + 0.5f, to_float(y) + 0.5f);
        Mask under = 0;
        int nearest = -1;
        float distance = 0.0f;
        for (int k = 0; k < stage_.count; ++k) {
          Meeting meeting;
          if ((mask >> k & 1u) == 0 ||
              !meet(stage_.objects[k], stage_.view.eye, ray, footprint_, &meeting)) {
            continue;
          }
          if (meeting.alpha < 0.5f) continue;
          under |= 1u << k;
          if (nearest < 0 || meeting.distance < distance) {
            nearest = k;
            distance = meeting.distance;
          }
        }
        if (under != 0) visit(i, under, nearest);
      }
    }
  }

 private:
  // A stretched circle on the table outside of which an object throws no shadow.
  struct Shadow {
    float x, z, to_x, to_z, length2, reach2;
  };

  PixelRect window_of(const PosedObject& object) const {
    const float reach = object.half_width;
    const float deep = object.thing != nullptr ? 0.0f : reach;
    return world::pixels_around(world::box_corners(object.base, reach, deep, object.height),
                                stage_.view, size_);
  }

  Shadow shadow_of(const PosedObject& object) const {
    const Air& air = stage_.air;
    const float length = object.height / air.lamp.y;
    const float reach = object.half_width + 0.2f + 2.2f * air.lamp_radius * length / air.lamp.y;
    const float x = -air.lamp.x * length;
    const float z = -air.lamp.z * length;
    return {object.base.x, object.base.z, x, z, x * x + z * z, reach * reach};
  }

  bool may_shade(const Shadow& shadow, Vec point) const {
    const float x = point.x - shadow.x;
    const float z = point.z - shadow.z;
    const float along =
        std::clamp((x * shadow.to_x + z * shadow.to_z) / shadow.length2, 0.0f, 1.0f);
    const float dx = x - along * shadow.to_x;
    const float dz = z - along * shadow.to_z;
    return dx * dx + dz * dz < shadow.reach2;
  }

  Mask mask_at(int x, int y) const {
    Mask mask = 0;
    for (int i = 0; i < stage_.count; ++i) {
      if (windows_[i].covers(x, y)) mask |= 1u << i;
    }
    return mask;
  }

  Vec ray_at(float x, float y) const {
    return ray_through(stage_.view, x * 2.0f / to_float(size_) - 1.0f,
                       1.0f - y * 2.0f / to_float(size_));
  }

  static bool at_edge(const std::vector<Seen>& seen, int i, int j) {
    return seen[i].key != seen[j].key;
  }
  bool at_edge(const std::vector<Seen>& seen, int x, int y, int i) const {
    return (x > 0 && at_edge(seen, i, i - 1)) || (x + 1 < size_ && at_edge(seen, i, i + 1)) ||
           (y > 0 && at_edge(seen, i, i - size_)) || (y + 1 < size_ && at_edge(seen, i, i + size_));
  }

  // Capped before the mean, so that edges against a highlight stay smooth.
  static Vec capped(Vec light) {
    return {std::min(light.x, 1.0f), std::min(light.y, 1.0f), std::min(light.z, 1.0f)};
  }

  Vec four_looks(int x, int y, Mask mask) const {
    Vec sum;
    for (int sample = 0; sample < 4; ++sample) {
      sum = sum + capped(look(to_float(x) + ((sample & 1) != 0 ? 0.75f : 0.25f),
                              to_float(y) + ((sample & 2) != 0 ? 0.75f : 0.25f), mask)
                             .light);
    }
    return sum * 0.25f;
  }

  static void write(Vec light, std::uint8_t* rgb) {
    const float parts[3] = {light.x, light.y, light.z};
    for (int c = 0; c < 3; ++c) {
      rgb[c] = truncate<std::uint8_t>(std::sqrt(std::max(0.0f, parts[c])) * 255.0f + 0.5f);
    }
  }

  // Front to back through the cut-outs until something solid.
  Seen look(float x, float y, Mask mask) const {
    const Vec ray = ray_at(x, y);
    Vec light;
    float clear = 1.0f;
    int key = -1;
    while (mask != 0) {
      Meeting meeting{};
      const int nearest = nearest_of(ray, mask, &meeting);
      if (nearest < 0) break;
      const PosedObject& object = nth(stage_.objects, nearest);
      const Vec point = stage_.view.eye + ray * meeting.distance;
      if (key < 0 && meeting.alpha > 0.5f) key = 8 * nearest + meeting.face;
      if (object.thing == nullptr) {
        return {light + solid_light(nearest, point, meeting, ray) * clear, key};
      }
      light = light + thing_light(nearest, point, meeting) * clear;
      clear *= 1.0f - meeting.alpha;
      if (meeting.alpha > kSolidAlpha) return {light, key};
      mask &= ~(1u << nearest);
    }
    const Seen behind = behind_objects(ray, x, y);
    return {light + behind.light * clear, key < 0 ? behind.key : key};
  }

  int nearest_of(Vec ray, Mask mask, Meeting* nearest) const {
    int found = -1;
    for (int i = 0; i < stage_.count; ++i) {
      Meeting meeting;
      if ((mask >> i & 1u) == 0 ||
          !meet(stage_.objects[i], stage_.view.eye, ray, footprint_, &meeting)) {
        continue;
      }
      if (found >= 0 && meeting.distance >= nearest->distance) continue;
      *nearest = meeting;
      found = i;
    }
    return found;
  }

  Seen behind_objects(Vec ray, float x, float y) const {
    const float distance = -stage_.view.eye.y / ray.y;
    const Vec ground = stage_.view.eye + ray * distance;
    if (ray.y < 0.0f && ground.z < kTableBack)
      return {table_light(ground, distance, ray), kTableKey};
    const float u = x * 2.0f / to_float(size_) - 1.0f;
    const float v = 1.0f - y * 2.0f / to_float(size_);
    const Backdrop backdrop = backdrop_at(stage_, u, v, table_edge_);
    return {backdrop.light, kBackdropKey + backdrop.part};
  }

  // Share of the lamp that a point sees past the objects of `mask`: four corners of the lamp, and
  // where they differ a grid of 4 x 4.
  float lamp_share(Vec point, Mask mask) const {
    if (mask == 0) return 1.0f;
    float sum = 0.0f, low = 1.0f, high = 0.0f;
    const auto add = [&](int across, int up) {
      constexpr float kPlaces[4] = {-1.0f, -0.3333f, 0.3333f, 1.0f};
      const float share = passing_all(point, kPlaces[across], kPlaces[up], mask);
      sum += share;
      low = std::min(low, share);
      high = std::max(high, share);
    };
    for (int corner = 0; corner < 4; ++corner) add((corner & 1) * 3, (corner >> 1) * 3);
    if (high - low < 0.01f) return sum * 0.25f;
    for (int i = 0; i < 16; ++i) {
      const int across = i & 3, up = i >> 2;
      if ((across == 0 || across == 3) && (up == 0 || up == 3)) continue;
      add(across, up);
    }
    return sum * (1.0f / 16.0f);
  }

  float passing_all(Vec point, float across, float up, Mask mask) const {
    const Air& air = stage_.air;
    const Vec towards = air.lamp + air.lamp_side * (across * air.lamp_radius) +
                        air.lamp_up * (up * air.lamp_radius);
    float share = 1.0f;
    for (int i = 0; i < stage_.count && share > 0.0f; ++i) {
      if ((mask >> i & 1u) != 0) share *= passing(stage_.objects[i], point, towards);
    }
    return share;
  }

  // Light of the sky that reaches the table close to what stands on it.
  float contact(Vec point) const {
    float open = 1.0f;
    for (int i = 0; i < stage_.count; ++i) {
      const PosedObject& object = stage_.objects[i];
      const bool flat = object.thing != nullptr;
      const float wide = object.half_width * (flat ? 0.95f : 1.35f);
      const float deep = flat ? 0.30f : wide;
      const float x = (point.x - object.base.x) / wide;
      const float z = (point.z - object.base.z) / deep;
      const float near = 1.0f - (x * x + z * z);
      if (near > 0.0f) open *= 1.0f - 0.6f * near;
    }
    return open;
  }

  static float power_of(float base, int squarings) {
    float power = std::max(0.0f, base);
    for (int i = 0; i < squarings; ++i) power *= power;
    return power;
  }

  // What a mirror shows: objects in their plain colours, the table, the sky.
  Vec mirrored(Vec point, Vec normal, Vec unit, Mask mask) const {
    const Air& air = stage_.air;
    const Vec mirror = unit - normal * (2.0f * dot(unit, normal));
    const Vec table = table_mean_ * (air.ambient + air.direct * 0.45f);
    Vec around =
        mix(table, sky_towards(air, mirror.y), std::clamp(0.5f + 3.0f * mirror.y, 0.0f, 1.0f));
    float nearest = 1e9f;
    for (int i = 0; i < stage_.count; ++i) {
      Meeting meeting;
      if ((mask >> i & 1u) == 0 || !meet(stage_.objects[i], point, mirror, kBlur, &meeting))
        continue;
      if (meeting.distance >= nearest) continue;
      const PosedObject& object = stage_.objects[i];
      const Vec light = air.ambient + air.direct * 0.4f;
      const Vec colour = object.thing != nullptr ? meeting.colour : albedo_of(object.colour);
      nearest = meeting.distance;
      around = around * (1.0f - meeting.alpha) + colour * light;
    }
    return around;
  }

  // Light that a surface sends back along `ray`; `share` of the lamp and `open` of the sky reach
  // it. `others`: objects that it may mirror.
  Vec surface_light(const Texel& texel, Vec point, Vec normal, Vec ray, float share, float open,
                    Mask others) const {
    const Air& air = stage_.air;
    const Vec unit = normalised(ray);
    const float facing = std::max(0.0f, dot(normal, air.lamp)) * share;
    const Vec sky = air.ambient * (open * (0.82f + 0.30f * normal.y));
    Vec light = texel.albedo * (sky + air.direct * facing) * (1.0f - texel.mirror);
    if (texel.mirror > 0.0f) {
      light = light + texel.albedo *
                          (mirrored(point, normal, unit, others) + air.direct * (0.35f * facing)) *
                          (1.3f * texel.mirror * (0.4f + 0.6f * open));
    }
    if (texel.gloss > 0.0f && facing > 0.0f) {
      const float toward = dot(normalised(air.lamp - unit), normal);
      const float glint = texel.mirror > 0.0f
                              ? power_of(toward, 5) + 0.35f * power_of(toward, 2)
                              : 0.55f * power_of(toward, 6) + 0.20f * power_of(toward, 4);
      const Vec white{1.0f, 1.0f, 1.0f};
      const Vec tint = texel.mirror > 0.0f ? mix(texel.albedo, white, 0.4f) : white;
      light = light + air.direct * tint * (glint * texel.gloss * share);
    }
    return light;
  }

  Vec table_light(Vec point, float distance, Vec ray) const {
    const Vec place{stage_.table_cos * point.x + stage_.table_sin * point.z, 0.0f,
                    stage_.table_cos * point.z - stage_.table_sin * point.x};
    const SurfacePoint surface{
        place, {0.0f, 1.0f, 0.0f}, stage_.table_offset, 2.2f * footprint_ * distance, true};
    const Texel texel = texel_of(stage_.table, stage_.table_colour, surface, stage_.lattice);
    Mask shading = 0;
    for (int i = 0; i < stage_.count; ++i) {
      if (may_shade(shadows_[i], point)) shading |= 1u << i;
    }
    const Texel dull{texel.albedo, 0.5f * texel.gloss, texel.mirror, {}};
    const Vec tilt{stage_.table_cos * texel.tilt.x - stage_.table_sin * texel.tilt.z, 0.0f,
                   stage_.table_sin * texel.tilt.x + stage_.table_cos * texel.tilt.z};
    const Vec normal = normalised(Vec{0.0f, 1.0f, 0.0f} + tilt);
    return surface_light(dull, point, normal, ray, lamp_share(point, shading), contact(point), ~0u);
  }

  Vec solid_light(int index, Vec point, const Meeting& meeting, Vec ray) const {
    const PosedObject& object = nth(stage_.objects, index);
    const float c = object.solid.cos_yaw;
    const float s = object.solid.sin_yaw;
    const auto own = [&](Vec v) { return Vec{c * v.x + s * v.z, v.y, c * v.z - s * v.x}; };
    const SurfacePoint surface{own(point - object.base), own(meeting.normal), object.offset,
                               footprint_ * meeting.distance, false};
    const Texel texel = texel_of(object.surface, object.colour, surface, stage_.lattice);
    const bool towards = dot(meeting.normal, stage_.air.lamp) > 0.0f;
    const float share = towards ? lamp_share(point, ~(1u << index)) : 0.0f;
    const float low = std::min(1.0f, 0.55f + 0.9f * point.y / object.height);
    const Vec tilt{c * texel.tilt.x - s * texel.tilt.z, texel.tilt.y,
                   s * texel.tilt.x + c * texel.tilt.z};
    return surface_light(texel, point, normalised(meeting.normal + tilt), ray, share, low,
                         ~(1u << index));
  }

  Vec thing_light(int index, Vec point, const Meeting& meeting) const {
    const PosedObject& object = nth(stage_.objects, index);
    const Air& air = stage_.air;
    const float share = lamp_share(point, ~(1u << index));
    const float side = (point.x - object.base.x) / object.half_width * air.lamp.x;
    const float facing = 0.72f + 0.20f * side;
    return meeting.colour * (air.ambient * 1.05f + air.direct * (facing * (0.25f + 0.75f * share)));
  }

  Stage stage_;
  int size_;
  float footprint_;  // width of a pixel at one unit of depth
  std::array<PixelRect, kMaxObjects> windows_{};
  std::array<Shadow, kMaxObjects> shadows_{};
  Vec table_mean_;
  float table_edge_;  // v of the table's far edge
};

}  // namespace

SceneImage render(const StillLife& scene, const Things& things, int size) {
  return Renderer(scene, things, size).image();
}

std::vector<std::uint8_t> id_buffer(const StillLife& scene, const Things& things, int size) {
  std::vector<std::uint8_t> ids(to_size(size) * to_size(size), 0);
  Renderer(scene, things, size).for_each_centre([&](int pixel, Mask, int nearest) {
    ids[pixel] = low_bits<std::uint8_t>(nearest + 1);
  });
  return ids;
}

std::vector<double> visible_shares(const StillLife& scene, const Things& things, int size) {
  std::array<int, kMaxObjects> alone{};
  std::array<int, kMaxObjects> in_sight{};
  Renderer(scene, things, size).for_each_centre([&](int, Mask under, int nearest) {
    for (int i = 0; i < kMaxObjects; ++i) alone[i] += narrow<int>(under >> i & 1u);
    ++in_sight[nearest];
  });
  std::vector<double> shares;
  for (std::size_t i = 0; i < scene.objects.size(); ++i) {
    shares.push_back(alone[i] > 0 ? to_double(in_sight[i]) / alone[i] : 0.0);
  }
  return shares;
}

}  // namespace tessera::still
