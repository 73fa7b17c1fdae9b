#include "apps/runtime/encoded_images.h"

#include <algorithm>

#include "apps/runtime/sha256.h"

namespace tessera {

// The views' shapes are the plan's.
ImageKey key_of(const PreprocessedImage& image) {
  std::vector<std::span<const float>> views;
  for (const EncoderView& view : image.views) views.emplace_back(view.values);
  return sha256_half(views);
}

std::size_t EncodedImages::bytes_of(const Entry& entry) {
  const VisualRows& rows = entry.rows;
  return sizeof entry + rows.rows.size() * sizeof(float) +
         (rows.block.tokens.size() + rows.whole.tokens.size()) * sizeof(VisualToken) +
         (rows.positions.size() + rows.offsets.size()) * sizeof rows.positions[0];
}

const VisualRows* EncodedImages::find(const ImageKey& key, const PreprocessPlan& plan) {
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.key == key && entry.plan == plan;
  });
  if (at == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, at);
  return &entries_.front().rows;
}

void EncodedImages::add(const ImageKey& key, const PreprocessPlan& plan, const VisualRows& rows) {
  Entry entry{key, plan, rows};
  const std::size_t bytes = bytes_of(entry);
  if (bytes > room_) return;
  while (bytes_ + bytes > room_) {
    bytes_ -= bytes_of(entries_.back());
    entries_.pop_back();
  }
  entries_.push_front(std::move(entry));
  bytes_ += bytes;
}

}  // namespace tessera
