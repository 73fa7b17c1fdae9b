// Pixels to codes and back. A code is an index into the tokenizer's own codebook; nothing here
// knows the vocabulary of the language model that writes the codes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace tessera {

// How much of the graph is loaded: generating needs the way from codes to pixels only, describing the
// other one.
enum class TokenizerHalves : std::uint8_t { kDecoder, kEncoder, kBoth };

class VisualTokenizer {
 public:
  virtual ~VisualTokenizer() = default;

  // Number of codes V; ids are in [0, V).
  virtual std::int64_t codes() const = 0;
  // Pixels per code along one side.
  virtual int factor() const = 0;

  // image [H, W, 3] host f32, about [-1, 1]; H and W multiples of factor(). Returns H/f * W/f codes
  // in raster order. expects() that the encoder was loaded.
  virtual std::vector<std::int32_t> encode(ConstTensorView image) const = 0;

  // rows x cols codes in raster order -> image [rows f, cols f, 3] host f32, about [-1, 1] (not
  // clipped). expects() ids in range and that the decoder was loaded.
  virtual Tensor decode(std::span<const std::int32_t> ids, int rows, int cols) const = 0;

  // What decode() allocates at most next to the weights, in bytes, the image included.
  virtual std::size_t decode_scratch_bytes(int rows, int cols) const = 0;

  // Code vectors [V, D] as codes are looked up, on the host.
  virtual Tensor codebook() const = 0;

  // Float image [H, W, 3] to bytes by the family's rounding rule; NaN becomes 0.
  virtual std::vector<std::uint8_t> to_pixels(ConstTensorView image) const = 0;
};

// A preview: decodes the first `ready` rows of an image of rows x cols codes and fills the rest
// with the mean colour of what was decoded (gray if none). ids holds at least ready * cols codes.
// GroupNorm sees the whole map, so a preview's pixels are near the final ones, not equal to them.
Tensor decode_partial(const VisualTokenizer& tokenizer, std::span<const std::int32_t> ids,
                      int ready, int rows, int cols);

// RGB bytes [H, W, 3] -> f32 [H, W, 3] in [-1, 1]: byte / 127.5 - 1.
Tensor image_from_bytes(std::span<const std::uint8_t> rgb, std::int64_t height, std::int64_t width);

}  // namespace tessera
