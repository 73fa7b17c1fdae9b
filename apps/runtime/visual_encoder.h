// From preprocessed images to rows of the language model, whatever makes them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/prune_session.h"
#include "engine/model/token_model.h"
#include "vision/encoder/tile_encoder.h"
#include "vision/image/preprocess.h"

namespace tessera {

struct VisualRows {
  VisualBlock block;        // of the rows, in reading order
  VisualBlock whole;        // the same before any pruning
  std::vector<float> rows;  // [tokens, D]
  std::int64_t width = 0;   // D
  std::int64_t total = 0;   // tokens before any pruning
  // Of all of those: number in the image, or (view, row, column) where the model has three axes.
  std::vector<std::array<std::int32_t, 3>> positions;
  // The same as places on the axes, see VisualLayout::offsets.
  std::vector<std::array<std::int32_t, 3>> offsets;
};

// What pruners may know of the encoder's side, for an image of so many views.
PrunedModel pruned_model_of(const VisionTower& tower, std::int64_t views);

// Error kUsage (E_PRUNE_FAMILY) for a method that works in or after an encoder whose patches are
// tokens in no image. Images whose map is resized are refused by encode().
void check_patch_method(const VisionTower& tower, const PruneSession& session);
// The same for an image: `always` where no image of the model would do, else E_PRUNE_PICTURE.
void refuse_patch_methods(const PruneSession& session, const std::string& family, bool always);
// Whether a token is never one patch of the encoder, whatever the image.
bool joins_patches(const VisionTower& tower);

// Rows for the newlines of a block, after the others are there; `newline` is empty where the model
// has none.
void place_newlines(VisualRows& out, std::span<const float> newline);

class VisualEncoder {
 public:
  virtual ~VisualEncoder() = default;

  // An image's tokens; `session` null prunes nothing. `seen` is the image's part of look(), if
  // that was called. Error kUsage (E_PRUNE_FAMILY) when the method works in or after an encoder
  // whose patches are no tokens.
  virtual VisualRows encode(const PreprocessedImage& image, bool three_axes, PruneSession* session,
                            std::optional<EncodedTiles> seen = {}) const = 0;

  // The encoder's part for several images, whose views run together; each image's result is
  // what it would be alone. Not for images that `watched()` says yes to. Empty: nothing runs
  // together.
  virtual std::vector<EncodedTiles> look(
      std::span<const PreprocessedImage* const> images) const = 0;
  // Of an image tokenizer: the ids of an image's tokens in the language model's vocabulary, ends of rows
  // among them. Else empty.
  virtual std::vector<std::int32_t> ids(const PreprocessedImage& /*image*/) const { return {}; }
  // Whether a method works in or right after the encoder, which then runs under its eyes.
  static bool watched(const PruneSession& session);
};

// Of the model's tower: a vision encoder with its projector, or an image tokenizer whose codes are
// rows of `text`'s table. `newline` [D] is the row after each row of tiles, or empty. What is given
// outlives it. Error kModel.
std::unique_ptr<VisualEncoder> load_visual_encoder(Backend& backend, const VisionTower& tower,
                                                   const std::string& config_file,
                                                   const Checkpoint& checkpoint,
                                                   std::vector<float> newline, DType storage,
                                                   const TokenModel& text);

}  // namespace tessera
