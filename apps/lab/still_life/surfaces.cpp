#include "apps/lab/still_life/surfaces.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/core/index.h"

namespace tessera::still {
namespace {

using world::linear;

constexpr std::array<Vec, kColours> kAlbedo = {
    linear(0.84f, 0.13f, 0.14f),  // red
    linear(0.97f, 0.52f, 0.10f),  // orange
    linear(0.97f, 0.86f, 0.16f),  // yellow
    linear(0.20f, 0.62f, 0.22f),  // green
    linear(0.16f, 0.34f, 0.86f),  // blue
    linear(0.55f, 0.22f, 0.72f),  // purple
    linear(0.55f, 0.35f, 0.20f),  // brown
    linear(0.56f, 0.57f, 0.58f),  // gray
    linear(0.95f, 0.95f, 0.94f),  // white
    linear(0.15f, 0.15f, 0.16f),  // black
};
constexpr Vec kWhite{1.0f, 1.0f, 1.0f};

int whole_below(float value) { return truncate<int>(value + 4096.0f) - 4096; }
float part_above(float value) { return value - to_float(whole_below(value)); }

// How much of a pattern of this period survives a pixel of that width.
float kept(float period, float footprint) {
  return std::clamp(2.0f - 4.0f * footprint / period, 0.0f, 1.0f);
}

float luminance(Vec colour) { return 0.3f * colour.x + 0.6f * colour.y + 0.1f * colour.z; }

Texel plain(Vec base, const SurfacePoint& point, const Lattice& lattice) {
  const float shade = 0.94f + 0.12f * lattice.rough(point.place * 1.5f + point.offset);
  return {base * shade, 0.10f, 0.0f, {}};
}

// Growth rings around an axis off the solid, fibres along x; a table is made of planks.
Texel wood(Vec base, const SurfacePoint& point, const Lattice& lattice) {
  Vec p = point.place;
  Vec offset = point.offset;
  float shade = 1.0f;
  if (point.table) {
    constexpr float kPlank = 1.1f;
    const int plank = whole_below(p.z * (1.0f / kPlank) + offset.z);
    const float across = part_above(p.z * (1.0f / kPlank) + offset.z) - 0.5f;
    const float own = lattice.raw(plank, 5, 7);
    shade = 0.78f + 0.4f * own;
    const float seam = 1.0f - step_up(0.46f, 0.49f, std::abs(across));
    shade *= 0.35f + 0.65f * seam;
    p = {p.x * 0.5f, 0.35f * across + own, across * kPlank};
    offset = offset + Vec{own * 37.0f, own * 11.0f, to_float(plank) * 3.7f};
  }
  const float warp = lattice.at(Vec{p.x * 0.55f, p.y * 1.1f, p.z * 1.1f} + offset);
  const float slow = lattice.at(Vec{p.x * 0.22f, p.y * 0.4f, p.z * 0.4f} + offset * 1.7f);
  const float y = p.y + 0.9f + 0.5f * slow;
  const float z = p.z + 0.35f;
  const float radius = std::sqrt(y * y + z * z);
  const float ring = part_above((radius + 0.42f * warp) * (point.table ? 4.4f : 5.2f) + offset.x);
  const float late = step_up(0.25f, 0.9f, ring) * (1.0f - step_up(0.93f, 1.0f, ring));
  const float fibre = lattice.at(Vec{p.x * 1.6f, p.y * 17.0f, p.z * 17.0f} + offset) - 0.5f;
  const float fine = kept(0.12f, point.footprint);
  const Vec early = mix(base, kWhite, 0.16f) * 1.12f;
  const Vec dark = base * (point.table ? 0.6f : 0.42f);
  const Vec colour = mix(early, dark, 0.8f * late) * (shade * (1.0f + 0.42f * fibre * fine));
  return {colour, 0.12f, 0.0f, {}};
}

// Thin veins where a warped sheet is cut, broad clouds between them.
Texel marble(Vec base, const SurfacePoint& point, const Lattice& lattice) {
  const Vec p = point.place * (point.table ? 0.62f : 1.0f) + point.offset;
  const float warp = lattice.rough(p * 1.3f) - 0.5f;
  // 1 on the cut of a sheet across `along`, 0 a little way off.
  const auto vein_of = [&](Vec along, float strength, float sharp) {
    const float sheet = dot(p, along) + strength * warp;
    const float off = std::abs(2.0f * part_above(sheet) - 1.0f);
    return std::max(0.0f, 1.0f - off * sharp);
  };
  const float broad = vein_of({0.75f, 0.35f, 0.55f}, 3.4f, 5.0f);
  const float thin = vein_of({-0.9f, 1.1f, 1.3f}, 4.6f, 14.0f);
  const float cloud = lattice.rough(p * 2.1f + Vec{7.3f, 1.9f, 4.4f});
  const bool dark_stone = luminance(base) < 0.06f;
  const Vec body =
      dark_stone ? base * (0.7f + 1.3f * cloud) : mix(base, kWhite, 0.42f) * (0.72f + 0.5f * cloud);
  const Vec vein = dark_stone ? Vec{0.62f, 0.60f, 0.56f} : base * 0.28f;
  const float share = std::min(1.0f, 0.85f * broad * broad + 0.6f * thin);
  return {mix(body, vein, share), 0.45f, 0.0f, {}};
}

// A weave with coloured bands both ways.
Texel cloth(Vec base, const SurfacePoint& point, const Lattice& lattice) {
  const Vec n{std::abs(point.normal.x), std::abs(point.normal.y), std::abs(point.normal.z)};
  const bool flat = n.y >= n.x && n.y >= n.z;
  const float a = (n.x > n.z && !flat ? point.place.z : point.place.x) + 20.0f;
  const float b = (flat ? point.place.z : point.place.y) + 20.0f;
  const float scale = point.table ? 2.1f : 3.4f;
  const auto band = [&](float along, int way) {
    const float value =
        lattice.raw(whole_below(along * scale) % 8, way, truncate<int>(point.offset.y));
    return value < 0.34f ? -1.0f : value > 0.74f ? 1.0f : 0.0f;
  };
  const float tone = 0.5f * (band(a, 3) + band(b, 9));
  constexpr float kThread = 0.1f;
  const float warp_thread = part_above(a * (1.0f / kThread));
  const float weft_thread = part_above(b * (1.0f / kThread));
  const bool over =
      ((whole_below(a * (1.0f / kThread)) + whole_below(b * (1.0f / kThread))) & 1) != 0;
  const float hump =
      over ? 4.0f * warp_thread * (1.0f - warp_thread) : 4.0f * weft_thread * (1.0f - weft_thread);
  const float weave = (over ? 1.0f : 0.9f) * (0.80f + 0.22f * hump);
  const float fade = kept(2.0f * kThread, point.footprint);
  const float fold = lattice.rough(point.place * 0.9f + point.offset);
  const Vec body =
      tone < 0.0f ? mix(base, base * 0.4f, -tone) : mix(base, mix(base, kWhite, 0.6f), tone);
  const float shade = (0.88f + (weave - 0.88f) * fade) * (0.72f + 0.56f * fold);
  return {body * shade, 0.0f, 0.0f, {}};
}

// Scratches along x, or around a round solid: they tilt the normal across them.
Texel metal(Vec base, const SurfacePoint& point, const Lattice& lattice) {
  const Vec p = point.place;
  const bool flat = std::abs(point.normal.y) > 0.8f;
  const float across = flat ? p.z : p.y;
  const float along = flat ? p.x : p.x + p.z;
  const float fine = lattice.at(along * 0.9f + point.offset.x, across * 26.0f, 3) - 0.5f;
  const float broad = lattice.at(along * 0.35f + point.offset.y, across * 7.0f, 11) - 0.5f;
  const float scratch = fine * kept(0.08f, point.footprint);
  const float shade = 1.0f + 0.35f * scratch + 0.18f * broad;
  const float tilt = 0.22f * scratch + 0.10f * broad;
  const Vec tint = mix(base, kWhite, 0.12f) * shade;
  return {tint, 0.9f, 0.72f, flat ? Vec{0.0f, 0.0f, tilt} : Vec{0.0f, tilt, 0.0f}};
}

// Chips of two tones in a ground of the colour.
Texel speckled(Vec base, const SurfacePoint& point, const Lattice& lattice) {
  const float scale = point.table ? 6.5f : 8.5f;
  const Vec p = point.place * scale + point.offset * 5.0f;
  const float coarse = lattice.at(p);
  const float fine = lattice.at(p * 2.3f + Vec{3.1f, 8.7f, 5.2f});
  const bool dark_stone = luminance(base) < 0.06f;
  const Vec pale = mix(base, kWhite, dark_stone ? 0.35f : point.table ? 0.4f : 0.6f);
  const Vec deep = base * (point.table ? 0.5f : 0.3f);
  Vec colour = base * (0.86f + 0.28f * fine);
  colour = mix(colour, pale, step_up(0.62f, 0.72f, coarse));
  colour = mix(colour, deep, 1.0f - step_up(0.27f, 0.36f, coarse));
  const float fade = kept(1.2f / scale, point.footprint);
  return {mix(base, colour, fade), 0.15f, 0.0f, {}};
}

}  // namespace

Vec albedo_of(Colour colour) { return nth(kAlbedo, colour); }

Texel texel_of(Surface surface, Colour colour, const SurfacePoint& point, const Lattice& lattice) {
  // Tables are a little paler than solids of the same colour, so that solids stand out.
  const Vec base =
      point.table ? mix(albedo_of(colour), Vec{0.42f, 0.40f, 0.37f}, 0.28f) : albedo_of(colour);
  switch (surface) {
    case Surface::kPlain:
      return plain(base, point, lattice);
    case Surface::kWood:
      return wood(base, point, lattice);
    case Surface::kMarble:
      return marble(base, point, lattice);
    case Surface::kCloth:
      return cloth(base, point, lattice);
    case Surface::kMetal:
      return metal(base, point, lattice);
    case Surface::kSpeckled:
      return speckled(base, point, lattice);
  }
  return plain(base, point, lattice);
}

}  // namespace tessera::still
