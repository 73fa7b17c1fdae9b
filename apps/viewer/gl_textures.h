// Images as OpenGL textures. Needs a current context.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "apps/viewer/widgets.h"

namespace tessera {

// Owns one texture: enlarged pixels are squares, reduced ones are averaged.
class Texture {
 public:
  explicit Texture(const Image& image);
  ~Texture();
  Texture(Texture&& other) noexcept;
  Texture& operator=(Texture&&) = delete;
  unsigned int name() const { return name_; }

 private:
  unsigned int name_ = 0;
};

// One texture for each image that was drawn lately. Images beyond the device's limit are
// thinned until they fit.
class GlTextures final : public TextureSource {
 public:
  GlTextures();
  ImTextureID texture(const std::shared_ptr<const Image>& image) override;
  ImTextureID moving(const std::shared_ptr<const Image>& frame) override;
  // Once a frame: lets textures go that no frame used for a while.
  void end_frame();
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const Image> image;  // kept, so that its address names it
    Texture texture;
    std::uint64_t used = 0;  // frame
  };
  Texture made_of(const Image& image) const;

  std::map<const Image*, Entry> entries_;
  std::optional<Entry> moving_;
  std::uint64_t frame_ = 0;
  std::int64_t limit_ = 0;  // pixels a side
};

}  // namespace tessera
