// Assembling of pictures.
#include "vision/image/image.h"

#include <algorithm>

namespace tessera {

Image contact_sheet(const std::vector<Image>& pictures, std::int64_t columns, std::int64_t gap) {
  expects(!pictures.empty() && columns > 0 && gap >= 0, "a sheet has pictures and columns");
  const auto count = static_cast<std::int64_t>(pictures.size());
  columns = std::min(columns, count);
  const std::int64_t rows = (count + columns - 1) / columns;
  std::int64_t cell_width = 0, cell_height = 0;
  for (const Image& picture : pictures) {
    cell_width = std::max(cell_width, picture.width);
    cell_height = std::max(cell_height, picture.height);
  }
  Image sheet(columns * (cell_width + gap) + gap, rows * (cell_height + gap) + gap);
  std::fill(sheet.rgb.begin(), sheet.rgb.end(), std::uint8_t{255});
  for (std::int64_t i = 0; i < count; ++i) {
    const Image& picture = pictures[static_cast<std::size_t>(i)];
    const std::int64_t left =
        gap + (i % columns) * (cell_width + gap) + (cell_width - picture.width) / 2;
    const std::int64_t top =
        gap + (i / columns) * (cell_height + gap) + (cell_height - picture.height) / 2;
    for (std::int64_t y = 0; y < picture.height; ++y) {
      std::copy_n(picture.at(0, y), picture.width * 3, sheet.at(left, top + y));
    }
  }
  return sheet;
}

}  // namespace tessera
