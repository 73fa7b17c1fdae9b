// Image files for tests: the stored ones, and builders for those no common program writes.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace tessera {

inline std::string golden_image(const std::string& name) {
  const auto path = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/image/files" / name;
  std::string bytes = get_file(path);
  expects(!bytes.empty(), "the stored image is there");
  return bytes;
}

inline std::span<const std::uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline std::string le16(std::uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8)};
}
inline std::string le32(std::uint32_t value) { return le16(value) + le16(value >> 16); }
inline std::string be32(std::uint32_t value) {
  const std::string le = le32(value);
  return {le.rbegin(), le.rend()};
}

// ---- PNG

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return be32(static_cast<std::uint32_t>(data.size())) + body +
         be32(static_cast<std::uint32_t>(crc));
}

inline std::string png_header(std::uint32_t width, std::uint32_t height, int depth, int type,
                              int interlace = 0) {
  return png_chunk("IHDR", be32(width) + be32(height) + static_cast<char>(depth) +
                               static_cast<char>(type) + std::string(2, '\0') +
                               static_cast<char>(interlace));
}

inline std::string deflated(const std::string& data, int level = 6) {
  uLongf size = compressBound(static_cast<uLong>(data.size()));
  std::string out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size,
            reinterpret_cast<const Bytef*>(data.data()), static_cast<uLong>(data.size()), level);
  out.resize(size);
  return out;
}

inline const std::string kPngSignature("\x89PNG\r\n\x1a\n", 8);

// Chunks between the signature and IEND.
inline std::string png_file(const std::string& chunks) {
  return kPngSignature + chunks + png_chunk("IEND", "");
}

// Rows with their filter bytes, not yet packed.
inline std::string png_of(const std::string& header, const std::string& rows,
                          const std::string& between = "") {
  return png_file(header + between + png_chunk("IDAT", deflated(rows)));
}

// ---- GIF

// Codes of nine bits or fewer, each with the width the reader expects at that place.
class GifCodes {
 public:
  explicit GifCodes(int min_bits) : min_bits_(min_bits) { reset(); }
  // `grows`: the code adds an entry to the reader's table.
  GifCodes& put(int code) {
    append(code);
    if (code == (1 << min_bits_)) {
      reset();
    } else {
      if (!first_) ++next_;
      first_ = false;
      if (next_ == (1 << bits_) && bits_ < 12) ++bits_;
    }
    return *this;
  }
  // The code size and the data as sub-blocks with their end mark.
  std::string blocks() const {
    std::string data = data_;
    if (held_ > 0) data += static_cast<char>(bits_held_);
    std::string out(1, static_cast<char>(min_bits_));
    for (std::size_t at = 0; at < data.size(); at += 255) {
      const std::string part = data.substr(at, 255);
      out += static_cast<char>(part.size()) + part;
    }
    return out + '\0';
  }

 private:
  void reset() {
    next_ = (1 << min_bits_) + 2;
    bits_ = min_bits_ + 1;
    first_ = true;
  }
  void append(int code) {
    bits_held_ |= static_cast<std::uint32_t>(code) << held_;
    for (held_ += bits_; held_ >= 8; held_ -= 8) {
      data_ += static_cast<char>(bits_held_);
      bits_held_ >>= 8;
    }
  }
  int min_bits_, next_ = 0, bits_ = 0, held_ = 0;
  bool first_ = true;
  std::uint32_t bits_held_ = 0;
  std::string data_;
};

inline std::string gif_screen(std::uint32_t width, std::uint32_t height,
                              const std::string& palette) {
  std::string out = "GIF89a" + le16(width) + le16(height);
  if (palette.empty()) return out + std::string(3, '\0');
  int bits = 0;
  while ((std::size_t{6} << bits) < palette.size()) ++bits;
  return out + static_cast<char>(0x80 | bits) + std::string(2, '\0') + palette;
}

inline std::string gif_frame(std::uint32_t left, std::uint32_t top, std::uint32_t width,
                             std::uint32_t height, int flags = 0) {
  return ',' + le16(left) + le16(top) + le16(width) + le16(height) + static_cast<char>(flags);
}

// ---- BMP

struct BmpOptions {
  std::uint32_t bits = 24, compression = 0, colours = 0;
  std::string extra = {};  // after the header: masks, palette
  std::string pixels = {};
  std::uint32_t data_at = 0;  // 0: after `extra`
};

inline std::string bmp_file(std::int32_t width, std::int32_t height, const BmpOptions& options) {
  const std::uint32_t after = 14 + 40 + static_cast<std::uint32_t>(options.extra.size());
  const std::uint32_t data_at = options.data_at == 0 ? after : options.data_at;
  return "BM" + le32(after + static_cast<std::uint32_t>(options.pixels.size())) + le32(0) +
         le32(data_at) + le32(40) + le32(static_cast<std::uint32_t>(width)) +
         le32(static_cast<std::uint32_t>(height)) + le16(1) + le16(options.bits) +
         le32(options.compression) + le32(0) + le32(0) + le32(0) + le32(options.colours) + le32(0) +
         options.extra + options.pixels;
}

// ---- EXIF: a TIFF structure whose first directory holds the given 12-byte entries.

inline std::string exif_entry(std::uint32_t tag, std::uint32_t type, std::uint32_t count,
                              std::uint32_t value) {
  return le16(tag) + le16(type) + le32(count) + le32(value);
}

inline std::string exif_of(const std::vector<std::string>& entries, std::uint32_t next = 0) {
  std::string out = "II" + le16(42) + le32(8) + le16(static_cast<std::uint32_t>(entries.size()));
  for (const std::string& entry : entries) out += entry;
  return out + le32(next);
}

}  // namespace tessera
