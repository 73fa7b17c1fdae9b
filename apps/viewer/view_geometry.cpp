// Zoom, pan and split of images on the screen.
#include "apps/viewer/view_geometry.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr double kZooms[] = {kMinZoom, 0.125, 0.25, 0.5, 1,  2,  3,  4,  6,
                             8,        12,    16,   24,  32, 48, 64, 96, kMaxZoom};

double next_zoom(double zoom, int steps) {
  for (; steps > 0; --steps) {
    const auto* above = std::upper_bound(std::begin(kZooms), std::end(kZooms), zoom * 1.001);
    if (above != std::end(kZooms)) zoom = *above;
  }
  for (; steps < 0; ++steps) {
    const auto* here = std::lower_bound(std::begin(kZooms), std::end(kZooms), zoom * 0.999);
    if (here != std::begin(kZooms)) zoom = *(here - 1);
  }
  return zoom;
}

}  // namespace

double fitting_zoom(const Rect& area, std::int64_t width, std::int64_t height) {
  if (width <= 0 || height <= 0) return 1;
  const double zoom = std::min(area.width() / to_double(width), area.height() / to_double(height));
  return zoom >= 1 ? std::min(std::floor(zoom), kMaxZoom) : std::max(zoom, kMinZoom);
}

Placement place(const Viewport& view, const Rect& area, std::int64_t width, std::int64_t height) {
  Placement out;
  out.width = width;
  out.height = height;
  out.zoom = view.zoom > 0 ? view.zoom : fitting_zoom(area, width, height);
  const double centre_x = view.zoom > 0 ? view.centre_x : 0.5;
  const double centre_y = view.zoom > 0 ? view.centre_y : 0.5;
  out.left = std::round((area.left + area.right) / 2 - centre_x * out.zoom * to_double(width));
  out.top = std::round((area.top + area.bottom) / 2 - centre_y * out.zoom * to_double(height));
  return out;
}

Viewport zoomed(const Viewport& view, const Rect& area, const Placement& shown, int steps, double x,
                double y) {
  Viewport out = view;
  out.zoom = next_zoom(shown.zoom, steps);
  const double wide = to_double(shown.width), high = to_double(shown.height);
  // The share under the point stays; the centre of the area follows from it.
  const double share_x = (x - shown.left) / (shown.zoom * wide);
  const double share_y = (y - shown.top) / (shown.zoom * high);
  out.centre_x = share_x + ((area.left + area.right) / 2 - x) / (out.zoom * wide);
  out.centre_y = share_y + ((area.top + area.bottom) / 2 - y) / (out.zoom * high);
  out.centre_x = std::clamp(out.centre_x, 0.0, 1.0);
  out.centre_y = std::clamp(out.centre_y, 0.0, 1.0);
  return out;
}

Viewport panned(const Viewport& view, const Placement& shown, double dx, double dy) {
  Viewport out = view;
  if (out.zoom <= 0) out = {shown.zoom, 0.5, 0.5};
  out.centre_x -= dx / (shown.zoom * to_double(shown.width));
  out.centre_y -= dy / (shown.zoom * to_double(shown.height));
  out.centre_x = std::clamp(out.centre_x, 0.0, 1.0);
  out.centre_y = std::clamp(out.centre_y, 0.0, 1.0);
  return out;
}

std::optional<PixelPosition> pixel_at(const Placement& shown, double x, double y) {
  if (!shown.rect().contains(x, y)) return std::nullopt;
  return PixelPosition{
      std::min(static_cast<std::int64_t>((x - shown.left) / shown.zoom), shown.width - 1),
      std::min(static_cast<std::int64_t>((y - shown.top) / shown.zoom), shown.height - 1)};
}

std::optional<CellPosition> cell_at(const Placement& shown, std::int64_t rows, std::int64_t columns,
                                    double x, double y) {
  const Rect whole = shown.rect();
  if (rows <= 0 || columns <= 0 || !whole.contains(x, y)) return std::nullopt;
  const double row = (y - whole.top) / whole.height() * to_double(rows);
  const double column = (x - whole.left) / whole.width() * to_double(columns);
  return CellPosition{std::min(static_cast<std::int64_t>(row), rows - 1),
                      std::min(static_cast<std::int64_t>(column), columns - 1)};
}

Rect cell_rect(const Placement& shown, std::int64_t rows, std::int64_t columns,
               const CellPosition& cell) {
  const Rect whole = shown.rect();
  const auto edge = [](double start, double length, std::int64_t index, std::int64_t count) {
    return std::round(start + length * to_double(index) / to_double(count));
  };
  return {edge(whole.left, whole.width(), cell.column, columns),
          edge(whole.top, whole.height(), cell.row, rows),
          edge(whole.left, whole.width(), cell.column + 1, columns),
          edge(whole.top, whole.height(), cell.row + 1, rows)};
}

SplitAreas split_area(const Rect& area, double share) {
  const double at = std::round(area.left + area.width() * std::clamp(share, 0.0, 1.0));
  SplitAreas out{area, area};
  out.left.right = at;
  out.right.left = at;
  return out;
}

}  // namespace tessera
