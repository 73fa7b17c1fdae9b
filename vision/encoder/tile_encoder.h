// The image half of a captioning model, ready to run: encoder and projector from one checkpoint.
// One call takes the normalised pixels of an image (its tiles, or frames) and gives rows for the
// language model, together with what pruners ask for; or the same in two steps, for selections
// between encoder and projector.
#pragma once

#include <string>
#include <vector>

#include "vision/encoder/projector.h"
#include "vision/encoder/tower_signals.h"
#include "engine/towers/vision_tower.h"

namespace tessera {

struct ImageOptions {
  std::vector<TowerRequest> signals;               // copied out of the run, all tiles together
  std::span<TowerObserver* const> observers = {};  // called after signals were taken
  bool proportional_attention = false;             // see EncodeOptions
  bool keep_class_token = false;
  // Tiles that run together, which takes memory; all of them when signals or observers are there.
  std::size_t at_once = 1;
};

struct EncodedTiles {
  std::vector<EncodedImage> tiles;
  // In the order of the requests. Rows of all tiles, one after the other; places tell which.
  std::vector<TowerSignal> signals;
};

// Where one tile's rows stand and what they show.
struct TileRows {
  RowRun rows;
  std::vector<std::int32_t> cells;  // number of each row's cell in raster order; -1: class token
  std::int64_t cell_rows = 0, cell_cols = 0;
  std::int64_t times = 1;
};

struct ImageFeatures {
  Tensor rows;  // [N, out_width] f32 on the device, tiles one after the other
  std::vector<TileRows> tiles;
  std::vector<TowerSignal> signals;
};

class ImageEncoder {
 public:
  // Weights are kept as encoder_storage() of `storage`; products are computed in f32. Backend and
  // nothing else must outlive the encoder. `config_file` is where the tower was read from, in messages.
  // Error kModel naming the tensors that are missing, wrong or surplus.
  ImageEncoder(Backend& backend, VisionTower tower, const std::string& config_file,
                 const Checkpoint& checkpoint, DType storage);

  // Rows and signals of each tile depend on that tile alone, bit for bit, whatever stands next to
  // it. Without signals and observers tiles run `at_once` by `at_once`, so that memory does not
  // grow with them. Error kUsage (E_VIT_PIXELS) for pixels that the encoder cannot take; no tiles:
  // no rows.
  ImageFeatures run(std::span<const EncoderInput> tiles,
                      const ImageOptions& options = {}) const;

  // The two halves of run().
  EncodedTiles encode(std::span<const EncoderInput> tiles,
                        const ImageOptions& options = {}) const;
  ImageFeatures project(EncodedTiles image) const;
  // Bare features [cells * patches of a cell, feature_width] that a selection left or made: [cells,
  // out_width].
  Tensor project_rows(ConstTensorView features) const;

  // Rows that an image of this shape gives when none is dropped. Errors as run().
  std::int64_t row_count(const Shape& pixels) const;
  // Columns of the rows: the width of the language model.
  std::int64_t out_width() const { return projector_.spec().out_width(); }

  const VisionTower& tower() const { return tower_; }
  const VitSpec& spec() const { return tower_.vit; }
  std::size_t weight_bytes() const { return encoder_.weight_bytes() + projector_.weight_bytes(); }

 private:
  // Error if the patches are no whole cells.
  VitGrid grid_of(const Shape& pixels) const;

  VisionTower tower_;
  VisionEncoder encoder_;
  Projector projector_;
};

}  // namespace tessera
