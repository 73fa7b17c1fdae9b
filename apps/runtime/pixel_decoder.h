// Codes to images, for all submissions of a task: previews are decoded on threads of their own
// where the device has a stream for that, and a tokenizer serves one caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/core/index.h"
#include "tokenizers/visual/visual_tokenizer.h"
#include "vision/image/image.h"

namespace tessera {

class PixelDecoder {
 public:
  // `stream`: what the tokenizer computes on, where that is not the model's; else null. Grids have
  // rows x columns codes.
  PixelDecoder(std::unique_ptr<Backend> stream, std::unique_ptr<const VisualTokenizer> tokenizer,
               std::size_t rows, std::size_t columns)
      : stream_(std::move(stream)),
        tokenizer_(std::move(tokenizer)),
        rows_(narrow<int>(rows)),
        columns_(narrow<int>(columns)) {}

  // Whether it may run next to a pass of the model.
  bool apart() const { return stream_ != nullptr; }
  int rows() const { return rows_; }
  int columns() const { return columns_; }

  // From any thread. All rows * columns codes.
  Image decode(std::span<const std::int32_t> codes) const {
    const std::lock_guard alone(mutex_);
    return image_of(tokenizer_->decode(codes, rows_, columns_));
  }
  // The first rows, see decode_partial().
  Image decode_first(std::span<const std::int32_t> codes, std::int64_t rows) const {
    const std::lock_guard alone(mutex_);
    return image_of(decode_partial(*tokenizer_, codes, narrow<int>(rows), rows_, columns_));
  }
  Tensor codebook() const {
    const std::lock_guard alone(mutex_);
    return tokenizer_->codebook();
  }

 private:
  Image image_of(const Tensor& pixels) const {
    return {pixels.shape()[1], pixels.shape()[0], tokenizer_->to_pixels(pixels.view())};
  }

  std::unique_ptr<Backend> stream_;
  std::unique_ptr<const VisualTokenizer> tokenizer_;
  int rows_, columns_;
  mutable std::mutex mutex_;
};

}  // namespace tessera
