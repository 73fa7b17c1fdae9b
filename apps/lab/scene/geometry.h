// Sizes, shapes and the fixed camera and light of the tabletop world, shared by the sampler and the
// renderer. Only +, -, *, / and sqrt on IEEE floats appear here, so every machine agrees on every
// bit.
#pragma once

#include <array>
#include <cmath>
#include <span>

#include "apps/lab/scene/scene.h"

namespace tessera::world {

struct Vec {
  float x = 0.0f;
  float y = 0.0f;
  float z = 0.0f;
};

inline Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
inline Vec operator-(Vec a, Vec b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
inline Vec operator*(Vec a, float s) { return {a.x * s, a.y * s, a.z * s}; }
inline Vec operator*(Vec a, Vec b) { return {a.x * b.x, a.y * b.y, a.z * b.z}; }
// A colour picked as it looks on screen, in linear light: the image's transfer curve is a root.
constexpr Vec linear(float r, float g, float b) { return {r * r, g * g, b * b}; }
inline float dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
inline Vec normalised(Vec a) { return a * (1.0f / std::sqrt(dot(a, a))); }

// A solid's measures: `radius` of sphere, cylinder and cone, half the edge of a cube; full
// `height`.
struct Measures {
  float radius;
  float height;
  float ground_radius;  // of the smallest circle on the ground around its shadow at noon
};
Measures measures_of(SolidKind kind, SolidSize size);

// Table: the floor ends at kTableBack, with the sky beyond it. Solid centres stay inside the rest.
inline constexpr float kTableBack = 4.5f;
inline constexpr float kMaxX = 3.0f;
inline constexpr float kMaxZ = 2.4f;
inline constexpr float kCell = 1.5f;        // edge of a floor cell
inline constexpr float kGroundGap = 0.12f;  // least gap between two solids on the ground

// Cubes stand turned by one fixed angle, cos and sin of 25 degrees.
inline constexpr float kCubeCos = 0.90630779f;
inline constexpr float kCubeSin = 0.42261826f;

// Pin-hole camera: eye, and an orthonormal frame (right is +x). An image plane point (u, v) in
// [-1, 1], v upwards, looks along forward + u*tan_half*right + v*tan_half*up.
inline constexpr Vec kEye{0.0f, 10.5f, -12.5f};
inline constexpr Vec kLookAt{0.0f, 0.4f, 0.3f};
inline constexpr float kTanHalfView = 0.222f;
struct Camera {
  Vec forward, right, up;
  Vec eye = kEye;
  float tan_half = kTanHalfView;
};
Camera camera();
// The camera after `steps` steps of the slow orbit: 1.2 degrees each around the vertical through
// kLookAt, counter-clockwise seen from above. 0 steps give camera(), bit for bit.
Camera orbit_camera(int steps);

// Image plane coordinates (u, v) of a point; depth along forward.
struct Projected {
  float u, v, depth;
};
Projected project(const Camera& camera, Vec point);

// Pixels of a square image, ends exclusive.
struct PixelRect {
  int left, top, right, bottom;
  bool covers(int x, int y) const { return x >= left && x < right && y >= top && y < bottom; }
};
// Around the image of these points, one pixel to spare on each side.
PixelRect pixels_around(std::span<const Vec> points, const Camera& view, int size);
// Corners of the upright box on the ground that reaches so far from the centre of its bottom.
std::array<Vec, 8> box_corners(Vec base, float reach, float deep, float height);

// Where the middle of a solid appears, in [-1, 1]; solids are listed by it.
float screen_x(const Solid& solid);
void order_left_to_right(std::vector<Solid>* solids);

// Whether the ground circles of two solids are more than `gap` apart.
bool apart_on_ground(const Solid& a, const Solid& b, double gap);

}  // namespace tessera::world
