// Heat maps over the token grid, visual tokens, and the difference of two images.
#include "apps/viewer/overlay.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "engine/core/index.h"

namespace tessera {

namespace {

struct OverlayName {
  Overlay overlay;
  std::string_view name;
};
constexpr OverlayName kNames[] = {{Overlay::kNone, "none"},
                                  {Overlay::kPass, "pass"},
                                  {Overlay::kAccepted, "accepted"},
                                  {Overlay::kEntropy, "entropy"},
                                  {Overlay::kProbability, "probability"},
                                  {Overlay::kVisual, "visual"}};

constexpr Colour kRamp[] = {{38, 20, 78},   {58, 64, 138},  {44, 110, 148},
                            {38, 150, 136}, {108, 190, 92}, {248, 230, 70}};

}  // namespace

std::string_view overlay_name(Overlay overlay) {
  for (const OverlayName& row : kNames) {
    if (row.overlay == overlay) return row.name;
  }
  return "";
}

std::optional<Overlay> overlay_of(std::string_view name) {
  for (const OverlayName& row : kNames) {
    if (row.name == name) return row.overlay;
  }
  return std::nullopt;
}

Colour heat_colour(double share) {
  if (!(share > 0)) return kRamp[0];
  constexpr auto kSteps = std::size(kRamp) - 1;
  const double at = std::min(share, 1.0) * to_double(kSteps);
  const auto step = std::min(static_cast<std::size_t>(at), kSteps - 1);
  const double part = at - to_double(step);
  const auto mix = [part](std::uint8_t low, std::uint8_t high) {
    return low_bits<std::uint8_t>(std::lround(low + (high - low) * part));
  };
  const Colour &a = kRamp[step], &b = kRamp[step + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

double OverlayRange::share(double value) const {
  return high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0;
}

bool of_tokens(Overlay overlay) { return overlay != Overlay::kNone && overlay != Overlay::kVisual; }

TokenGrid tokens_of(const Generation& generation) {
  TokenGrid grid;
  if (generation.marks != nullptr) grid.marks = *generation.marks;
  if (generation.committed != nullptr) grid.committed = *generation.committed;
  return grid;
}

namespace {
// Of the pass that froze the token; 0 = unknown.
std::int32_t accepted_with(const TokenGrid& grid, const TokenMark& mark) {
  const auto pass = to_size(mark.pass);
  return mark.pass >= 1 && pass <= grid.committed.size() ? grid.committed[pass - 1] : 0;
}
}  // namespace

double overlay_value(const TokenGrid& grid, const TokenMark& mark, Overlay overlay) {
  switch (overlay) {
    case Overlay::kPass:
      return mark.pass;
    case Overlay::kAccepted:
      return accepted_with(grid, mark);
    case Overlay::kEntropy:
      return std::max(0.0f, mark.entropy);  // rounding may leave it just below
    case Overlay::kProbability:
      return mark.probability;
    case Overlay::kNone:
    case Overlay::kVisual:
      break;
  }
  expects(false, "this overlay shows a value of a token");
  return 0;
}

OverlayRange overlay_range(const TokenGrid& grid, Overlay overlay) {
  OverlayRange out;
  for (const TokenMark& mark : grid.marks) {
    if (mark.id < 0) continue;
    const double value = overlay_value(grid, mark, overlay);
    out.low = out.any ? std::min(out.low, value) : value;
    out.high = out.any ? std::max(out.high, value) : value;
    out.any = true;
  }
  if (overlay == Overlay::kProbability) {
    out.low = 0;
    out.high = 1;
  }
  return out;
}

std::string describe_token(const TokenGrid& grid, const TokenMark& mark, std::int64_t row,
                           std::int64_t column) {
  char text[200], with[40] = "";
  const std::int32_t accepted = accepted_with(grid, mark);
  if (accepted > 0) {
    std::snprintf(with, sizeof with, " with %d %s", accepted, accepted == 1 ? "token" : "tokens");
  }
  if (mark.id < 0) {
    std::snprintf(text, sizeof text, "row %" PRId64 ", column %" PRId64 ": not there yet", row,
                  column);
  } else {
    std::snprintf(text, sizeof text,
                  "row %" PRId64 ", column %" PRId64
                  ": code %d, pass %d%s, probability %.3f, entropy %.2f",
                  row, column, mark.id, mark.pass, with, double{mark.probability},
                  std::max(0.0, double{mark.entropy}));
  }
  return text;
}

std::optional<VisualSpot> visual_token_at(const std::vector<VisualTile>& tiles, double x,
                                          double y) {
  const VisualTile* best = nullptr;
  for (const VisualTile& tile : tiles) {
    const bool inside = x >= tile.left && x < tile.left + tile.width && y >= tile.top &&
                        y < tile.top + tile.height && tile.rows > 0 && tile.columns > 0;
    if (inside && (best == nullptr || tile.width * tile.height < best->width * best->height)) {
      best = &tile;
    }
  }
  if (best == nullptr) return std::nullopt;
  VisualSpot out;
  out.tile = best;
  const auto cell = [](double share, std::int64_t count) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(share * to_double(count)), 0,
                                    count - 1);
  };
  out.row = cell((y - best->top) / best->height, best->rows);
  out.column = cell((x - best->left) / best->width, best->columns);
  const auto index = to_size(out.row * best->columns + out.column);
  out.kept = index >= best->kept.size() || best->kept[index] != 0;
  out.score = index < best->scores.size() ? best->scores[index] : std::nanf("");
  return out;
}

std::string describe_visual_token(const VisualSpot& token) {
  char text[120];
  const char* outcome = token.kept ? "kept" : "pruned";
  if (std::isnan(token.score)) {
    std::snprintf(text, sizeof text, "visual token row %" PRId64 ", column %" PRId64 ": %s",
                  token.row, token.column, outcome);
  } else {
    std::snprintf(text, sizeof text,
                  "visual token row %" PRId64 ", column %" PRId64 ": %s, score %.3f", token.row,
                  token.column, outcome, double{token.score});
  }
  return text;
}

std::optional<Image> difference_image(const Image& a, const Image& b, int gain) {
  if (a.width != b.width || a.height != b.height) return std::nullopt;
  Image out(a.width, a.height);
  for (std::size_t i = 0; i < out.rgb.size(); ++i) {
    const int apart = std::abs(int{a.rgb[i]} - int{b.rgb[i]}) * gain;
    out.rgb[i] = low_bits<std::uint8_t>(std::min(apart, 255));
  }
  return out;
}

}  // namespace tessera
