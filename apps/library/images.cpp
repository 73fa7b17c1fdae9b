#include "apps/library/images.h"

#include <tessera/request.h>

#include "apps/library/guard.h"
#include "apps/runtime/facts.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "vision/image/png.h"

namespace tessera {

namespace {
constexpr std::int64_t kMaxSide = 16384;
}

Image internal_image(api::Image image, const std::string& what) {
  const bool sides =
      image.width >= 1 && image.width <= kMaxSide && image.height >= 1 && image.height <= kMaxSide;
  if (!sides || image.rgb.size() != to_size(image.width * image.height * 3)) {
    throw Error(
        {.kind = ErrorKind::kUsage,
         .code = "E_IMAGE_SIZE",
         .where = what,
         .expected = "width x height x 3 bytes, sides from 1 to " + std::to_string(kMaxSide),
         .found = std::to_string(image.width) + "x" + std::to_string(image.height) + " with " +
                  std::to_string(image.rgb.size()) + " bytes"});
  }
  return {image.width, image.height, std::move(image.rgb)};
}

api::Image public_image(Image&& image) { return {image.width, image.height, std::move(image.rgb)}; }

// As `tessera generate` writes it.
std::string encode_with_record(const api::GeneratedImage& made, const std::string& what) {
  const auto facts = parse_facts(made.record, "record of an image", ErrorKind::kUsage);
  const ImageTexts texts = image_texts(facts, RecordFacts::kAll);
  return encode_png(internal_image(made.image, what), texts.texts, texts.xmp);
}

}  // namespace tessera

namespace tessera_v0 {

void Image::save_png(const std::filesystem::path& path) const {
  tessera::guarded([&] { tessera::save_png(path, tessera::internal_image(*this, path.string())); });
}

std::string Image::png() const {
  return tessera::guarded(
      [&] { return tessera::encode_png(tessera::internal_image(*this, "image"), {}, {}); });
}

std::string GeneratedImage::png() const {
  return tessera::guarded([&] { return tessera::encode_with_record(*this, "image"); });
}

void GeneratedImage::save_png(const std::filesystem::path& path) const {
  tessera::guarded(
      [&] { tessera::write_file_atomic(path, tessera::encode_with_record(*this, path.string())); });
}

}  // namespace tessera_v0
