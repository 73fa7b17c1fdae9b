// Encoder and projector, one after the other.
#include "vision/encoder/tile_encoder.h"

#include <algorithm>

#include "vision/encoder/row_views.h"

namespace tessera {

namespace {

VisionTower checked(VisionTower tower, const Checkpoint& checkpoint) {
  locate_tower(tower, checkpoint);
  check_tower_tensors(tower, checkpoint);
  return tower;
}

}  // namespace

ImageEncoder::ImageEncoder(Backend& backend, VisionTower tower, const std::string& config_file,
                               const Checkpoint& checkpoint, DType storage)
    : tower_(checked(std::move(tower), checkpoint)),
      encoder_(backend, tower_.vit, checkpoint, storage, config_file),
      projector_(backend, tower_.projector, checkpoint, storage) {}

EncodedTiles ImageEncoder::encode(std::span<const EncoderInput> tiles,
                                      const ImageOptions& options) const {
  TowerRecorder recorder(options.signals);
  std::vector<TowerObserver*> observers;
  if (!options.signals.empty()) observers.push_back(&recorder);
  observers.insert(observers.end(), options.observers.begin(), options.observers.end());
  const EncodeOptions encode{.observers = observers,
                             .proportional_attention = options.proportional_attention,
                             .keep_class_token = options.keep_class_token};
  const std::size_t at_once =
      std::max(observers.empty() ? options.at_once : tiles.size(), std::size_t{1});
  EncodedTiles out;
  for (std::size_t first = 0; first < tiles.size(); first += at_once) {
    const auto part = tiles.subspan(first, std::min(at_once, tiles.size() - first));
    std::int64_t patches = 0;
    for (const EncoderInput& tile : part) patches += grid_of(tile.pixels.shape).patches();
    Arena arena = make_arena(encoder_.backend(),
                             VisionEncoder::scratch_bytes(spec(), patches, std::ssize(part)));
    for (EncodedImage& image : encoder_.encode(part, arena, encode)) {
      out.tiles.push_back(std::move(image));
    }
  }
  out.signals = recorder.take();
  return out;
}

ImageFeatures ImageEncoder::project(EncodedTiles decoded_image) const {
  Backend& backend = encoder_.backend();
  std::vector<ProjectedImage> projected;
  ImageFeatures out;
  std::int64_t count = 0;
  for (const EncodedImage& tile : decoded_image.tiles) {
    Arena arena =
        make_arena(backend, Projector::scratch_bytes(projector_.spec(), tile.features.shape()[0]));
    projected.push_back(projector_.project(tile, arena));
    ProjectedImage& last = projected.back();
    const std::int64_t rows = last.rows.shape()[0];
    out.tiles.push_back({.rows = {count, count + rows},
                         .cells = std::move(last.cells),
                         .cell_rows = last.cell_rows,
                         .cell_cols = last.cell_cols,
                         .times = tile.grid.times});
    count += rows;
  }
  out.rows = backend.allocate(DType::kF32, {count, out_width()});
  for (std::size_t i = 0; i < projected.size(); ++i) {
    const RowRun& rows = out.tiles[i].rows;
    backend.copy(projected[i].rows.view(), rows_of(out.rows.view(), rows.begin, rows.count()));
  }
  out.signals = std::move(decoded_image.signals);
  return out;
}

ImageFeatures ImageEncoder::run(std::span<const EncoderInput> tiles,
                                    const ImageOptions& options) const {
  return project(encode(tiles, options));
}

Tensor ImageEncoder::project_rows(ConstTensorView features) const {
  expects(features.shape.rank() == 2, "features are [rows, C]");
  Arena arena = make_arena(encoder_.backend(),
                           Projector::scratch_bytes(projector_.spec(), features.shape[0]));
  return projector_.project_rows(features, arena);
}

VitGrid ImageEncoder::grid_of(const Shape& pixels) const {
  const std::int64_t cell = projector_.spec().cell;
  const VitGrid grid = vit_grid(spec(), pixels);
  if (grid.rows % cell != 0 || grid.cols % cell != 0) {
    throw Error{{.kind = ErrorKind::kUsage,
                 .code = "E_VIT_PIXELS",
                 .where = "image of the encoder",
                 .expected = "sides of a multiple of " + std::to_string(cell) + " patches of " +
                             std::to_string(spec().patch) + " pixels",
                 .found = pixels.to_string()}};
  }
  return grid;
}

std::int64_t ImageEncoder::row_count(const Shape& pixels) const {
  const std::int64_t cell = projector_.spec().cell;
  return grid_of(pixels).patches() / (cell * cell) + (spec().class_token_feature ? 1 : 0);
}

}  // namespace tessera
