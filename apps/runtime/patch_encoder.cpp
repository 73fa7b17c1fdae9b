#include "apps/runtime/patch_encoder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "apps/runtime/encoder_pruning.h"
#include "engine/core/index.h"
#include "vision/encoder/feature_map.h"

namespace tessera {

namespace {

std::vector<EncoderInput> inputs_of(const PreprocessedImage& decoded_image) {
  std::vector<EncoderInput> inputs;
  for (const EncoderView& view : decoded_image.views) {
    const Shape shape = view.frames == 1 ? Shape{3, view.height, view.width}
                                         : Shape{view.frames, 3, view.height, view.width};
    inputs.push_back({.pixels = {DType::kF32, shape, view.values.data(), Device{}}});
  }
  return inputs;
}

}  // namespace

PatchEncoder::PatchEncoder(Backend& backend, const VisionTower& tower,
                           const std::string& config_file, const Checkpoint& checkpoint,
                           std::vector<float> newline, DType storage)
    : backend_(backend),
      encoder_(backend, tower, config_file, checkpoint, storage),
      newline_(std::move(newline)) {}

std::vector<float> PatchEncoder::host_floats(const Tensor& tensor) const {
  Tensor host = Tensor::host(DType::kF32, tensor.shape());
  backend_.download(tensor.view(), host.view());
  backend_.synchronize();
  const float* data = host.view().f32();
  return {data, data + host.shape().elements()};
}

std::vector<EncodedTiles> PatchEncoder::look(
    std::span<const PreprocessedImage* const> decoded_images) const {
  constexpr std::size_t kViewsAtOnce = 4;
  std::vector<EncoderInput> inputs;
  for (const PreprocessedImage* decoded_image : decoded_images) {
    const std::vector<EncoderInput> own = inputs_of(*decoded_image);
    inputs.insert(inputs.end(), own.begin(), own.end());
  }
  EncodedTiles all = encoder_.encode(inputs, {.at_once = kViewsAtOnce});
  std::vector<EncodedTiles> out;
  auto next = std::make_move_iterator(all.tiles.begin());
  for (const PreprocessedImage* decoded_image : decoded_images) {
    const auto end = next + std::ssize(decoded_image->views);
    out.emplace_back().tiles.assign(next, end);
    next = end;
  }
  return out;
}

VisualRows PatchEncoder::encode(const PreprocessedImage& decoded_image, bool three_axes,
                                PruneSession* session, std::optional<EncodedTiles> seen) const {
  const VitSpec& vit = encoder_.spec();
  const std::int64_t cell = encoder_.tower().projector.cell;
  const VisualLayout layout =
      layout_of(decoded_image.plan, {.three_axes = three_axes,
                                     .class_token = vit.class_token,
                                     .class_token_feature = vit.class_token_feature,
                                     .merge = cell});
  const bool always = joins_patches(encoder_.tower()), whole = always || layout.resampled;
  if (whole && session != nullptr) {
    refuse_patch_methods(*session, encoder_.tower().family, always);
  }
  VisualRows out;
  out.block = out.whole = layout.block;
  out.total = layout.block.count();
  out.width = encoder_.out_width();
  out.offsets = layout.offsets;
  for (const VisualToken& token : out.block.tokens) out.positions.push_back(token.position);
  std::unique_ptr<EncoderPruning> pruning;
  TowerObserver* observer = nullptr;
  ImageOptions options;
  if (session != nullptr && !whole && watched(*session)) {
    expects(!seen, "a method that works in the encoder sees it run");
    pruning = std::make_unique<EncoderPruning>(*session, vit, layout.encoder);
    observer = pruning.get();
    options.observers = {&observer, 1};
    options.proportional_attention = pruning->merges();
  }
  EncodedTiles images =
      seen ? std::move(*seen) : encoder_.encode(inputs_of(decoded_image), options);
  if (whole && layout.resampled && decoded_image.plan.video) {
    out.rows = project_frames(std::move(images), decoded_image.plan, layout);
  } else if (whole) {
    out.rows = project_whole(std::move(images), decoded_image.plan, layout);
  } else {
    std::vector<float> features = joined_features(images.tiles, out.block);
    const Hook after{HookPoint::kAfterEncoder};
    const std::int64_t width = vit.feature_width();
    if (pruning != nullptr && session->asks(after)) {
      const PrunePlan plan = pruning->select_after(after, out.block);
      PrunedBlock pruned = apply(plan, out.block, {features.data(), out.block.count(), width});
      out.block = std::move(pruned.block);
      features = std::move(pruned.features);
    }
    const Shape shape{out.block.count(), width};
    Tensor on_device = backend_.allocate(DType::kF32, shape);
    backend_.upload({DType::kF32, shape, features.data(), Device{}}, on_device.view());
    out.rows = host_floats(encoder_.project_rows(on_device.view()));
  }
  place_newlines(out, newline_);
  return out;
}

// Features in the order of the block, which loses the tokens that left inside the encoder. Newlines
// have rows of zeros.
std::vector<float> PatchEncoder::joined_features(const std::vector<EncodedImage>& images,
                                                 VisualBlock& block) const {
  const std::int64_t width = encoder_.spec().feature_width();
  struct Row {
    const float* values = nullptr;
    float size = 1;
  };
  std::map<std::tuple<int, int, int>, Row> row_of;
  std::vector<std::vector<float>> host;
  for (std::size_t view = 0; view < images.size(); ++view) {
    const EncodedImage& image = images[view];
    const std::vector<float>& rows = host.emplace_back(host_floats(image.features));
    for (std::size_t i = 0; i < image.places.size(); ++i) {
      const VitPlace& place = image.places[i];
      row_of[{narrow<int>(view), place.row, place.col}] = {rows.data() + to_index(i) * width,
                                                           image.sizes[i]};
    }
  }
  std::vector<float> out;
  std::vector<VisualToken> left;
  for (const VisualToken& token : block.tokens) {
    if (token.kind != TokenKind::kPatch) {
      out.resize(out.size() + to_size(width));
      left.push_back(token);
      continue;
    }
    const auto found = row_of.find({token.tile, token.row, token.column});
    if (found == row_of.end()) continue;
    out.insert(out.end(), found->second.values, found->second.values + width);
    left.push_back(token);
    left.back().size = found->second.size;
  }
  block.tokens = std::move(left);
  return out;
}

// Projects every view and takes the tokens from there; resizes the map of tiles where the plan says
// so.
std::vector<float> PatchEncoder::project_whole(EncodedTiles images, const PreprocessPlan& plan,
                                               const VisualLayout& layout) const {
  const std::int64_t width = encoder_.out_width();
  const ImageFeatures projected = encoder_.project(std::move(images));
  const std::vector<float> rows = host_floats(projected.rows);
  const std::int64_t first_patch = encoder_.spec().class_token_feature ? 1 : 0;
  const auto row_of = [&](std::int64_t view, std::int64_t row, std::int64_t col) {
    const TileRows& tile = nth(projected.tiles, view);
    return rows.data() + (tile.rows.begin + first_patch + row * plan.view_cols + col) * width;
  };
  Tensor map;
  if (layout.resampled) {
    std::vector<float> shown;
    for (std::int64_t y = plan.map_top; y < plan.map_top + plan.map_rows; ++y) {
      for (std::int64_t x = plan.map_left; x < plan.map_left + plan.map_cols; ++x) {
        const std::int64_t view = 1 + y / plan.view_rows * plan.tiles.cols + x / plan.view_cols;
        const float* row = row_of(view, y % plan.view_rows, x % plan.view_cols);
        shown.insert(shown.end(), row, row + width);
      }
    }
    map = resize_map(
        {DType::kF32, Shape{plan.map_rows * plan.map_cols, width}, shown.data(), Device{}},
        {plan.map_rows, plan.map_cols}, {plan.packed_rows, plan.packed_cols});
  }
  std::vector<float> out;
  for (const VisualToken& token : layout.block.tokens) {
    if (token.kind == TokenKind::kNewline) {
      out.resize(out.size() + to_size(width));
      continue;
    }
    const float* row = nullptr;
    if (token.kind == TokenKind::kCls) {
      row = rows.data() + nth(projected.tiles, token.tile).rows.begin * width;
    } else if (layout.resampled && token.map_row >= 0) {
      row = map.view().f32() + (token.map_row * plan.packed_cols + token.map_column) * width;
    } else {
      row = row_of(token.tile, token.row, token.column);
    }
    out.insert(out.end(), row, row + width);
  }
  return out;
}

// Projects every frame and resizes its tokens, one frame at a time.
std::vector<float> PatchEncoder::project_frames(EncodedTiles images, const PreprocessPlan& plan,
                                                const VisualLayout& layout) const {
  expects(!encoder_.spec().class_token_feature, "frames without class tokens are resized");
  const std::int64_t width = encoder_.out_width();
  const MapSize from{plan.view_rows, plan.view_cols}, to{plan.packed_rows, plan.packed_cols};
  std::vector<float> out;
  for (EncodedImage& image : images.tiles) {
    EncodedTiles one;
    one.tiles.push_back(std::move(image));
    const std::vector<float> rows = host_floats(encoder_.project(std::move(one)).rows);
    const Tensor map =
        resize_map({DType::kF32, Shape{from.places(), width}, rows.data(), Device{}}, from, to);
    out.insert(out.end(), map.view().f32(), map.view().f32() + to.places() * width);
  }
  out.resize(to_size(layout.block.count() * width));  // newlines come later
  return out;
}

}  // namespace tessera
