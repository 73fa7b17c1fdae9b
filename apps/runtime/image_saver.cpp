#include "apps/runtime/image_saver.h"

#include <utility>

#include "apps/runtime/sha256.h"
#include "engine/core/io.h"
#include "vision/image/png.h"

namespace tessera {

void ImageSaver::on_image(GeneratedImage&& image) {
  SavedImage saved;
  if (image.status == ImageStatus::kDone) {
    const ImageTexts texts = image_texts(image.facts, record_);
    const std::string data = encode_png(image.image, texts.texts, texts.xmp);
    write_file_atomic(paths_[image.index], data);
    saved.sha256 = sha256_hex(data);
    if (!listener_.keeps_pixels()) image.image = {};
  }
  image.codes = {};
  const std::size_t index = image.index;
  saved.image = std::move(image);
  order_.add(index, std::move(saved),
             [&](SavedImage&& next) { listener_.on_saved(std::move(next)); });
}

void ImageSaver::on_over(bool whole) {
  whole_ = whole;
  order_.finish([&](SavedImage&& next) { listener_.on_saved(std::move(next)); });
}

}  // namespace tessera
