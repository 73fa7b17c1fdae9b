// What every visual tokenizer shares: previews, and bytes to the range of the networks.
#include "tokenizers/visual/visual_tokenizer.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera {

Tensor decode_partial(const VisualTokenizer& tokenizer, std::span<const std::int32_t> ids,
                      int ready, int rows, int cols) {
  expects(ready >= 0 && ready <= rows && cols > 0, "a preview has between none and all rows");
  const std::int64_t count = std::int64_t{ready} * cols;
  expects(std::ssize(ids) >= count, "a code for every ready place");
  const std::int64_t factor = tokenizer.factor();
  Tensor image = Tensor::host(DType::kF32, {rows * factor, cols * factor, 3});
  const std::int64_t known = ready * factor * cols * factor;  // pixels
  double mean[3] = {0.0, 0.0, 0.0};
  if (ready > 0) {
    const Tensor part = tokenizer.decode(ids.first(to_size(count)), ready, cols);
    std::copy_n(part.f32(), known * 3, image.f32());
    for (std::int64_t i = 0; i < known * 3; ++i) mean[i % 3] += part.f32()[i];
    for (double& channel : mean) channel /= to_double(known);
  }
  for (std::int64_t i = known * 3; i < image.shape().elements(); ++i) {
    image.f32()[i] = to_float(mean[i % 3]);
  }
  return image;
}

Tensor image_from_bytes(std::span<const std::uint8_t> rgb, std::int64_t height,
                        std::int64_t width) {
  expects(std::ssize(rgb) == height * width * 3, "three bytes a pixel");
  Tensor image = Tensor::host(DType::kF32, {height, width, 3});
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    image.f32()[i] = rgb[i] / 127.5f - 1.0f;
  }
  return image;
}

}  // namespace tessera
