// Decoding of strangers' image files: PNG, JPEG, WebP, GIF, BMP, chosen by their first bytes and
// never by a name. Linked into the sandboxed reader process only; the program asks it through
// vision/image/image_reader.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "vision/image/decoded_image.h"

namespace tessera {

// What the first bytes say: one of the five formats, the name of another known one ("TIFF", "PDF",
// "text" ...), or empty.
std::string_view sniff_image(std::span<const std::uint8_t> file);

// The first frame, upright (EXIF orientation applied). Gray becomes RGB, CMYK is converted, 16 bits
// are cut to the upper 8, palettes are resolved; transparency gives RGBA. Metadata that cannot be
// read is left out with a note. Errors, all of kind kGeneral:
//   E_PICTURE_FILE    empty, or over limits.file_bytes
//   E_PICTURE_FORMAT  not one of the five formats, or a variant of one that is not read
//   E_PICTURE_SIZE    a side or the area breaks a limit; nothing was allocated
//   E_PICTURE_CUT     the file ends before the image does: never a half-grey image
//   E_PICTURE_DATA    damaged
DecodedImage decode_image(std::span<const std::uint8_t> file, const ImageLimits& limits = {});

}  // namespace tessera
