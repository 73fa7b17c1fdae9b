// WebP through libwebp; the RIFF container is walked here (RFC 9649, section 2), so that neither
// libwebpdemux nor libwebpmux is needed. Of an animation the first frame, on a transparent canvas.
#include <webp/decode.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string_view>

#include "engine/core/index.h"
#include "vision/codec/readers.h"

namespace tessera::codec {

namespace {

constexpr std::uint8_t kAnimated = 0x02;

struct WebpFrame {
  std::uint64_t left, top, width, height;  // pixels on the canvas
  Bytes data;
};

struct Container {
  std::uint64_t width = 0, height = 0;  // canvas, of an extended file
  bool animated = false;
  std::optional<WebpFrame> first;  // of an animation
  Bytes exif;
};

WebpFrame read_frame(Bytes chunk) {
  Cursor in(chunk);
  WebpFrame frame = {};
  frame.left = std::uint64_t{in.le24("a frame's place")} * 2;
  frame.top = std::uint64_t{in.le24("a frame's place")} * 2;
  frame.width = std::uint64_t{in.le24("a frame's size")} + 1;
  frame.height = std::uint64_t{in.le24("a frame's size")} + 1;
  in.take(4, "a frame's duration and flags");
  frame.data = in.take(in.left(), "a frame");
  return frame;
}

// Up to the first frame or the end; EXIF stands after the image.
Container walk(Bytes file) {
  Cursor in(file, 4);
  const std::size_t size = in.le32("the RIFF size");
  if (size > in.left()) {
    refuse(kCut, at_byte(4), std::to_string(size) + " bytes of RIFF data",
           std::to_string(in.left()) + " bytes");
  }
  const Bytes riff = file.first(8 + size);
  Container out;
  Cursor chunks(riff, std::min<std::size_t>(riff.size(), 12));
  while (chunks.left() >= 8) {
    const Bytes type = chunks.take(4, "a chunk");
    const std::string_view name(reinterpret_cast<const char*>(type.data()), 4);
    const std::size_t length = chunks.le32("a chunk");
    const Bytes body = chunks.take(length, "a chunk");
    if (length % 2 == 1 && chunks.left() > 0) chunks.take(1, "padding");
    if (name == "VP8X") {
      Cursor header(body);
      out.animated = (header.u8("flags") & kAnimated) != 0;
      header.take(3, "flags");
      out.width = std::uint64_t{header.le24("the canvas")} + 1;
      out.height = std::uint64_t{header.le24("the canvas")} + 1;
    } else if (name == "ANMF" && !out.first) {
      out.first = read_frame(body);
    } else if (name == "EXIF" && out.exif.empty()) {
      out.exif = body;
    }
  }
  return out;
}

[[noreturn]] void fail(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      throw std::bad_alloc();
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      refuse(kCut, "bitstream", "a whole WebP", "the end of its data");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      refuse(kFormat, "bitstream", "a WebP that libwebp reads", "an unsupported feature");
    default:
      refuse(kData, "bitstream", "an intact WebP", "damaged data");
  }
}

WebPBitstreamFeatures features_of(Bytes data) {
  WebPBitstreamFeatures features = {};
  const VP8StatusCode status = WebPGetFeatures(data.data(), data.size(), &features);
  if (status != VP8_STATUS_OK) fail(status);
  return features;
}

DecodedImage decode(Bytes data, const WebPBitstreamFeatures& features) {
  const bool alpha = features.has_alpha != 0;
  DecodedImage out(features.width, features.height, alpha ? 4 : 3, "WebP");
  WebPDecoderConfig config;
  expects(WebPInitDecoderConfig(&config) != 0, "libwebp is of the version it was built for");
  config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = out.pixels.data();
  config.output.u.RGBA.stride = narrow<int>(out.width * out.channels);
  config.output.u.RGBA.size = out.pixels.size();
  const VP8StatusCode status = WebPDecode(data.data(), data.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) fail(status);
  return out;
}

DecodedImage decode_first_frame(const Container& file, const ImageLimits& limits) {
  check_size(file.width, file.height, limits, "VP8X");
  if (!file.first) refuse(kCut, "ANMF", "a first frame", "none");
  const WebpFrame& frame = *file.first;
  if (frame.left + frame.width > file.width || frame.top + frame.height > file.height) {
    refuse(kData, "ANMF", "a frame inside the canvas", "one beyond it");
  }
  const WebPBitstreamFeatures features = features_of(frame.data);
  if (narrow<std::uint64_t>(features.width) != frame.width ||
      narrow<std::uint64_t>(features.height) != frame.height) {
    refuse(kData, "ANMF", "a bitstream of the frame's size", "another size");
  }
  DecodedImage inner = decode(frame.data, features);
  if (frame.width == file.width && frame.height == file.height) return inner;
  DecodedImage out(to_index(file.width), to_index(file.height), 4, "WebP");
  for (std::int64_t y = 0; y < inner.height; ++y) {
    for (std::int64_t x = 0; x < inner.width; ++x) {
      const std::uint8_t* from = inner.at(x, y);
      std::uint8_t* to = out.at(x + to_index(frame.left), y + to_index(frame.top));
      std::copy_n(from, 3, to);
      to[3] = inner.channels == 4 ? from[3] : 255;
    }
  }
  return out;
}

// Some writers put JPEG's marker text in front of the TIFF structure.
Bytes without_prefix(Bytes exif) {
  static constexpr std::uint8_t kPrefix[] = {'E', 'x', 'i', 'f', 0, 0};
  const bool has = exif.size() > sizeof kPrefix &&
                   std::equal(std::begin(kPrefix), std::end(kPrefix), exif.begin());
  return has ? exif.subspan(sizeof kPrefix) : exif;
}

}  // namespace

DecodedImage read_webp(Bytes file, const ImageLimits& limits) {
  const Container container = walk(file);
  DecodedImage out;
  if (container.animated) {
    out = decode_first_frame(container, limits);
    out.notes.push_back("first frame of an animation");
  } else {
    const WebPBitstreamFeatures features = features_of(file);
    check_size(narrow<std::uint64_t>(features.width), narrow<std::uint64_t>(features.height),
               limits, "bitstream");
    out = decode(file, features);
  }
  const Bytes exif = without_prefix(container.exif);
  const int orientation = exif.empty() ? 0 : exif_orientation(exif, out.notes);
  return upright(std::move(out), orientation);
}

}  // namespace tessera::codec
