// Inside of the codec folder: a bounds-checked cursor, the errors all readers share, and the one
// function of each format.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "vision/image/decoded_image.h"

namespace tessera::codec {

using Bytes = std::span<const std::uint8_t>;

inline constexpr const char* kFile = "E_PICTURE_FILE";
inline constexpr const char* kFormat = "E_PICTURE_FORMAT";
inline constexpr const char* kSize = "E_PICTURE_SIZE";
inline constexpr const char* kCut = "E_PICTURE_CUT";
inline constexpr const char* kData = "E_PICTURE_DATA";

[[noreturn]] void refuse(const char* code, std::string where, std::string expected,
                         std::string found);
std::string at_byte(std::size_t offset);

// Error kSize unless both sides and the area lie within the limits.
void check_size(std::uint64_t width, std::uint64_t height, const ImageLimits& limits,
                const std::string& where);

// Reads numbers from a file; a read past the end is Error kCut naming place and purpose.
class Cursor {
 public:
  explicit Cursor(Bytes data, std::size_t at = 0) : data_(data), at_(at) {}
  std::size_t at() const { return at_; }
  std::size_t left() const { return data_.size() - at_; }
  Bytes take(std::size_t count, const char* what);
  std::uint8_t u8(const char* what) { return take(1, what)[0]; }
  std::uint32_t le16(const char* what);
  std::uint32_t le24(const char* what);
  std::uint32_t le32(const char* what);
  std::uint32_t be32(const char* what);

 private:
  Bytes data_;
  std::size_t at_;
};

// The orientation tag (1..8) of the first directory of a TIFF structure; 0 if there is none that
// can be trusted, with a note when the structure is broken. Nothing else of it is followed.
int exif_orientation(Bytes tiff, std::vector<std::string>& notes);
// The image turned and mirrored so that orientation 1 remains (EXIF 2.32, 4.6.5).
DecodedImage upright(DecodedImage image, int orientation);

DecodedImage read_png(Bytes file, const ImageLimits& limits);
DecodedImage read_jpeg(Bytes file, const ImageLimits& limits);
DecodedImage read_webp(Bytes file, const ImageLimits& limits);
DecodedImage read_gif(Bytes file, const ImageLimits& limits);
DecodedImage read_bmp(Bytes file, const ImageLimits& limits);

}  // namespace tessera::codec
