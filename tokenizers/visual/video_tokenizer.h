// Tokenizers of videos: frames become grids of codes one after another, as a stream, and grids
// become frames. What a grid stands for depends on nothing after it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tokenizers/visual/visual_tokenizer.h"

namespace tessera {

// Frames in, grids of codes out.
class GridEncoder {
 public:
  virtual ~GridEncoder() = default;
  // image [H, W, 3] host f32, about [-1, 1]. With the last frame of a grid its codes, [H/f * W/f]
  // in raster order.
  virtual std::optional<std::vector<std::int32_t>> push(ConstTensorView image) = 0;
};

// Grids of codes in, frames out.
class GridDecoder {
 public:
  virtual ~GridDecoder() = default;
  // rows x cols codes -> the first `wanted` of the grid's frames, [rows f, cols f, 3] host f32.
  virtual std::vector<Tensor> next(std::span<const std::int32_t> ids, int wanted) = 0;
};

class VideoTokenizer : public VisualTokenizer {
 public:
  // Of frames of height x width pixels, multiples of factor(); the tokenizer outlives it and has
  // both halves.
  virtual std::unique_ptr<GridEncoder> video_encoder(int height, int width) const = 0;
  // The tokenizer outlives it.
  virtual std::unique_ptr<GridDecoder> video_decoder(int rows, int cols) const = 0;
};

}  // namespace tessera
