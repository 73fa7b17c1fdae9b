#include "video/codec/upright.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

// A quarter turn clockwise: out(x, y) = in(y, h - 1 - x).
VideoFrame turned(VideoFrame in) {
  VideoFrame out{in.ticks, in.height, in.width, std::vector<std::uint8_t>(in.rgb.size())};
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      std::memcpy(&nth(out.rgb, (y * out.width + x) * 3),
                  &nth(in.rgb, ((in.height - 1 - x) * in.width + y) * 3), 3);
    }
  }
  return out;
}

void mirror(VideoFrame& frame) {
  for (std::int64_t y = 0; y < frame.height; ++y) {
    std::uint8_t* row = &nth(frame.rgb, y * frame.width * 3);
    for (std::int64_t left = 0, right = frame.width - 1; left < right; ++left, --right) {
      std::swap_ranges(row + left * 3, row + left * 3 + 3, row + right * 3);
    }
  }
}

}  // namespace

Turn turn_of(const std::int32_t* matrix, std::vector<std::string>& notes) {
  const std::int64_t a = matrix[0], b = matrix[1], c = matrix[3], d = matrix[4];
  const bool even = a != 0 && d != 0 && b == 0 && c == 0;
  const bool odd = b != 0 && c != 0 && a == 0 && d == 0;
  if (!even && !odd) {
    notes.push_back("a turn by no right angle was left out");
    return {};
  }
  // A mirror keeps one axis of the two and turns the other round: the determinant is negative.
  // Upside down is a half turn and a mirror. The stored x axis tells a quarter turn by where it
  // goes, down or up, mirrored or not: the mirror moves it to neither.
  if (even) {
    const bool mirrored = (a < 0) != (d < 0);
    return {d > 0 ? 0 : 2, mirrored};
  }
  const bool mirrored = (b < 0) == (c < 0);
  return {b > 0 ? 1 : 3, mirrored};
}

VideoFrame upright(VideoFrame frame, const Turn& turn) {
  for (int i = 0; i < turn.quarters; ++i) frame = turned(std::move(frame));
  if (turn.mirrored) mirror(frame);
  return frame;
}

}  // namespace tessera
