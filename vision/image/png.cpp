// libpng's png_image interface for pixels: it needs no setjmp. Text chunks are put between the
// header and the pixels by hand.
#include "vision/image/png.h"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
constexpr std::string_view kXmpKeyword = "XML:com.adobe.xmp";
constexpr std::size_t kHeaderEnd = 8 + 12 + 13;  // signature and IHDR
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxTextChunks = 64;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxAllTextBytes = std::size_t{4} << 20;
constexpr std::uint32_t kMaxSide = 16384;
constexpr std::uint64_t kMaxPixels = std::uint64_t{64} << 20;

void append_u32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += char_of((value >> shift) & 0xff);
}

std::uint32_t read_u32(std::string_view data, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = (value << 8) | byte_of(data[at + i]);
  }
  return value;
}

std::uint32_t checksum(std::string_view data) {
  return narrow<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(data.data()), narrow<uInt>(data.size())));
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_u32(out, narrow<std::uint32_t>(data.size()));
  const std::size_t begin = out.size();
  out += type;
  out += data;
  append_u32(out, checksum(std::string_view(out).substr(begin)));
}

// Latin-1 bytes of a UTF-8 text when every character is printable there or a newline.
bool to_printable_latin1(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const bool printable =
        c.code == '\n' || (c.code >= 0x20 && c.code < 0x7f) || (c.code >= 0xa1 && c.code <= 0xff);
    if (!c.valid || !printable) return false;
    out += char_of(static_cast<unsigned char>(c.code));
    at += c.length;
  }
  return true;
}

std::string from_latin1(std::string_view text) {
  std::string out;
  for (const char c : text) append_utf8(out, byte_of(c));
  return out;
}

void append_text(std::string& out, const PngText& text) {
  expects(!text.keyword.empty() && text.keyword.size() < 80, "a PNG keyword has 1-79 bytes");
  expects(text.text.find('\0') == std::string::npos, "PNG text holds no NUL");
  std::string latin1;
  if (text.keyword != kXmpKeyword && to_printable_latin1(text.text, latin1)) {
    append_chunk(out, "tEXt", text.keyword + '\0' + latin1);
    return;
  }
  // Not compressed, no language, no translated keyword.
  append_chunk(out, "iTXt", text.keyword + std::string(5, '\0') + text.text);
}

// zlib data of at most `limit` bytes when inflated; false if it is longer or broken.
bool inflate_text(std::string_view data, std::size_t limit, std::string& out) {
  out.resize(limit);
  uLongf size = limit;
  if (uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                 reinterpret_cast<const Bytef*>(data.data()), data.size()) != Z_OK) {
    return false;
  }
  out.resize(size);
  return true;
}

// Splits off the part before the next NUL; false if there is none.
bool take_until_nul(std::string_view& data, std::string_view& part) {
  const std::size_t end = data.find('\0');
  if (end == std::string_view::npos) return false;
  part = data.substr(0, end);
  data.remove_prefix(end + 1);
  return true;
}

// One text chunk as UTF-8. Returns why it is left out, empty when it is fine.
std::string parse_text_chunk(std::string_view type, std::string_view data, PngText& out) {
  std::string_view keyword;
  if (!take_until_nul(data, keyword) || keyword.empty() || keyword.size() > 79) {
    return "a keyword of 1-79 bytes is missing";
  }
  out.keyword = from_latin1(keyword);
  bool compressed = type == "zTXt";
  if (type == "iTXt") {
    std::string_view language, translated;
    if (data.size() < 2) return "it ends in its header";
    compressed = data[0] != 0;
    if (compressed && data[1] != 0) return "unknown compression";
    data.remove_prefix(2);
    if (!take_until_nul(data, language) || !take_until_nul(data, translated)) {
      return "it ends in its header";
    }
  } else if (compressed) {
    if (data.empty() || data[0] != 0) return "unknown compression";
    data.remove_prefix(1);
  }
  std::string text;
  if (compressed) {
    if (!inflate_text(data, kMaxTextBytes, text)) return "broken, or over 1 MiB when unpacked";
  } else {
    if (data.size() > kMaxTextBytes) return "over 1 MiB";
    text = data;
  }
  if (type != "iTXt") text = from_latin1(text);
  if (!is_valid_utf8(text)) return "not valid UTF-8";
  if (text.find('\0') != std::string::npos) return "holds a NUL";
  out.text = std::move(text);
  return "";
}

class ChunkReader {
 public:
  ChunkReader(std::string_view data, const std::string& file, ErrorKind kind)
      : data_(data), file_(file), kind_(kind) {
    if (!data.starts_with(kSignature)) {
      fail("E_PNG_SIGNATURE", "byte 0", "a PNG file", "another signature");
    }
  }

  struct Chunk {
    std::string_view type, data;
  };

  // The next chunk with its CRC checked; IEND ends the file.
  Chunk next() {
    const std::string place = "byte " + std::to_string(at_);
    if (data_.size() - at_ < 12) fail("E_PNG_CUT", place, "a chunk", "the end of the file");
    const std::uint32_t length = read_u32(data_, at_);
    if (length > 0x7fffffffu || length > data_.size() - at_ - 12) {
      fail("E_PNG_CUT", place, "a chunk of " + std::to_string(length) + " bytes",
           std::to_string(data_.size() - at_ - 12) + " bytes left");
    }
    const Chunk chunk{data_.substr(at_ + 4, 4), data_.substr(at_ + 8, length)};
    const std::uint32_t want = read_u32(data_, at_ + 8 + length);
    if (checksum(data_.substr(at_ + 4, length + 4)) != want) {
      fail("E_PNG_CRC", place, "a chunk with its CRC", "another CRC");
    }
    if (at_ == kSignature.size() && (chunk.type != "IHDR" || length != 13)) {
      fail("E_PNG_HEADER", place, "IHDR first", "another chunk");
    }
    at_ += 12 + std::size_t{length};
    return chunk;
  }

 private:
  [[noreturn]] void fail(std::string code, std::string where, std::string expected,
                         std::string found) const {
    throw Error({kind_, std::move(code), file_, std::move(where), std::move(expected),
                 std::move(found), ""});
  }

  std::string_view data_;
  std::string file_;
  ErrorKind kind_;
  std::size_t at_ = kSignature.size();
};

std::string encode_pixels(const Image& image) {
  expects(
      image.width > 0 && image.width <= kMaxSide && image.height > 0 && image.height <= kMaxSide,
      "image sides from 1 to 16384");
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  header.width = narrow<png_uint_32>(image.width);
  header.height = narrow<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  std::string out(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = out.size();
  if (png_image_write_to_memory(&header, out.data(), &size, 0, image.rgb.data(), 0, nullptr) == 0) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_PNG_WRITE",
                 .expected = "a PNG from libpng",
                 .found = header.message});
  }
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(const Image& image, std::span<const PngText> texts, std::string_view xmp) {
  const std::string pixels = encode_pixels(image);
  std::string out = pixels.substr(0, kHeaderEnd);
  for (const PngText& text : texts) append_text(out, text);
  if (!xmp.empty()) append_text(out, {std::string(kXmpKeyword), std::string(xmp)});
  out.append(pixels, kHeaderEnd);
  return out;
}

void save_png(const std::filesystem::path& path, const Image& image, std::span<const PngText> texts,
              std::string_view xmp) {
  write_file_atomic(path, encode_png(image, texts, xmp));
}

PngTexts parse_png_texts(std::string_view data, const std::string& file, ErrorKind kind) {
  ChunkReader reader(data, file, kind);
  PngTexts out;
  std::size_t chunks = 0, total = 0;
  for (ChunkReader::Chunk chunk = reader.next(); chunk.type != "IEND"; chunk = reader.next()) {
    if (chunk.type != "tEXt" && chunk.type != "zTXt" && chunk.type != "iTXt") continue;
    const std::string name = "text chunk " + std::to_string(++chunks);
    if (chunks > kMaxTextChunks) {
      out.warnings.push_back("more than 64 text chunks; the rest is left out");
      break;
    }
    PngText text;
    std::string problem = parse_text_chunk(chunk.type, chunk.data, text);
    if (problem.empty() && total + text.text.size() > kMaxAllTextBytes) {
      problem = "more than 4 MiB of text in all";
    }
    if (!problem.empty()) {
      out.warnings.push_back(name + " is left out: " + problem);
      continue;
    }
    total += text.text.size();
    if (text.keyword == kXmpKeyword) {
      out.xmp = std::move(text.text);
    } else {
      out.texts.push_back(std::move(text));
    }
  }
  return out;
}

PngTexts read_png_texts(const std::filesystem::path& path, ErrorKind kind) {
  return parse_png_texts(read_file(path, kMaxFileBytes, kind), path.string(), kind);
}

Image read_own_png(const std::filesystem::path& path) {
  const std::string data = read_file(path, kMaxFileBytes, ErrorKind::kGeneral);
  const auto fail = [&](std::string expected, std::string found) -> Error {
    return Error({ErrorKind::kGeneral, "E_PNG_PIXELS", path.string(), "IHDR", std::move(expected),
                  std::move(found), ""});
  };
  const std::string_view header = ChunkReader(data, path.string(), ErrorKind::kGeneral).next().data;
  const std::uint32_t width = read_u32(header, 0), height = read_u32(header, 4);
  if (width == 0 || height == 0 || width > kMaxSide || height > kMaxSide ||
      std::uint64_t{width} * height > kMaxPixels) {
    throw fail("sides of 1-16384 and at most 64 megapixels",
               std::to_string(width) + "x" + std::to_string(height));
  }
  if (header.substr(8) != std::string_view("\x08\x02\0\0\0", 5)) {
    throw fail("8-bit RGB, not interlaced", "another pixel format");
  }
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, decltype(&png_image_free)> guard(&image, &png_image_free);
  Image out(width, height);
  if (png_image_begin_read_from_memory(&image, data.data(), data.size()) == 0) {
    throw fail("a PNG that libpng reads", image.message);
  }
  image.format = PNG_FORMAT_RGB;
  if (png_image_finish_read(&image, nullptr, out.rgb.data(), 0, nullptr) == 0 ||
      PNG_IMAGE_FAILED(image)) {
    throw fail("whole pixel data", image.message);
  }
  return out;
}

}  // namespace tessera
