// What changes from frame to frame where nothing should: on the bare table and the sky, away from
// the solids, their shadows and mirror images.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "apps/lab/scorer/attributes.h"
#include "apps/lab/scorer/motion_reader.h"
#include "engine/core/index.h"
#include "vision/image/image.h"

namespace tessera {

// Which pixels of which frames are bare.
class BareTable {
 public:
  // Where render_seen() differs by more than 2 levels from the empty table, a solid is at work; so
  // it is 2 pixels around. None for a video of which that cannot be known: a solid was not found, or
  // the camera moves, so that nothing stands still.
  static std::optional<BareTable> of(const Video& heard, const SeenVideo& seen, int size);

  int first() const { return first_; }
  int frames() const { return first_ + narrow<int>(covered_.size()); }
  int size() const { return size_; }
  // In a frame from first() on.
  bool bare(int frame, int x, int y) const {
    return nth(nth(covered_, frame - first_), y * size_ + x) == 0;
  }
  // In all frames of [begin, end), over the whole rectangle of a cell of a rows x columns grid.
  bool bare_cell(int begin, int end, int row, int column, int rows, int columns) const;

 private:
  BareTable(int first, int size) : first_(first), size_(size) {}
  int first_, size_;
  std::vector<std::vector<std::uint8_t>> covered_;  // [frames from first on][size, size]
};

// Mean change of a channel from a frame to the next, in levels of 255, over pixels bare in both;
// kNotAsked where there are none.
double pixel_flicker(std::span<const Image> frames, const BareTable& table);

// Grids of codes, each [rows * columns] and standing for `grid_frames` frames from frame 0 on.
struct CodeGrids {
  std::span<const std::int32_t> codes;
  int rows = 0, columns = 0, grid_frames = 0;
};
// Share of codes that differ from those of the grid before, over cells that are bare in all frames
// of both grids; kNotAsked where there are none. Grids of frames before table.first() or beyond
// table.frames() are left out.
double code_flicker(const CodeGrids& grids, const BareTable& table);

}  // namespace tessera
