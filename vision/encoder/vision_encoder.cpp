// Pre-norm transformer layers over the rows of one image, and what comes before and after them.
#include "vision/encoder/vision_encoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/index.h"
#include "engine/nn/pass_views.h"
#include "engine/nn/rope_table.h"
#include "engine/ops/host_access.h"
#include "vision/encoder/row_views.h"

namespace tessera {

namespace {

VitSpec checked(const VitSpec& spec, const std::string& file) {
  check_vit_spec(spec, file);
  return spec;
}

}  // namespace

VisionEncoder::VisionEncoder(Backend& backend, const VitSpec& spec, const Checkpoint& checkpoint,
                             DType storage, const std::string& file)
    : backend_(&backend),
      spec_(checked(spec, file)),
      weights_(load_vit_weights(backend, spec, checkpoint, storage)) {}

std::size_t VisionEncoder::scratch_bytes(const VitSpec& spec, std::int64_t patches,
                                         std::int64_t images) {
  const std::int64_t n = patches + (spec.class_token ? images : 0);
  const std::int64_t wide = spec.gated() ? 3 * spec.mlp_width : spec.mlp_width;
  std::size_t layers = 4 * matrix_bytes(n, spec.width) + matrix_bytes(n, spec.heads) +
                       matrix_bytes(n, 1) + 2 * 64 + matrix_bytes(std::min(n, kMlpRows), wide);
  if (spec.positions == VitPositions::kRotary2d) {
    layers += 2 * matrix_bytes(n, spec.head_dim() / 2);
  }
  if (!spec.taps.empty()) layers += matrix_bytes(n, spec.feature_width());
  const std::size_t patch = matrix_bytes(patches, spec.patch_inputs());
  return 2 * matrix_bytes(n, spec.width) + std::max(layers, patch);
}

struct VisionEncoder::Run {
  Arena& arena;
  std::vector<VitGrid> grids;  // of each image
  EncoderRows rows;
  TensorView delta;   // [rows, C] what attention or MLP add
  TensorView bias;    // [rows]
  TensorView tapped;  // [rows, feature_width], or empty
};

std::vector<EncodedImage> VisionEncoder::encode(std::span<const EncoderInput> images,
                                                Arena& arena, const EncodeOptions& options) const {
  const std::size_t mark = arena.used();
  Run run{.arena = arena};
  EncoderRows& rows = run.rows;
  std::int32_t frames = 0, windows = 0;  // groups so far
  for (const EncoderInput& image : images) {
    const bool padded = image.filled_height != 0 || image.filled_width != 0;
    expects(!padded || spec_.positions == VitPositions::kBuckets,
            "padding is for encoders with bucketed positions");
    run.grids.push_back(
        vit_grid(spec_, image.pixels.shape, image.filled_height, image.filled_width));
    for (VitPlace place : vit_places(spec_, run.grids.back())) {
      place.image = narrow<std::int32_t>(run.grids.size() - 1);
      place.frame_group += frames;
      place.window_group += windows;
      rows.places.push_back(place);
    }
    frames = rows.places.back().frame_group + 1;
    windows = rows.places.back().window_group + 1;
  }
  if (images.empty()) return {};
  rows.sizes.assign(rows.places.size(), 1.0f);
  const std::int64_t n = rows.count();
  rows.x = arena.take(DType::kF32, {n, spec_.width});
  rows.spare = arena.take(DType::kF32, {n, spec_.width});
  embed(images, run);
  run.delta = arena.take(DType::kF32, {n, spec_.width});
  const Shape heads{n, spec_.heads, spec_.head_dim()};
  rows.q = arena.take(DType::kF32, heads);
  rows.k = arena.take(DType::kF32, heads);
  rows.v = arena.take(DType::kF32, heads);
  rows.log_sums = arena.take(DType::kF32, {n, spec_.heads});
  run.bias = arena.take(DType::kF32, {n});
  if (!spec_.taps.empty()) run.tapped = arena.take(DType::kF32, {n, spec_.feature_width()});
  if (spec_.positions == VitPositions::kRotary2d) make_rotary(run);
  tap(0, run);
  for (std::int64_t layer = 0; layer < spec_.run_layers; ++layer) {
    run_layer(layer, options, run);
    tap(layer + 1, run);
  }
  std::vector<EncodedImage> out =
      finish(spec_.class_token_feature || options.keep_class_token, run);
  arena.rewind(mark);
  return out;
}

EncodedImage VisionEncoder::encode(const EncoderInput& image, Arena& arena,
                                   const EncodeOptions& options) const {
  std::vector<EncodedImage> all = encode({&image, 1}, arena, options);
  return std::move(all.front());
}

void VisionEncoder::embed(std::span<const EncoderInput> images, Run& run) const {
  EncoderRows& rows = run.rows;
  std::vector<std::int32_t> ids;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const VitGrid& grid = run.grids[i];
    const std::int64_t first = row;
    if (spec_.class_token) {
      const std::int64_t slot = row++;
      ops::store_rows(*backend_, weights_.class_token.f32(), spec_.width, {&slot, 1},
                      heads_of(rows.x, 1));
    }
    const std::size_t mark = run.arena.used();
    const TensorView patches = run.arena.take(DType::kF32, {grid.patches(), spec_.patch_inputs()});
    const std::span<const VitPlace> places(rows.places.data() + first,
                                           to_size(row - first + grid.patches()));
    HostDraft pixels(*backend_, patches);
    vit_patches(spec_, places, images[i].pixels, pixels.f32());
    pixels.send();
    apply(*backend_, weights_.patch, patches, rows_of(rows.x, row, grid.patches()));
    run.arena.rewind(mark);
    row += grid.patches();
    if (weights_.positions.empty()) continue;
    const std::vector<std::int32_t> own = vit_position_rows(spec_, grid, places);
    ids.insert(ids.end(), own.begin(), own.end());
  }
  if (!ids.empty()) {
    ops::embedding(*backend_, weights_.positions.view(), ids, rows.spare);
    ops::add(*backend_, rows.x, rows.spare, rows.x);
  }
  if (!weights_.first_norm.weight.empty()) {
    apply(*backend_, weights_.first_norm, rows.x, rows.spare);
    std::swap(rows.x, rows.spare);
  }
}

void VisionEncoder::make_rotary(Run& run) const {
  EncoderRows& rows = run.rows;
  std::vector<GridPlace> places;
  for (const VitPlace& place : rows.places) places.push_back({place.row, place.col});
  const Shape table{rows.count(), spec_.head_dim() / 2};
  rows.cos = run.arena.take(DType::kF32, table);
  rows.sin = run.arena.take(DType::kF32, table);
  HostDraft cos(*backend_, rows.cos), sin(*backend_, rows.sin);
  fill_grid_rope(places, spec_.rope_theta, spec_.head_dim(), cos.f32(), sin.f32());
  cos.send();
  sin.send();
}

void VisionEncoder::run_layer(std::int64_t layer, const EncodeOptions& options, Run& run) const {
  EncoderRows& rows = run.rows;
  // Buffers have room for all rows that the images began with.
  const std::int64_t n = rows.count();
  rows.q = rows_of(rows.q, 0, n);
  rows.k = rows_of(rows.k, 0, n);
  rows.v = rows_of(rows.v, 0, n);
  rows.log_sums = rows_of(rows.log_sums, 0, n);
  rows.key_bias = {};
  bool biased = false;
  const TensorView bias = rows_of(run.bias, 0, n);
  HostDraft values(*backend_, bias);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = to_size(i);
    float value = 0.0f;
    if (rows.places[at].padding) {
      value = std::numeric_limits<float>::lowest();
    } else if (options.proportional_attention) {
      value = std::log(rows.sizes[at]);
    }
    values.f32()[i] = value;
    biased = biased || value != 0.0f;
  }
  if (biased) {
    values.send();
    rows.key_bias = bias;
  }
  attend(layer, rows_of(run.delta, 0, n), rows);
  LayerState state(*backend_, spec_, layer, rows);
  for (TowerObserver* observer : options.observers) observer->after_attention(state);
  const VitLayerWeights& weights = nth(weights_.layers, layer);
  run_mlp(weights, rows_of(run.delta, 0, rows.count()), run.arena, rows);
  for (TowerObserver* observer : options.observers) observer->after_layer(state);
}

void VisionEncoder::attend(std::int64_t layer, TensorView delta, EncoderRows& rows) const {
  const VitLayerWeights& weights = nth(weights_.layers, layer);
  const Shape flat = rows.x.shape;
  const auto matrix = [&](TensorView heads) {
    heads.shape = flat;
    return heads;
  };
  apply(*backend_, weights.norm1, rows.x, rows.spare);
  apply(*backend_, weights.q, rows.spare, matrix(rows.q));
  apply(*backend_, weights.k, rows.spare, matrix(rows.k));
  apply(*backend_, weights.v, rows.spare, matrix(rows.v));
  if (!rows.cos.empty()) {
    ops::rope(*backend_, rows.q, rows.cos, rows.sin, RopePairing::kHalfSplit);
    ops::rope(*backend_, rows.k, rows.cos, rows.sin, RopePairing::kHalfSplit);
  }
  std::vector<AttentionSegment> segments;
  for (const RowRun& run : attention_runs(rows.places, spec_.has_window(layer))) {
    AttentionSegment segment;
    segment.rows = run.end - run.begin;
    segment.keys = rows_of(rows.k, run.begin, segment.rows);
    segment.values = rows_of(rows.v, run.begin, segment.rows);
    segment.row_begin = run.begin;
    segment.first_visible = segment.rows;
    segment.causal = false;
    if (!rows.key_bias.empty()) {
      segment.key_bias = {
          DType::kF32, {segment.rows}, rows.key_bias.f32() + run.begin, rows.key_bias.device};
    }
    segments.push_back(segment);
  }
  ops::attention(*backend_, {.q = rows.q,
                             .out = heads_of(rows.spare, spec_.heads),
                             .segments = segments,
                             .scale = 1.0f / std::sqrt(to_float(spec_.head_dim())),
                             .log_sum = rows.log_sums});
  apply_add(*backend_, weights.out, rows.spare, rows.x, delta);
}

void VisionEncoder::run_mlp(const VitLayerWeights& weights, TensorView delta, Arena& arena,
                            EncoderRows& rows) const {
  apply(*backend_, weights.norm2, rows.x, rows.spare);
  for (std::int64_t first = 0; first < rows.count(); first += kMlpRows) {
    const std::size_t mark = arena.used();
    const std::int64_t n = std::min(kMlpRows, rows.count() - first);
    const TensorView in = rows_of(rows.spare, first, n);
    const TensorView wide = arena.take(DType::kF32, {n, weights.mlp_in.weight.n});
    apply(*backend_, weights.mlp_in, in, wide);
    TensorView active = wide;
    switch (spec_.activation) {
      case VitActivation::kGelu:
        ops::gelu(*backend_, wide, wide);
        break;
      case VitActivation::kGeluTanh:
        ops::gelu_tanh(*backend_, wide, wide);
        break;
      case VitActivation::kQuickGelu:
        ops::quick_gelu(*backend_, wide, wide);
        break;
      case VitActivation::kSiluGated:
        active = arena.take(DType::kF32, {n, spec_.mlp_width});
        ops::silu_mul(*backend_, wide, active);
        break;
    }
    apply_add(*backend_, weights.mlp_out, active, rows_of(rows.x, first, n),
              rows_of(delta, first, n));
    arena.rewind(mark);
  }
}

void VisionEncoder::tap(std::int64_t layers, Run& run) const {
  const auto taps = std::ssize(spec_.taps);
  const std::int64_t rows = run.rows.count();
  for (std::int64_t i = 0; i < taps; ++i) {
    if (nth(spec_.taps, i) != layers) continue;
    // The columns of one tap of one row are a row of their own.
    std::vector<std::int64_t> slots(to_size(rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      nth(slots, row) = row * taps + i;
    }
    const TensorView columns{
        DType::kF32, {rows * taps, 1, spec_.width}, run.tapped.data, run.tapped.device};
    ops::store_rows(*backend_, run.rows.x.f32(), spec_.width, slots, columns);
  }
}

std::vector<EncodedImage> VisionEncoder::finish(bool with_class_token, Run& run) const {
  EncoderRows& rows = run.rows;
  if (!weights_.final_norm.weight.empty()) {
    apply(*backend_, weights_.final_norm, rows.x, rows.spare);
    std::swap(rows.x, rows.spare);
  }
  const TensorView source = spec_.taps.empty() ? rows.x : run.tapped;
  std::vector<EncodedImage> all;
  for (const RowRun& image : image_runs(rows.places)) {
    const auto place_of = [&](std::int32_t row) -> const VitPlace& {
      return nth(rows.places, row);
    };
    std::vector<std::int32_t> order;
    for (auto row = narrow<std::int32_t>(image.begin); row < image.end; ++row) {
      if (with_class_token || place_of(row).id >= 0) order.push_back(row);
    }
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return place_of(a).id < place_of(b).id; });
    EncodedImage out;
    out.grid = nth(run.grids, place_of(narrow<std::int32_t>(image.begin)).image);
    out.features = backend_->allocate(DType::kF32, {std::ssize(order), spec_.feature_width()});
    ops::embedding(*backend_, source, order, out.features.view());
    for (const std::int32_t row : order) {
      out.places.push_back(place_of(row));
      out.sizes.push_back(nth(rows.sizes, row));
    }
    all.push_back(std::move(out));
  }
  return all;
}

}  // namespace tessera
