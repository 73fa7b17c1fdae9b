// Where an image stands on the screen: zoom, pan, split. Pure arithmetic in framebuffer pixels
// (x to the right, y down); no ImGui.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/core/index.h"

namespace tessera {

struct Rect {
  double left = 0, top = 0, right = 0, bottom = 0;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
  bool contains(double x, double y) const {
    return x >= left && x < right && y >= top && y < bottom;
  }
};

// What part of images is looked at. Shared by the two sides of a comparison, in shares of the
// image, so that images of different sizes move together.
struct Viewport {
  double zoom = 0;  // screen pixels of an image's pixel; 0 = as large as fits
  double centre_x = 0.5, centre_y = 0.5;
};

// Where an image's top left corner lies and how large its pixels are. Corners lie on whole screen
// pixels, so that whole zooms show every pixel as a clean square.
struct Placement {
  double left = 0, top = 0, zoom = 1;
  std::int64_t width = 0, height = 0;  // pixels of the image
  Rect rect() const {
    return {left, top, left + zoom * to_double(width), top + zoom * to_double(height)};
  }
};

inline constexpr double kMinZoom = 1.0 / 16, kMaxZoom = 128;

// The largest zoom at which width x height fits: whole when it is 1 or more.
double fitting_zoom(const Rect& area, std::int64_t width, std::int64_t height);
Placement place(const Viewport& view, const Rect& area, std::int64_t width, std::int64_t height);

// Zooms one step in (steps > 0) or out through 1/16, ..., 1/2, 1, 2, 3, 4, 6, 8, 12, ..., 128,
// while the image's point under (x, y) stays where it is.
Viewport zoomed(const Viewport& view, const Rect& area, const Placement& shown, int steps, double x,
                double y);
// Moves the image by screen pixels.
Viewport panned(const Viewport& view, const Placement& shown, double dx, double dy);

struct PixelPosition {
  std::int64_t x = 0, y = 0;
};
// Empty outside the image.
std::optional<PixelPosition> pixel_at(const Placement& shown, double x, double y);

struct CellPosition {
  std::int64_t row = 0, column = 0;
};
// Cell of a grid that is laid over the whole image.
std::optional<CellPosition> cell_at(const Placement& shown, std::int64_t rows, std::int64_t columns,
                                    double x, double y);
// Screen pixels of a cell; neighbours share their edges, without gap or overlap.
Rect cell_rect(const Placement& shown, std::int64_t rows, std::int64_t columns,
               const CellPosition& cell);

struct SplitAreas {
  Rect left, right;
};
// Parts an area at `share` of its width, on a whole pixel.
SplitAreas split_area(const Rect& area, double share);

}  // namespace tessera
