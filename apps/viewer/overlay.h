// Colours of the token grid: what a token tells (pass, entropy, probability), as a heat map over
// the image, and the range that its legend names. Pure; no ImGui.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/studio/snapshot.h"
#include "apps/viewer/view_geometry.h"

namespace tessera {

enum class Overlay : std::uint8_t { kNone, kPass, kAccepted, kEntropy, kProbability, kVisual };
std::string_view overlay_name(Overlay overlay);  // "none", "pass", ..., "visual tokens"
// Empty for a name that is none of them.
std::optional<Overlay> overlay_of(std::string_view name);

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

// A calm ramp from dark blue through green to yellow: lightness grows all the way, so that it reads
// without colour vision. share is clamped to 0..1; NaN is 0.
Colour heat_colour(double share);

struct OverlayRange {
  double low = 0, high = 0;
  bool any = false;  // whether a token stands
  // Where a value lies in the range, 0..1; 0 when all values are equal.
  double share(double value) const;
};

// Whether it colours the tokens of a generated image: all but kNone and kVisual.
bool of_tokens(Overlay overlay);

// The tokens of a generated image, as overlays look at them. committed: how many was committed in each
// pass, from pass 1; empty = unknown.
struct TokenGrid {
  std::span<const TokenMark> marks;
  std::span<const std::int32_t> committed;
};
// Empty where nobody told of tokens.
TokenGrid tokens_of(const Generation& generation);

// What this overlay shows of one token of the grid. Expects of_tokens(overlay).
double overlay_value(const TokenGrid& grid, const TokenMark& mark, Overlay overlay);
// Over the tokens that stand. Probability is 0..1 always; the others span what is there.
OverlayRange overlay_range(const TokenGrid& grid, Overlay overlay);

// "row 3, column 5: code 1204, pass 17 with 4 tokens, probability 0.213, entropy 2.41".
std::string describe_token(const TokenGrid& grid, const TokenMark& mark, std::int64_t row,
                           std::int64_t column);

// The visual token at a share of the image (0..1), by the smallest tile that covers it.
struct VisualSpot {
  const VisualTile* tile = nullptr;
  std::int64_t row = 0, column = 0;
  bool kept = true;
  float score = 0;  // NaN = none
};
std::optional<VisualSpot> visual_token_at(const std::vector<VisualTile>& tiles, double x, double y);
std::string describe_visual_token(const VisualSpot& token);

// Where two images differ: |a - b| of each channel, `gain` times, black where they are equal. As
// large as both; empty when their sizes differ.
std::optional<Image> difference_image(const Image& a, const Image& b, int gain);

}  // namespace tessera
