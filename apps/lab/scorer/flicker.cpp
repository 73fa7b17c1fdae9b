#include "apps/lab/scorer/flicker.h"

#include <algorithm>
#include <cstdlib>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr int kLevels = 2;  // of 255
constexpr int kAround = 2;  // pixels: half a lattice place, and what a tokenizer blurs

// Grown by kAround to all sides.
std::vector<std::uint8_t> grown(const std::vector<std::uint8_t>& mask, int size) {
  std::vector<std::uint8_t> out(mask.size());
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      if (nth(mask, y * size + x) == 0) continue;
      for (int v = std::max(0, y - kAround); v <= std::min(size - 1, y + kAround); ++v) {
        for (int u = std::max(0, x - kAround); u <= std::min(size - 1, x + kAround); ++u) {
          nth(out, v * size + u) = 1;
        }
      }
    }
  }
  return out;
}

}  // namespace

std::optional<BareTable> BareTable::of(const Video& heard, const SeenVideo& seen, int size) {
  const auto lost = [](const SeenSolid& solid) { return !solid.found; };
  if (heard.camera != CameraMotion::kStill ||
      std::any_of(seen.solids.begin(), seen.solids.end(), lost)) {
    return std::nullopt;
  }
  BareTable out(seen.first, size);
  const SeenVideo nothing{.first = seen.first, .solids = {}};
  const SceneImage empty = render_seen(heard, nothing, seen.first, size);
  for (int frame = seen.first; frame < heard.frames; ++frame) {
    const SceneImage image = render_seen(heard, seen, frame, size);
    std::vector<std::uint8_t> touched(image.rgb.size() / 3);
    for (std::size_t i = 0; i < image.rgb.size(); ++i) {
      if (std::abs(int{image.rgb[i]} - int{empty.rgb[i]}) > kLevels) touched[i / 3] = 1;
    }
    out.covered_.push_back(grown(touched, size));
  }
  return out;
}

bool BareTable::bare_cell(int begin, int end, int row, int column, int rows, int columns) const {
  for (int frame = begin; frame < end; ++frame) {
    for (int y = row * size_ / rows; y < (row + 1) * size_ / rows; ++y) {
      for (int x = column * size_ / columns; x < (column + 1) * size_ / columns; ++x) {
        if (!bare(frame, x, y)) return false;
      }
    }
  }
  return true;
}

double pixel_flicker(std::span<const Image> frames, const BareTable& table) {
  expects(frames.size() == to_size(table.frames()), "the frames of the video");
  std::int64_t sum = 0, count = 0;
  for (int frame = table.first(); frame + 1 < table.frames(); ++frame) {
    const Image& now = nth(frames, frame);
    const Image& next = frames[to_size(frame) + 1];
    for (int y = 0; y < table.size(); ++y) {
      for (int x = 0; x < table.size(); ++x) {
        if (!table.bare(frame, x, y) || !table.bare(frame + 1, x, y)) continue;
        for (int c = 0; c < 3; ++c) sum += std::abs(int{now.at(x, y)[c]} - int{next.at(x, y)[c]});
        count += 3;
      }
    }
  }
  return count == 0 ? kNotAsked : to_double(sum) / to_double(count);
}

double code_flicker(const CodeGrids& grids, const BareTable& table) {
  const auto cells = to_size(grids.rows) * to_size(grids.columns);
  expects(cells > 0 && grids.codes.size() % cells == 0 && grids.grid_frames > 0, "whole grids");
  std::int64_t changed = 0, count = 0;
  for (std::size_t grid = 0; (grid + 2) * cells <= grids.codes.size(); ++grid) {
    const int begin = narrow<int>(grid) * grids.grid_frames;
    const int end = begin + 2 * grids.grid_frames;
    if (begin < table.first() || end > table.frames()) continue;
    for (std::size_t cell = 0; cell < cells; ++cell) {
      const int row = narrow<int>(cell) / grids.columns;
      const int column = narrow<int>(cell) % grids.columns;
      if (!table.bare_cell(begin, end, row, column, grids.rows, grids.columns)) continue;
      changed += grids.codes[grid * cells + cell] != grids.codes[(grid + 1) * cells + cell] ? 1 : 0;
      ++count;
    }
  }
  return count == 0 ? kNotAsked : to_double(changed) / to_double(count);
}

}  // namespace tessera
