// How stored frames are turned and mirrored until they are upright. Internal to video/codec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "video/video.h"

namespace tessera {

// Quarter turns clockwise, then a mirror from left to right.
struct Turn {
  int quarters = 0;
  bool mirrored = false;
};

// Of a display matrix (nine numbers, row by row), which maps stored places to shown ones:
// x' = a x + c y, y' = b x + d y with a, b, c, d = matrix[0], [1], [3], [4]. Turns by no right
// angle and matrices of no turn are left out, with a note.
Turn turn_of(const std::int32_t* matrix, std::vector<std::string>& notes);

VideoFrame upright(VideoFrame frame, const Turn& turn);

}  // namespace tessera
