// Texture upload and cache.
#include "apps/viewer/gl_textures.h"

#include <backends/imgui_impl_opengl3_loader.h>

#include <algorithm>
#include <utility>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::uint64_t kKeptFrames = 90;

Image thinned(const Image& image, std::int64_t limit) {
  const std::int64_t step = (std::max(image.width, image.height) + limit - 1) / limit;
  Image out((image.width + step - 1) / step, (image.height + step - 1) / step);
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      std::copy_n(image.at(x * step, y * step), 3, out.at(x, y));
    }
  }
  return out;
}

}  // namespace

Texture::Texture(const Image& image) {
  glGenTextures(1, &name_);
  glBindTexture(GL_TEXTURE_2D, name_);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_LINEAR);
  glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, 0x2600 /* GL_NEAREST */);
  constexpr GLenum kClampToEdge = 0x812f;
  glTexParameteri(GL_TEXTURE_2D, 0x2802 /* GL_TEXTURE_WRAP_S */, kClampToEdge);
  glTexParameteri(GL_TEXTURE_2D, 0x2803 /* GL_TEXTURE_WRAP_T */, kClampToEdge);
  // Rows of pixels follow each other without gaps.
  glPixelStorei(0x0cf5 /* GL_UNPACK_ALIGNMENT */, 1);
  glTexImage2D(GL_TEXTURE_2D, 0, 0x1907 /* GL_RGB */, narrow<GLsizei>(image.width),
               narrow<GLsizei>(image.height), 0, 0x1907 /* GL_RGB */, GL_UNSIGNED_BYTE,
               image.rgb.data());
}

Texture::~Texture() {
  if (name_ != 0) glDeleteTextures(1, &name_);
}

Texture::Texture(Texture&& other) noexcept : name_(std::exchange(other.name_, 0)) {}

GlTextures::GlTextures() {
  GLint limit = 0;
  glGetIntegerv(0x0d33 /* GL_MAX_TEXTURE_SIZE */, &limit);
  limit_ = std::max<std::int64_t>(limit, 64);
}

ImTextureID GlTextures::texture(const std::shared_ptr<const Image>& image) {
  if (image == nullptr || image->rgb.empty()) return nullptr;
  auto found = entries_.find(image.get());
  if (found == entries_.end()) {
    Entry entry{image, made_of(*image), frame_};
    found = entries_.emplace(image.get(), std::move(entry)).first;
  }
  found->second.used = frame_;
  return reinterpret_cast<ImTextureID>(std::uintptr_t{found->second.texture.name()});
}

Texture GlTextures::made_of(const Image& image) const {
  const bool fits = std::max(image.width, image.height) <= limit_;
  return fits ? Texture(image) : Texture(thinned(image, limit_));
}

// The frame before is let go at once: it was drawn already.
ImTextureID GlTextures::moving(const std::shared_ptr<const Image>& frame) {
  if (frame == nullptr || frame->rgb.empty()) return nullptr;
  if (!moving_ || moving_->image != frame) {
    moving_.reset();
    moving_.emplace(Entry{frame, made_of(*frame), frame_});
  }
  moving_->used = frame_;
  return reinterpret_cast<ImTextureID>(std::uintptr_t{moving_->texture.name()});
}

void GlTextures::end_frame() {
  ++frame_;
  if (moving_ && frame_ > moving_->used + 1) moving_.reset();
  std::erase_if(entries_,
                [this](const auto& entry) { return frame_ > entry.second.used + kKeptFrames; });
}

}  // namespace tessera
