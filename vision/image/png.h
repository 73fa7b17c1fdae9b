// PNG files of our own: 8-bit RGB with text chunks and an XMP packet (PNG specification, third
// edition, 11.3.3; ISO 16684-1). Pixels go through libpng, text chunks through a reader and a
// writer of this file, which also reads the text of other programs' PNG files without touching
// pixels.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "vision/image/image.h"

namespace tessera {

struct PngText {
  std::string keyword;  // 1-79 Latin-1 characters
  std::string text;     // UTF-8 without NUL
};

// tEXt where the text is printable Latin-1, iTXt (UTF-8) otherwise; XMP as the iTXt chunk
// "XML:com.adobe.xmp". Equal input gives equal bytes.
std::string encode_png(const Image& image, std::span<const PngText> texts, std::string_view xmp);

// encode_png, then an atomic write. Error kStorage.
void save_png(const std::filesystem::path& path, const Image& image,
              std::span<const PngText> texts = {}, std::string_view xmp = {});

struct PngTexts {
  std::vector<PngText> texts;         // in file order, as UTF-8; XMP excluded
  std::string xmp;                    // empty if none
  std::vector<std::string> warnings;  // chunks that were left out, and why
};

// The text chunks of any PNG file. At most 64 chunks, 1 MiB each and 4 MiB in all after
// decompression; a chunk that breaks a limit or is malformed is left out with a warning. Error of
// the given kind (E_PNG_...) if the file cannot be read, is no PNG, is cut, or a chunk's CRC is
// wrong.
PngTexts read_png_texts(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kGeneral);
PngTexts parse_png_texts(std::string_view data, const std::string& file,
                         ErrorKind kind = ErrorKind::kGeneral);

// The pixels of a PNG file that this program wrote. Error kGeneral for anything that is not 8-bit
// RGB without interlacing, or larger than 16,384 pixels a side or 64 megapixels.
Image read_own_png(const std::filesystem::path& path);

// The XMP packet that marks an image as made by a model: IPTC DigitalSourceType
// trainedAlgorithmicMedia, with the program as CreatorTool.
std::string ai_media_xmp(std::string_view creator_tool);
// The last part of the DigitalSourceType URI of a packet, empty if it has none.
std::string digital_source_type(std::string_view xmp);

}  // namespace tessera
