// Looks at a rendered frame: whether pixels on the screen are those of an image, and which colours
// tokens have. Pure; whole zooms only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/viewer/overlay.h"
#include "apps/viewer/view_geometry.h"
#include "vision/image/image.h"

namespace tessera {

struct PixelCheck {
  std::int64_t compared = 0, different = 0;  // pixels of the image
  std::int64_t first_x = -1, first_y = -1;   // the first that differs
  bool good() const { return compared > 0 && different == 0; }
};

// Compares the middle of every pixel of the image that is wholly within `video` with the screen.
PixelCheck check_pixels(const Image& screen, const Image& image, const Placement& placed,
                        const Rect& video);
// Colours in the middle of every cell of the grid, row by row.
std::vector<Colour> cell_colours(const Image& screen, const Placement& placed, std::int64_t rows,
                                 std::int64_t columns);
std::int64_t distinct(const std::vector<Colour>& colours);

// A heat map as drawn at full strength, against the values of the tokens that stand.
struct HeatCheck {
  std::int64_t kinds = 0;  // distinct colours of those tokens
  std::int64_t wrong = 0;  // tokens of another colour than their value's
};
HeatCheck check_heat_map(const std::vector<Colour>& colours, const TokenGrid& grid,
                         Overlay overlay);

double percentile(std::vector<double> values, double share);  // 0 without values

}  // namespace tessera
