// Magic bytes, limits and errors that every image format shares.
#include "vision/codec/decode.h"

#include <algorithm>
#include <cctype>

#include "engine/core/index.h"
#include "vision/codec/readers.h"

namespace tessera {

namespace codec {

void refuse(const char* code, std::string where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::string at_byte(std::size_t offset) { return "byte " + std::to_string(offset); }

void check_size(std::uint64_t width, std::uint64_t height, const ImageLimits& limits,
                const std::string& where) {
  const bool sides = width >= 1 && height >= 1 && width <= limits.side && height <= limits.side;
  if (sides && width * height <= limits.pixels) return;
  refuse(kSize, where,
         "sides of 1-" + std::to_string(limits.side) + " pixels and at most " +
             std::to_string(limits.pixels) + " pixels in all",
         std::to_string(width) + "x" + std::to_string(height));
}

Bytes Cursor::take(std::size_t count, const char* what) {
  if (count > data_.size() - at_) {
    refuse(kCut, at_byte(at_), std::to_string(count) + " bytes of " + what,
           std::to_string(data_.size() - at_) + " bytes");
  }
  const Bytes out = data_.subspan(at_, count);
  at_ += count;
  return out;
}

std::uint32_t Cursor::le16(const char* what) {
  const Bytes b = take(2, what);
  return narrow<std::uint32_t>(b[0] | b[1] << 8);
}

std::uint32_t Cursor::le24(const char* what) {
  const Bytes b = take(3, what);
  return narrow<std::uint32_t>(b[0] | b[1] << 8 | b[2] << 16);
}

std::uint32_t Cursor::le32(const char* what) {
  const Bytes b = take(4, what);
  return b[0] | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 | std::uint32_t{b[3]} << 24;
}

std::uint32_t Cursor::be32(const char* what) {
  const Bytes b = take(4, what);
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
}

}  // namespace codec

namespace {

using codec::Bytes;

bool has(Bytes file, std::size_t at, std::string_view text) {
  if (file.size() < at + text.size()) return false;
  return std::equal(text.begin(), text.end(), file.begin() + to_index(at),
                    [](char a, std::uint8_t b) { return byte_of(a) == b; });
}

struct Magic {
  std::size_t at;
  std::string_view bytes;
  std::string_view name;
};

using namespace std::string_view_literals;

// The five that are read come first; the others only make the refusal clearer.
constexpr Magic kMagics[] = {
    {0, "\x89PNG\r\n\x1a\n"sv, "PNG"},
    {0, "\xff\xd8\xff"sv, "JPEG"},
    {8, "WEBP"sv, "WebP"},
    {0, "GIF87a"sv, "GIF"},
    {0, "GIF89a"sv, "GIF"},
    {0, "BM"sv, "BMP"},
    {0, "II*\0"sv, "TIFF"},
    {0, "MM\0*"sv, "TIFF"},
    {0, "\0\0\0\x0cjP  \r\n\x87\n"sv, "JPEG 2000"},
    {0, "\xff\x4f\xff\x51"sv, "JPEG 2000"},
    {0, "\xff\x0a"sv, "JPEG XL"},
    {4, "JXL \r\n\x87\n"sv, "JPEG XL"},
    {4, "ftypavif"sv, "AVIF"},
    {4, "ftypheic"sv, "HEIF"},
    {4, "ftypmif1"sv, "HEIF"},
    {4, "ftyp"sv, "MP4"},
    {0, "\x1a\x45\xdf\xa3"sv, "Matroska"},
    {0, "%PDF"sv, "PDF"},
    {0, "8BPS"sv, "Photoshop"},
    {0, "\0\0\1\0"sv, "ICO"},
    {0, "qoif"sv, "QOI"},
    {0, "\x76\x2f\x31\x01"sv, "OpenEXR"},
    {0, "#?RADIANCE"sv, "Radiance HDR"},
    {0, "DDS "sv, "DDS"},
    {0, "PK\x03\x04"sv, "ZIP"},
    {0, "\x1f\x8b"sv, "gzip"},
    {0,
     "\x7f"
     "ELF"sv,
     "ELF"},
    {0, "<svg"sv, "SVG"},
    {0, "<?xml"sv, "XML"},
    {0, "<!DOCTYPE"sv, "HTML"},
    {0, "<html"sv, "HTML"},
};

bool is_text(Bytes file) {
  const Bytes head = file.first(std::min<std::size_t>(file.size(), 64));
  return std::all_of(head.begin(), head.end(), [](std::uint8_t c) {
    return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
  });
}

// An excerpt of an unknown file for the message: "bytes 4a 4b ...".
std::string first_bytes(Bytes file) {
  std::string out = "bytes";
  for (const std::uint8_t byte : file.first(std::min<std::size_t>(file.size(), 8))) {
    out += ' ';
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

}  // namespace

std::string_view sniff_image(std::span<const std::uint8_t> file) {
  for (const Magic& magic : kMagics) {
    if (!has(file, magic.at, magic.bytes)) continue;
    if (magic.name == "WebP" && !has(file, 0, "RIFF")) continue;
    return magic.name;
  }
  return !file.empty() && is_text(file) ? "text" : "";
}

DecodedImage decode_image(std::span<const std::uint8_t> file, const ImageLimits& limits) {
  if (file.empty()) codec::refuse(codec::kFile, "", "an image", "an empty file");
  if (file.size() > limits.file_bytes) {
    codec::refuse(codec::kFile, "", "at most " + std::to_string(limits.file_bytes) + " bytes",
                  std::to_string(file.size()) + " bytes");
  }
  const std::string_view name = sniff_image(file);
  if (name == "PNG") return codec::read_png(file, limits);
  if (name == "JPEG") return codec::read_jpeg(file, limits);
  if (name == "WebP") return codec::read_webp(file, limits);
  if (name == "GIF") return codec::read_gif(file, limits);
  if (name == "BMP") return codec::read_bmp(file, limits);
  codec::refuse(codec::kFormat, codec::at_byte(0), "PNG, JPEG, WebP, GIF or BMP",
                name.empty() ? first_bytes(file) : std::string(name));
}

}  // namespace tessera
