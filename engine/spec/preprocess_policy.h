// How a family prepares images and frames for its vision encoder, as data. What is done with it:
// vision/image/preprocess.h for images, vision/image/video_preprocess.h for frames of videos.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

using Rgb = std::array<std::uint8_t, 3>;

enum class ResampleFilter { kBox, kBilinear, kBicubic, kLanczos };

// Which pass comes first shows in the last bit. Until version 12.1 Pillow always resized across
// first, and the published models saw that; 12.2 resizes down first what is over 100 times taller
// than wide, 13 also where the height loses more than twice the rows that the width loses columns.
enum class PassOrder { kAcrossFirst, kPillow13 };

enum class ResizeMode {
  kStretch,       // to side x side, aspect ratio lost
  kShortestSide,  // shortest side to `side`, then the centre side x side of it (CLIP)
  kPadToSquare,   // pad to a square with the background, then resize it to `side` (LLaVA-1.5)
  kLongestSide,   // longest side to `side`, then pad to side x side (Janus)
  kPinpoints,     // fit into the best of some tile grids, pad, cut; base view first (LLaVA-NeXT)
  kMultiples,     // both sides to multiples of patch * merge within an area (Qwen2-VL)
  // The size of the nearest aspect among multiples of `side` within `max_pixels`: halved by boxes while
  // both sides allow it, scaled to cover that size, and its centre (Lumina-mGPT)
  kNearestAspect,
  kTiles,         // longest side to `longest`, both up to whole tiles; base view last (Idefics3)
};

// How kLongestSide and kShortestSide make a whole number of a scaled side.
enum class SideRounding { kTruncate, kHalfToEven };

struct Tiling {
  std::int64_t rows = 0, cols = 0;
  bool operator==(const Tiling&) const = default;
};

struct PreprocessPolicy {
  std::string name;
  ResizeMode mode = ResizeMode::kStretch;
  ResampleFilter filter = ResampleFilter::kBicubic;
  PassOrder order = PassOrder::kAcrossFirst;
  std::int64_t side = 336;       // pixels: of a view; kMultiples makes views of other sizes
  std::int64_t patch = 14;       // pixels a side of a patch
  std::int64_t merge = 1;        // patches a side that become one token
  Rgb after = {255, 255, 255};  // the colour that shows through transparent pixels
  Rgb background = {0, 0, 0};    // the colour of padding
  std::optional<Rgb> mean_colour;  // of padding to a square, where it is not that of `mean`
  // kStretch, kShortestSide, kPadToSquare: pixels before the centre side x side is cut, its shortest
  // side where that is what is scaled; kTiles with longest 0: of the whole. 0: `side`, or as it is.
  std::int64_t resize_height = 0, resize_width = 0;
  SideRounding rounding = SideRounding::kTruncate;
  std::int64_t shortest = 1;        // kLongestSide: no side becomes smaller than this, pixels
  std::vector<Tiling> pinpoints;    // kPinpoints, in order of preference at a tie
  std::int64_t max_map_tiles = 0;  // kPinpoints: a larger token map is shrunk to this; 0: never
  std::int64_t longest = 0;         // kTiles: pixels; 0: see resize_height
  std::int64_t longest_cap = 4096;  // kTiles: pixels
  bool split = true;                // kTiles; false: the base view alone
  bool newline_at_end = false;      // one more token after a single view (LLaVA-OneVision)
  bool newline_each_row = false;    // one more token after each row of it (Emu3)
  std::int64_t min_pixels = 0, max_pixels = 0;  // kMultiples; kNearestAspect
  double max_aspect = 200;                      // long side over short side
  double max_size_aspect = 4;                   // kNearestAspect: the same of the sizes
  double rescale = 1.0 / 255.0;
  std::array<double, 3> mean = {0.5, 0.5, 0.5};
  std::array<double, 3> std = {0.5, 0.5, 0.5};

  bool operator==(const PreprocessPolicy&) const = default;
};

// What CLIP was trained with.
inline constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
inline constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};

struct VideoPolicy {
  PreprocessPolicy frame;        // gives one view of a frame
  std::int64_t view_frames = 1;  // frames of a view
  // Pixels of all frames of a view's depth together: many frames become smaller, down to 1.05 times
  // the policy's min_pixels. 0 = no matter how many. For ResizeMode::kMultiples.
  std::int64_t total_pixels = 0;
  bool halved = false;          // tokens of a frame are resized to half a side, rounded up
  bool newline_at_end = false;  // one more token after the last frame
  // Time ids go by the clock, so many a second, truncated; none = one a view.
  std::optional<double> ids_per_second;

  bool operator==(const VideoPolicy&) const = default;
};

// A policy for frames from that of images: tiles are not cut, the base view alone is shown.
PreprocessPolicy frame_policy(PreprocessPolicy image);

}  // namespace tessera
