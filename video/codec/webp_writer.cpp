// The container is that of the "WebP Container Specification": RIFF with VP8X, ANIM, one ANMF a
// frame, XMP. libwebp encodes the pixels of each.
#include "video/codec/webp_writer.h"

#include <webp/encode.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/index.h"
#include "video/codec/ffmpeg.h"
#include "video/codec/frame_times.h"
#include "vision/image/xmp.h"

namespace tessera {

using ffmpeg::fail;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kMaxBytes = 0xffff'fff6;  // what the head of a RIFF file can tell
constexpr std::int64_t kMaxStay = (1 << 24) - 1;  // milliseconds
constexpr std::uint8_t kAnimated = 0x02, kHasXmp = 0x04;
constexpr std::uint8_t kNoBlending = 0x02;
constexpr std::size_t kRiffHead = 12;
constexpr std::size_t kPiece = 64 << 10;  // bytes handed to the sink at a time
constexpr int kEffort = 4;                // of 9: beyond it time grows much, files shrink little

struct Box {
  std::int64_t left = 0, top = 0, width = 1, height = 1;  // pixels
};

void append(Bytes& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(low_bits<std::uint8_t>(value >> (8 * i)));
}

void append(Bytes& out, std::string_view text) { out.insert(out.end(), text.begin(), text.end()); }

Bytes chunk(std::string_view name, std::span<const std::uint8_t> head,
            std::span<const std::uint8_t> body = {}) {
  Bytes out;
  out.reserve(head.size() + body.size() + 9);
  append(out, name);
  append(out, head.size() + body.size(), 4);
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), body.begin(), body.end());
  if (out.size() % 2 != 0) out.push_back(0);
  return out;
}

// The smallest rectangle that holds every pixel in which the frames differ, from even places; one
// pixel if there is none.
Box difference(std::span<const std::uint8_t> before, std::span<const std::uint8_t> now,
               std::int64_t width, std::int64_t height) {
  const std::size_t row = to_size(width) * 3;
  std::int64_t left = width, right = -1, top = height, bottom = -1;
  for (std::int64_t y = 0; y < height; ++y) {
    const std::uint8_t* a = before.data() + to_size(y) * row;
    const std::uint8_t* b = now.data() + to_size(y) * row;
    if (std::memcmp(a, b, row) == 0) continue;
    top = std::min(top, y);
    bottom = y;
    const auto first = std::mismatch(a, a + row, b).first - a;
    std::size_t last = row - 1;
    while (a[last] == b[last]) --last;
    left = std::min(left, first / 3);
    right = std::max(right, to_index(last / 3));
  }
  if (bottom < 0) return {};
  left &= ~std::int64_t{1};
  top &= ~std::int64_t{1};
  return {left, top, right - left + 1, bottom - top + 1};
}

// The chunks of a still WebP of that part of the frame, without the head of their file.
Bytes encoded(std::span<const std::uint8_t> rgb, std::int64_t width, const Box& box) {
  WebPConfig config;
  WebPPicture image;
  if (WebPConfigInit(&config) == 0 || WebPPictureInit(&image) == 0 ||
      WebPConfigLosslessPreset(&config, kEffort) == 0) {
    fail("E_VIDEO_CODEC", "", "a libwebp of the version that this was built with", "another");
  }
  const std::unique_ptr<WebPPicture, decltype(&WebPPictureFree)> guard(&image, &WebPPictureFree);
  WebPMemoryWriter written;
  WebPMemoryWriterInit(&written);
  const std::unique_ptr<WebPMemoryWriter, decltype(&WebPMemoryWriterClear)> bytes(
      &written, &WebPMemoryWriterClear);
  image.use_argb = 1;
  image.width = narrow<int>(box.width);
  image.height = narrow<int>(box.height);
  image.writer = &WebPMemoryWrite;
  image.custom_ptr = &written;
  const std::uint8_t* from = rgb.data() + (box.top * width + box.left) * 3;
  if (WebPPictureImportRGB(&image, from, narrow<int>(width * 3)) == 0) {
    throw std::bad_alloc();
  }
  if (WebPEncode(&config, &image) == 0) {
    if (image.error_code == VP8_ENC_ERROR_OUT_OF_MEMORY ||
        image.error_code == VP8_ENC_ERROR_BITSTREAM_OUT_OF_MEMORY) {
      throw std::bad_alloc();
    }
    fail("E_VIDEO_CODEC", "", "a frame that libwebp can encode",
         "its error " + std::to_string(image.error_code));
  }
  expects(written.size > kRiffHead, "a file from libwebp");
  return {written.mem + kRiffHead, written.mem + written.size};
}

}  // namespace

struct WebpWriter::State {
  VideoSink& sink;
  VideoFormat format;
  FrameTimes times;
  std::uint64_t at = 0;    // bytes written
  Bytes shown;             // the frame before
  Bytes pending;           // its chunks: how long it stays is known later
  Box box;                 // where they go
  std::int64_t begun = 0;  // milliseconds

  State(VideoSink& out, const VideoFormat& wanted)
      : sink(out), format(wanted), times(wanted.tick, 1000, 1, kMaxStay) {
    Bytes head;
    append(head, "RIFF");
    append(head, 0, 4);  // known last
    append(head, "WEBP");
    Bytes canvas = {narrow<std::uint8_t>(kAnimated | (format.comment.empty() ? 0 : kHasXmp)), 0, 0,
                    0};
    append(canvas, narrow<std::uint64_t>(format.width - 1), 3);
    append(canvas, narrow<std::uint64_t>(format.height - 1), 3);
    const Bytes extended = chunk("VP8X", canvas);
    const Bytes animation = chunk("ANIM", Bytes{255, 255, 255, 255, 0, 0});  // white, for ever
    head.insert(head.end(), extended.begin(), extended.end());
    head.insert(head.end(), animation.begin(), animation.end());
    write(head);
  }

  void write(const Bytes& bytes) {
    if (bytes.size() > kMaxBytes - at) {
      fail("E_VIDEO_SIZE", "", "a WebP of less than 4 GiB", "a larger one");
    }
    for (std::size_t done = 0; done < bytes.size();) {
      const std::size_t piece = std::min(bytes.size() - done, kPiece);
      sink.write(at, bytes.data() + done, piece);
      at += piece;
      done += piece;
    }
  }

  void write_pending(std::int64_t stay) {
    Bytes head;
    append(head, narrow<std::uint64_t>(box.left / 2), 3);
    append(head, narrow<std::uint64_t>(box.top / 2), 3);
    append(head, narrow<std::uint64_t>(box.width - 1), 3);
    append(head, narrow<std::uint64_t>(box.height - 1), 3);
    append(head, narrow<std::uint64_t>(stay), 3);
    head.push_back(kNoBlending);
    write(chunk("ANMF", head, pending));
  }
};

WebpWriter::WebpWriter(VideoSink& sink, const VideoFormat& format)
    : state_(std::make_unique<State>(sink, format)) {}
WebpWriter::~WebpWriter() = default;

void WebpWriter::put(std::span<const std::uint8_t> rgb, std::int64_t ticks) {
  State& state = *state_;
  const bool first = state.times.empty();
  const std::int64_t begin = state.times.begin(ticks);
  const Box box = first ? Box{0, 0, state.format.width, state.format.height}
                        : difference(state.shown, rgb, state.format.width, state.format.height);
  Bytes next = encoded(rgb, state.format.width, box);
  if (!first) state.write_pending(begin - state.begun);
  state.pending = std::move(next);
  state.box = box;
  state.begun = begin;
  state.shown.assign(rgb.begin(), rgb.end());
}

void WebpWriter::finish(std::int64_t end_ticks) {
  State& state = *state_;
  if (state.times.empty()) fail("E_VIDEO_EMPTY", "", "at least one frame", "none");
  state.write_pending(state.times.last_stay(end_ticks));
  if (!state.format.comment.empty()) {
    const std::string xmp = xmp_packet({.description = state.format.comment});
    state.write(chunk("XMP ", {reinterpret_cast<const std::uint8_t*>(xmp.data()), xmp.size()}));
  }
  Bytes size;
  append(size, state.at - 8, 4);
  state.sink.write(4, size.data(), size.size());
}

}  // namespace tessera
