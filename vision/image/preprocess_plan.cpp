// Geometry of preprocessing. Sides are computed in double precision with the operations and the
// order of the reference code: a pixel more or less changes every pixel of the result.
#include <algorithm>
#include <cmath>

#include "engine/core/index.h"
#include "vision/image/preprocess.h"

namespace tessera {

namespace {

double real(std::int64_t value) { return to_double(value); }
std::int64_t truncated(double value) { return truncate<std::int64_t>(value); }
std::int64_t ceiled(double value) { return truncate<std::int64_t>(std::ceil(value)); }
std::int64_t floored(double value) { return truncate<std::int64_t>(std::floor(value)); }
// Python's round(): halves to even, the default rounding direction.
std::int64_t rounded(double value) { return truncate<std::int64_t>(std::nearbyint(value)); }
// Python's int(round(value, 7)) for positive values: a value a hair below a whole number is it.
std::int64_t truncated_at_7_decimals(double value) {
  const double down = std::floor(value);
  return truncate<std::int64_t>(value - down > 1.0 - 0.5e-7 ? down + 1.0 : down);
}

void set_resized(PreprocessPlan& plan, std::int64_t width, std::int64_t height) {
  plan.resized_width = width;
  plan.resized_height = height;
}

void set_canvas(PreprocessPlan& plan, std::int64_t width, std::int64_t height) {
  plan.canvas_width = width;
  plan.canvas_height = height;
}

// One side x side view; the resized image centred on it.
void single_view(const PreprocessPolicy& policy, PreprocessPlan& plan, std::int64_t width,
                 std::int64_t height) {
  set_resized(plan, width, height);
  set_canvas(plan, policy.side, policy.side);
  // Towards zero: both the margin of padding and that of cropping are rounded down.
  plan.left = (policy.side - width) / 2;
  plan.top = (policy.side - height) / 2;
  plan.view_width = plan.view_height = policy.side;
}

// The reference's cut of the centre: what is too small gets a black margin, the larger half of an
// odd one before it.
void cut_centre(const PreprocessPolicy& policy, PreprocessPlan& plan, std::int64_t width,
                std::int64_t height) {
  single_view(policy, plan, width, height);
  if (width < policy.side) plan.left = (policy.side - width + 1) / 2;
  if (height < policy.side) plan.top = (policy.side - height + 1) / 2;
}

void plan_resized(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  const auto of = [&](std::int64_t side) { return side > 0 ? side : policy.side; };
  cut_centre(policy, plan, of(policy.resize_width), of(policy.resize_height));
}

void plan_shortest_side(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  const std::int64_t side = policy.resize_height > 0 ? policy.resize_height : policy.side;
  const std::int64_t w = plan.width, h = plan.height;
  const double longer = real(std::max(w, h)), shorter = real(std::min(w, h));
  const std::int64_t other = policy.rounding == SideRounding::kTruncate
                                 ? truncated(real(side) * longer / shorter)
                                 : rounded(real(side) / shorter * longer);
  cut_centre(policy, plan, w <= h ? side : other, w <= h ? other : side);
}

void plan_longest_side(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  const double longest = real(std::max(plan.width, plan.height)), side = real(policy.side);
  const auto scaled = [&](std::int64_t length) {
    const std::int64_t out = policy.rounding == SideRounding::kTruncate
                                 ? truncated(real(length) / longest * side)
                                 : rounded(real(length) * (side / longest));
    return std::max(out, policy.shortest);
  };
  // A side can end a pixel short of the canvas by rounding; never beyond it.
  single_view(policy, plan, std::min(scaled(plan.width), policy.side),
              std::min(scaled(plan.height), policy.side));
}

// The grid that keeps most pixels; of equal ones the one that wastes least, then the first.
Tiling best_grid(const PreprocessPolicy& policy, std::int64_t width, std::int64_t height) {
  expects(!policy.pinpoints.empty(), "a policy with pinpoints lists some");
  Tiling best = policy.pinpoints.front();
  std::int64_t most = -1, min_waste = 0;
  for (const Tiling& grid : policy.pinpoints) {
    const std::int64_t grid_width = grid.cols * policy.side, grid_height = grid.rows * policy.side;
    const double scale = std::min(real(grid_width) / real(width), real(grid_height) / real(height));
    const std::int64_t area = truncated(real(width) * scale) * truncated(real(height) * scale);
    const std::int64_t kept = std::min(area, width * height);
    const std::int64_t waste = grid_width * grid_height - kept;
    if (kept > most || (kept == most && waste < min_waste)) {
      best = grid;
      most = kept;
      min_waste = waste;
    }
  }
  return best;
}

// The rows and columns of the joint token map that show the image, not its padding.
void unpad_map(PreprocessPlan& plan) {
  const std::int64_t rows = plan.tiles.rows * plan.view_rows;
  const std::int64_t cols = plan.tiles.cols * plan.view_cols;
  const double w = real(plan.width), h = real(plan.height);
  plan.map_rows = rows;
  plan.map_cols = cols;
  if (w / h > real(cols) / real(rows)) {
    const std::int64_t shown = truncated_at_7_decimals(h * (real(cols) / w));
    plan.map_top = (rows - shown) / 2;
    plan.map_rows = rows - 2 * plan.map_top;
  } else {
    const std::int64_t shown = truncated_at_7_decimals(w * (real(rows) / h));
    plan.map_left = (cols - shown) / 2;
    plan.map_cols = cols - 2 * plan.map_left;
  }
}

// LLaVA-OneVision's anyres_max: maps far above the budget are shrunk with their aspect ratio.
void shrink_map(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  plan.packed_rows = plan.map_rows;
  plan.packed_cols = plan.map_cols;
  if (policy.max_map_tiles == 0) return;
  const double rows = real(plan.map_rows), cols = real(plan.map_cols);
  const double budget = real(policy.max_map_tiles * plan.view_rows * plan.view_cols);
  const double times = std::sqrt(rows * cols / budget);
  if (times <= 1.1) return;
  plan.packed_rows = std::max(floored(rows / times), std::int64_t{1});
  plan.packed_cols = std::max(floored(cols / times), std::int64_t{1});
}

void plan_pinpoints(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  plan.tiles = best_grid(policy, plan.width, plan.height);
  const std::int64_t width = plan.tiles.cols * policy.side, height = plan.tiles.rows * policy.side;
  const double across = real(width) / real(plan.width), down = real(height) / real(plan.height);
  if (across < down) {
    set_resized(plan, width, std::min(ceiled(real(plan.height) * across), height));
  } else {
    set_resized(plan, std::min(ceiled(real(plan.width) * down), width), height);
  }
  set_canvas(plan, width, height);
  plan.left = (width - plan.resized_width) / 2;
  plan.top = (height - plan.resized_height) / 2;
  plan.view_width = plan.view_height = policy.side;
  plan.base = BaseView::kFirst;
}

void plan_multiples(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  const std::int64_t unit = policy.patch * policy.merge;
  const double w = real(plan.width), h = real(plan.height), u = real(unit);
  std::int64_t width = rounded(w / u) * unit, height = rounded(h / u) * unit;
  if (width * height > policy.max_pixels) {
    const double shrink = std::sqrt(h * w / real(policy.max_pixels));
    width = std::max(unit, floored(w / shrink / u) * unit);
    height = std::max(unit, floored(h / shrink / u) * unit);
  } else if (width * height < policy.min_pixels) {
    const double grow = std::sqrt(real(policy.min_pixels) / (h * w));
    width = ceiled(w * grow / u) * unit;
    height = ceiled(h * grow / u) * unit;
  }
  set_resized(plan, width, height);
  set_canvas(plan, width, height);
  plan.view_width = width;
  plan.view_height = height;
}

struct Size {
  std::int64_t width, height;
};

// Along the border of what fits, from the widest to the highest; of equally near ones the wider.
Size nearest_aspect(const PreprocessPolicy& policy, double w, double h) {
  const std::int64_t cells = policy.max_pixels / (policy.side * policy.side);
  Size best = {};
  double nearest = -1;
  for (std::int64_t across = cells, down = 1; across > 0;) {
    const double aspect = real(std::max(across, down)) / real(std::min(across, down));
    if (aspect <= policy.max_size_aspect) {
      const Size size{across * policy.side, down * policy.side};
      const double x = real(size.width) / w, y = real(size.height) / h;
      const double near = std::min(x, y) / std::max(x, y);
      const bool wider = size.width > best.width ||
                         (size.width == best.width && size.height > best.height);
      if (near > nearest || (near == nearest && wider)) {
        best = size;
        nearest = near;
      }
    }
    (down + 1) * across <= cells ? ++down : --across;
  }
  return best;
}

void plan_nearest_aspect(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  const Size size = nearest_aspect(policy, real(plan.width), real(plan.height));
  std::int64_t w = plan.width, h = plan.height;
  for (; w >= 2 * size.width && h >= 2 * size.height; ++plan.halvings) {
    w /= 2;
    h /= 2;
  }
  const double scale = std::max(real(size.width) / real(w), real(size.height) / real(h));
  set_resized(plan, rounded(real(w) * scale), rounded(real(h) * scale));
  set_canvas(plan, size.width, size.height);
  // The authors' code draws the place of the cut.
  plan.left = -((plan.resized_width - size.width) / 2);
  plan.top = -((plan.resized_height - size.height) / 2);
  plan.view_width = size.width;
  plan.view_height = size.height;
}

// Both steps of the first resize of Idefics3: longest side to `longest`, the other one even; then,
// if it is beyond the cap, down to the cap.
Size tiled_base_size(const PreprocessPolicy& policy, std::int64_t width, std::int64_t height) {
  const auto even = [](std::int64_t value) { return value + value % 2; };
  const auto fit = [](std::int64_t w, std::int64_t h, std::int64_t longest) -> Size {
    const double aspect = real(w) / real(h);
    if (w >= h) return {longest, truncated(real(longest) / aspect)};
    return {truncated(real(longest) * aspect), longest};
  };
  if (policy.resize_height > 0) return {policy.resize_width, policy.resize_height};
  if (policy.longest == 0) return {width, height};
  Size out = fit(width, height, policy.longest);
  (width >= height ? out.height : out.width) = even(width >= height ? out.height : out.width);
  out = {std::max<std::int64_t>(out.width, 1), std::max<std::int64_t>(out.height, 1)};
  if (std::max(out.width, out.height) > policy.longest_cap) {
    out = fit(out.width, out.height, policy.longest_cap);
  }
  return {std::max<std::int64_t>(out.width, 1), std::max<std::int64_t>(out.height, 1)};
}

void plan_tiles(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  const Size base = tiled_base_size(policy, plan.width, plan.height);
  if (policy.longest > 0 || policy.resize_height > 0) {
    plan.first_width = base.width;
    plan.first_height = base.height;
  }
  plan.view_width = plan.view_height = policy.side;
  if (!policy.split) {
    set_resized(plan, policy.side, policy.side);
    set_canvas(plan, policy.side, policy.side);
    return;
  }
  const double aspect = real(base.width) / real(base.height);
  const auto whole = [&](std::int64_t length) {
    return std::max<std::int64_t>(ceiled(real(length) / real(policy.side)), 1) * policy.side;
  };
  Size size = {};
  if (base.width >= base.height) {
    size.width = whole(base.width);
    size.height = whole(truncated(real(size.width) / aspect));
  } else {
    size.height = whole(base.height);
    size.width = whole(truncated(real(size.height) * aspect));
  }
  set_resized(plan, size.width, size.height);
  set_canvas(plan, size.width, size.height);
  if (size.width > policy.side || size.height > policy.side) {
    plan.tiles = {size.height / policy.side, size.width / policy.side};
    plan.base = BaseView::kLast;
  }
}

void count_tokens(const PreprocessPolicy& policy, PreprocessPlan& plan) {
  const std::int64_t cell = policy.patch * policy.merge;
  plan.view_rows = plan.view_height / cell;
  plan.view_cols = plan.view_width / cell;
  plan.views = plan.tiles.rows * plan.tiles.cols + 1;
  if (plan.base == BaseView::kFirst) {
    unpad_map(plan);
    shrink_map(policy, plan);
    plan.newlines = plan.packed_rows;
    plan.tokens = plan.view_rows * plan.view_cols + plan.packed_rows * (plan.packed_cols + 1);
    return;
  }
  plan.row_newlines = policy.newline_each_row;
  plan.newlines = plan.row_newlines ? plan.view_rows : policy.newline_at_end ? 1 : 0;
  plan.tokens = plan.views * plan.view_rows * plan.view_cols + plan.newlines;
}

}  // namespace

PreprocessPlan plan_preprocess(const PreprocessPolicy& policy, std::int64_t width,
                               std::int64_t height) {
  expects(width > 0 && height > 0, "an image has pixels");
  if (real(std::max(width, height)) / real(std::min(width, height)) > policy.max_aspect) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_PICTURE_ASPECT",
                 .expected = "a long side of at most " +
                             std::to_string(truncated(policy.max_aspect)) + " times the short one",
                 .found = std::to_string(width) + "x" + std::to_string(height)});
  }
  PreprocessPlan plan;
  plan.width = width;
  plan.height = height;
  switch (policy.mode) {
    case ResizeMode::kStretch:
    case ResizeMode::kPadToSquare:
      plan_resized(policy, plan);
      break;
    case ResizeMode::kShortestSide:
      plan_shortest_side(policy, plan);
      break;
    case ResizeMode::kLongestSide:
      plan_longest_side(policy, plan);
      break;
    case ResizeMode::kPinpoints:
      plan_pinpoints(policy, plan);
      break;
    case ResizeMode::kMultiples:
      plan_multiples(policy, plan);
      break;
    case ResizeMode::kNearestAspect:
      plan_nearest_aspect(policy, plan);
      break;
    case ResizeMode::kTiles:
      plan_tiles(policy, plan);
      break;
  }
  count_tokens(policy, plan);
  return plan;
}

}  // namespace tessera
