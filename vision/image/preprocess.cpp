// Pixels of preprocessing: resize, pad, cut, normalise.
#include "vision/image/preprocess.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

namespace {

// `image` at (left, top) of a canvas of one colour; what lies outside the canvas is lost.
Image on_canvas(const Image& image, std::int64_t left, std::int64_t top, std::int64_t width,
                std::int64_t height, Rgb colour) {
  if (left == 0 && top == 0 && width == image.width && height == image.height) return image;
  Image out(width, height);
  for (std::size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = colour[i % 3];
  const std::int64_t from_x = std::max<std::int64_t>(-left, 0);
  const std::int64_t to_x = std::max<std::int64_t>(left, 0);
  const std::int64_t count = std::min(image.width - from_x, width - to_x);
  for (std::int64_t y = std::max<std::int64_t>(top, 0); y < height && y - top < image.height; ++y) {
    if (count > 0) std::copy_n(image.at(from_x, y - top), count * 3, out.at(to_x, y));
  }
  return out;
}

Image padded_to_square(const Image& image, Rgb colour) {
  const std::int64_t side = std::max(image.width, image.height);
  return on_canvas(image, (side - image.width) / 2, (side - image.height) / 2, side, side, colour);
}

Image resized(const PreprocessPolicy& policy, const PreprocessPlan& plan, const Image& image) {
  const auto to_size = [&](const Image& from) {
    return resize(from, plan.resized_width, plan.resized_height, policy.filter, policy.order);
  };
  if (policy.mode == ResizeMode::kPadToSquare) {
    return to_size(padded_to_square(image, policy.background));
  }
  if (plan.halvings > 0) {
    Image half = image;
    for (int i = 0; i < plan.halvings; ++i) {
      half = resize(half, half.width / 2, half.height / 2, ResampleFilter::kBox, policy.order);
    }
    return to_size(half);
  }
  if (plan.first_width == 0) return to_size(image);
  return to_size(resize(image, plan.first_width, plan.first_height, policy.filter, policy.order));
}

Image cut(const Image& image, std::int64_t left, std::int64_t top, std::int64_t width,
          std::int64_t height) {
  Image out(width, height);
  for (std::int64_t y = 0; y < height; ++y) {
    std::copy_n(image.at(left, top + y), width * 3, out.at(0, y));
  }
  return out;
}

}  // namespace

std::vector<Image> make_views(const PreprocessPolicy& policy, const PreprocessPlan& plan,
                              const Image& image) {
  expects(image.width == plan.width && image.height == plan.height, "a plan of this image");
  const Image whole = resized(policy, plan, image);
  // The margin of a cut is black, whatever the square was padded with.
  const Rgb margin = policy.mode == ResizeMode::kPadToSquare ? Rgb{} : policy.background;
  const Image canvas =
      on_canvas(whole, plan.left, plan.top, plan.canvas_width, plan.canvas_height, margin);
  if (plan.base == BaseView::kOnly) return {canvas};
  std::vector<Image> views;
  // LLaVA-NeXT squashes the image itself, Idefics3 the enlarged one.
  const Image& source = plan.base == BaseView::kFirst ? image : canvas;
  const Image base = resize(source, plan.view_width, plan.view_height, policy.filter, policy.order);
  if (plan.base == BaseView::kFirst) views.push_back(base);
  for (std::int64_t row = 0; row < plan.tiles.rows; ++row) {
    for (std::int64_t col = 0; col < plan.tiles.cols; ++col) {
      views.push_back(cut(canvas, col * plan.view_width, row * plan.view_height, plan.view_width,
                          plan.view_height));
    }
  }
  if (plan.base == BaseView::kLast) views.push_back(base);
  return views;
}

EncoderView normalise(const PreprocessPolicy& policy, const Image& view) {
  EncoderView out = {view.width, view.height, std::vector<float>(view.rgb.size()), 1};
  const std::size_t plane = view.rgb.size() / 3;
  for (std::size_t c = 0; c < 3; ++c) {
    float table[256];
    const auto mean = to_float(policy.mean[c]), std = to_float(policy.std[c]);
    for (int level = 0; level < 256; ++level) {
      table[level] = (to_float(level * policy.rescale) - mean) / std;
    }
    for (std::size_t i = 0; i < plane; ++i) out.values[c * plane + i] = table[view.rgb[3 * i + c]];
  }
  return out;
}

PreprocessedImage preprocess(const PreprocessPolicy& policy, const DecodedImage& decoded_image) {
  PreprocessedImage out;
  out.plan = plan_preprocess(policy, decoded_image.width, decoded_image.height);
  for (const Image& view : make_views(policy, out.plan, on_background(decoded_image, policy.after))) {
    out.views.push_back(normalise(policy, view));
  }
  return out;
}

std::vector<float> patch_rows(const PreprocessPolicy& policy, const EncoderView& view,
                              std::int64_t frames) {
  const std::int64_t patch = policy.patch, cell = patch * policy.merge;
  expects(frames > 0 && view.width % cell == 0 && view.height % cell == 0,
          "a view is a whole number of cells");
  expects(view.frames == 1 || view.frames == frames, "a still, or the frames of a row");
  const std::int64_t frame_size = view.frames == 1 ? 0 : 3 * view.height * view.width;
  std::vector<float> out;
  out.reserve(to_size(3 * view.height * view.width * frames));
  const auto append_patch = [&](std::int64_t left, std::int64_t top) {
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t t = 0; t < frames; ++t) {
        for (std::int64_t y = top; y < top + patch; ++y) {
          const float* row =
              view.values.data() + t * frame_size + (c * view.height + y) * view.width + left;
          out.insert(out.end(), row, row + patch);
        }
      }
    }
  };
  for (std::int64_t y = 0; y < view.height; y += cell) {
    for (std::int64_t x = 0; x < view.width; x += cell) {
      for (std::int64_t dy = 0; dy < cell; dy += patch) {
        for (std::int64_t dx = 0; dx < cell; dx += patch) append_patch(x + dx, y + dy);
      }
    }
  }
  return out;
}

}  // namespace tessera
