// Assembling of images.
#include "vision/image/image.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

Image contact_sheet(const std::vector<Image>& images, std::int64_t columns, std::int64_t gap) {
  expects(!images.empty() && columns > 0 && gap >= 0, "a sheet has images and columns");
  const auto count = std::ssize(images);
  columns = std::min(columns, count);
  const std::int64_t rows = (count + columns - 1) / columns;
  std::int64_t cell_width = 0, cell_height = 0;
  for (const Image& image : images) {
    cell_width = std::max(cell_width, image.width);
    cell_height = std::max(cell_height, image.height);
  }
  Image sheet(columns * (cell_width + gap) + gap, rows * (cell_height + gap) + gap);
  std::fill(sheet.rgb.begin(), sheet.rgb.end(), std::uint8_t{255});
  for (std::int64_t i = 0; i < count; ++i) {
    const Image& image = nth(images, i);
    const std::int64_t left =
        gap + (i % columns) * (cell_width + gap) + (cell_width - image.width) / 2;
    const std::int64_t top =
        gap + (i / columns) * (cell_height + gap) + (cell_height - image.height) / 2;
    for (std::int64_t y = 0; y < image.height; ++y) {
      std::copy_n(image.at(0, y), image.width * 3, sheet.at(left, top + y));
    }
  }
  return sheet;
}

}  // namespace tessera
