// Pixels of a rendered frame against images.
#include "apps/lab/viewer/screen_check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/core/index.h"

namespace tessera {

PixelCheck check_pixels(const Image& screen, const Image& image, const Placement& placed,
                        const Rect& video) {
  PixelCheck out;
  if (placed.zoom < 1 || placed.zoom != std::floor(placed.zoom) || placed.width != image.width ||
      placed.height != image.height) {
    return out;  // nothing compared
  }
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x) {
      const double left = placed.left + to_double(x) * placed.zoom;
      const double top = placed.top + to_double(y) * placed.zoom;
      const bool whole = left >= video.left && left + placed.zoom <= video.right && top >= video.top &&
                         top + placed.zoom <= video.bottom;
      const auto at_x = truncate<std::int64_t>(left + placed.zoom / 2);
      const auto at_y = truncate<std::int64_t>(top + placed.zoom / 2);
      if (!whole || at_x >= screen.width || at_y >= screen.height || at_x < 0 || at_y < 0) continue;
      ++out.compared;
      if (std::equal(image.at(x, y), image.at(x, y) + 3, screen.at(at_x, at_y))) continue;
      if (out.different++ == 0) {
        out.first_x = x;
        out.first_y = y;
      }
    }
  }
  return out;
}

std::vector<Colour> cell_colours(const Image& screen, const Placement& placed, std::int64_t rows,
                                 std::int64_t columns) {
  std::vector<Colour> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const Rect cell = cell_rect(placed, rows, columns, {row, column});
      const auto x = truncate<std::int64_t>((cell.left + cell.right) / 2);
      const auto y = truncate<std::int64_t>((cell.top + cell.bottom) / 2);
      if (x < 0 || y < 0 || x >= screen.width || y >= screen.height) continue;
      const std::uint8_t* rgb = screen.at(x, y);
      out.push_back({rgb[0], rgb[1], rgb[2]});
    }
  }
  return out;
}

std::int64_t distinct(const std::vector<Colour>& colours) {
  std::vector<std::uint32_t> keys;
  for (const Colour& one : colours) {
    keys.push_back(std::uint32_t{one.red} << 16 | std::uint32_t{one.green} << 8 | one.blue);
  }
  std::sort(keys.begin(), keys.end());
  return std::unique(keys.begin(), keys.end()) - keys.begin();
}

HeatCheck check_heat_map(const std::vector<Colour>& colours, const TokenGrid& grid,
                         Overlay overlay) {
  HeatCheck out;
  std::vector<Colour> standing;
  const OverlayRange range = overlay_range(grid, overlay);
  for (std::size_t i = 0; i < std::min(colours.size(), grid.marks.size()); ++i) {
    if (grid.marks[i].id < 0) continue;
    const Colour got = colours[i];
    const Colour want = heat_colour(range.share(overlay_value(grid, grid.marks[i], overlay)));
    const int apart = std::abs(want.red - got.red) + std::abs(want.green - got.green) +
                      std::abs(want.blue - got.blue);
    out.wrong += apart > 3 ? 1 : 0;  // rounding of blending
    standing.push_back(got);
  }
  out.kinds = distinct(standing);
  return out;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto last = to_double(values.size() - 1);
  return nth(values, std::lround(share * last));
}

}  // namespace tessera
