// Rows of images that were encoded lately, by their pixels: an image that comes again, in the next
// question of a conversation or from another client, is not encoded again. What was given up first
// is what was not asked for longest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>

#include "apps/runtime/visual_encoder.h"
#include "vision/image/preprocess.h"

namespace tessera {

// Half of the SHA-256 of the pixels of all views.
using ImageKey = std::array<std::uint64_t, 2>;
ImageKey key_of(const PreprocessedImage& image);

class EncodedImages {
 public:
  // Holds so many bytes of rows at most; 0 = none.
  explicit EncodedImages(std::size_t bytes) : room_(bytes) {}

  bool keeps() const { return room_ > 0; }
  // Of an image that no method watches in the encoder; null = unknown. Until the next add().
  const VisualRows* find(const ImageKey& key, const PreprocessPlan& plan);
  // It was not there.
  void add(const ImageKey& key, const PreprocessPlan& plan, const VisualRows& rows);
  std::size_t bytes() const { return bytes_; }
  void clear() {
    entries_.clear();
    bytes_ = 0;
  }

 private:
  struct Entry {
    ImageKey key;
    PreprocessPlan plan;
    VisualRows rows;
  };
  static std::size_t bytes_of(const Entry& entry);

  std::size_t room_, bytes_ = 0;
  std::list<Entry> entries_;  // the one that was asked for last is the first
};

}  // namespace tessera
