// GIF (GIF87a and GIF89a specifications): the first frame on its canvas. What the frame leaves
// free, and its transparent index, have alpha 0. A stream that ends early, a code that is not in
// the table and an index without a colour are errors.
#include <algorithm>

#include "engine/core/index.h"
#include "vision/codec/readers.h"

namespace tessera::codec {

namespace {

constexpr int kMaxCodes = 4096;  // codes have at most 12 bits

struct Palette {
  Bytes colours;  // 3 bytes each
  std::size_t size() const { return colours.size() / 3; }
};

struct GifFrame {
  std::uint32_t left, top, width, height;
  bool interlaced = false;
  Palette palette;
};

Palette read_palette(Cursor& in, unsigned flags) {
  const std::size_t count = std::size_t{2} << (flags & 7);
  return {in.take(count * 3, "a colour table")};
}

void skip_blocks(Cursor& in) {
  for (std::uint8_t length = in.u8("a data block"); length != 0; length = in.u8("a data block")) {
    in.take(length, "a data block");
  }
}

std::vector<std::uint8_t> join_blocks(Cursor& in) {
  std::vector<std::uint8_t> out;
  for (std::uint8_t length = in.u8("a data block"); length != 0; length = in.u8("a data block")) {
    const Bytes block = in.take(length, "a data block");
    out.insert(out.end(), block.begin(), block.end());
  }
  return out;
}

// The variable-length codes of GIF's LZW, one at a time, lowest bit first.
class CodeReader {
 public:
  explicit CodeReader(Bytes data) : data_(data) {}
  // -1 at the end of the data.
  int next(int bits) {
    while (held_ < bits) {
      if (at_ == data_.size()) return -1;
      bits_ |= std::uint32_t{data_[at_++]} << held_;
      held_ += 8;
    }
    const int code = static_cast<int>(bits_ & ((1u << bits) - 1));
    bits_ >>= bits;
    held_ -= bits;
    return code;
  }

 private:
  Bytes data_;
  std::size_t at_ = 0;
  std::uint32_t bits_ = 0;
  int held_ = 0;
};

// The strings after the codes: each is another string and one more index.
class CodeTable {
 public:
  explicit CodeTable(int clear) : clear_(clear) {
    for (int code = 0; code < clear; ++code) {
      first_[code] = last_[code] = low_bits<std::uint8_t>(code);
      length_[code] = 1;
    }
    reset();
  }
  void reset() { next_ = clear_ + 2; }
  int next() const { return next_; }
  bool full() const { return next_ == kMaxCodes; }
  std::size_t length(int code) const { return length_[code]; }
  std::uint8_t first(int code) const { return first_[code]; }
  void add(int prefix, std::uint8_t index) {
    prefix_[next_] = low_bits<std::uint16_t>(prefix);
    first_[next_] = first_[prefix];
    last_[next_] = index;
    length_[next_] = low_bits<std::uint16_t>(length_[prefix] + 1);
    ++next_;
  }
  // Writes the first `count` indices of the string to `out`.
  void write(int code, std::uint8_t* out, std::size_t count) const {
    for (std::size_t i = length_[code]; i > 0; --i) {
      if (i <= count) out[i - 1] = last_[code];
      code = prefix_[code];
    }
  }

 private:
  int clear_, next_ = 0;
  std::uint16_t prefix_[kMaxCodes] = {};
  std::uint16_t length_[kMaxCodes] = {};
  std::uint8_t first_[kMaxCodes] = {};
  std::uint8_t last_[kMaxCodes] = {};
};

[[noreturn]] void refuse_code(int code, int next) {
  refuse(kData, "LZW data", "a code below " + std::to_string(next + 1), std::to_string(code));
}

// Fills `out` with colour indices; data after them is ignored.
void unpack(Bytes data, int min_bits, std::span<std::uint8_t> out) {
  const int clear = 1 << min_bits, end = clear + 1;
  CodeReader codes(data);
  CodeTable table(clear);
  int bits = min_bits + 1, previous = -1;
  std::size_t at = 0;
  while (at < out.size()) {
    int code = codes.next(bits);
    if (code < 0 || code == end) {
      refuse(kCut, "LZW data", std::to_string(out.size()) + " pixels", std::to_string(at));
    }
    if (code == clear) {
      table.reset();
      bits = min_bits + 1;
      previous = -1;
      continue;
    }
    if (previous < 0) {
      if (code >= clear) refuse_code(code, clear - 1);
    } else {
      // The code being defined now may be used at once: it begins and ends with the same index.
      if (code > table.next()) refuse_code(code, table.next());
      if (!table.full()) table.add(previous, table.first(code == table.next() ? previous : code));
    }
    const std::size_t count = std::min(table.length(code), out.size() - at);
    table.write(code, out.data() + at, count);
    at += count;
    previous = code;
    if (table.next() == (1 << bits) && bits < 12) ++bits;
  }
}

// The row of the image that the n-th stored row of an interlaced frame is.
std::uint32_t interlaced_row(std::uint32_t n, std::uint32_t height) {
  static constexpr std::uint32_t kStart[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    const std::uint32_t rows =
        height > kStart[pass] ? (height - kStart[pass] + kStep[pass] - 1) / kStep[pass] : 0;
    if (n < rows) return kStart[pass] + n * kStep[pass];
    n -= rows;
  }
  expects(false, "a row of the frame");
  return 0;
}

DecodedImage draw_frame(const GifFrame& frame, std::span<const std::uint8_t> indices, std::uint32_t width,
              std::uint32_t height, int transparent) {
  const bool covers = frame.width == width && frame.height == height;
  DecodedImage out(width, height, covers && transparent < 0 ? 3 : 4, "GIF");
  for (std::uint32_t n = 0; n < frame.height; ++n) {
    const std::uint32_t y = frame.interlaced ? interlaced_row(n, frame.height) : n;
    const std::uint8_t* from = indices.data() + std::size_t{n} * frame.width;
    for (std::uint32_t x = 0; x < frame.width; ++x) {
      const std::size_t index = from[x];
      if (index >= frame.palette.size()) {
        refuse(kData, "pixel data", "indices below " + std::to_string(frame.palette.size()),
               std::to_string(index));
      }
      std::uint8_t* to = out.at(frame.left + x, frame.top + y);
      std::copy_n(frame.palette.colours.data() + index * 3, 3, to);
      if (out.channels == 4) to[3] = static_cast<int>(index) == transparent ? 0 : 255;
    }
  }
  return out;
}

GifFrame read_frame_header(Cursor& in, std::uint32_t width, std::uint32_t height, Palette global) {
  const std::size_t place = in.at();
  GifFrame frame = {};
  frame.left = in.le16("a frame header");
  frame.top = in.le16("a frame header");
  frame.width = in.le16("a frame header");
  frame.height = in.le16("a frame header");
  const unsigned flags = in.u8("a frame header");
  if (frame.width == 0 || frame.height == 0 || frame.left + frame.width > width ||
      frame.top + frame.height > height) {
    refuse(kData, at_byte(place), "a frame inside the canvas",
           std::to_string(frame.width) + "x" + std::to_string(frame.height) + " at " +
               std::to_string(frame.left) + "," + std::to_string(frame.top));
  }
  frame.interlaced = (flags & 0x40) != 0;
  frame.palette = (flags & 0x80) != 0 ? read_palette(in, flags) : global;
  if (frame.palette.size() == 0) refuse(kData, at_byte(place), "a colour table", "none");
  return frame;
}

DecodedImage read_first_frame(Cursor& in, const GifFrame& frame, std::uint32_t width,
                         std::uint32_t height, int transparent) {
  const std::size_t place = in.at();
  const int min_bits = in.u8("the code size");
  if (min_bits < 2 || min_bits > 8) {
    refuse(kData, at_byte(place), "a code size of 2-8 bits", std::to_string(min_bits));
  }
  const std::vector<std::uint8_t> data = join_blocks(in);
  const std::size_t pixels = std::size_t{frame.width} * frame.height;
  // A code has more bits than min_bits and stands for at most 4096 pixels.
  const std::size_t codes = data.size() * 8 / (static_cast<std::size_t>(min_bits) + 1);
  if (pixels / kMaxCodes > codes) {
    refuse(kCut, "LZW data", "data for " + std::to_string(pixels) + " pixels",
           std::to_string(data.size()) + " bytes");
  }
  std::vector<std::uint8_t> indices(pixels);
  unpack(data, min_bits, indices);
  return draw_frame(frame, indices, width, height, transparent);
}

// True when another frame follows; a damaged rest is none of our business.
bool has_more_frames(Cursor in) { return in.left() > 0 && in.u8("a block") != 0x3b; }

}  // namespace

DecodedImage read_gif(Bytes file, const ImageLimits& limits) {
  Cursor in(file, 6);
  const std::uint32_t width = in.le16("the canvas"), height = in.le16("the canvas");
  check_size(width, height, limits, at_byte(6));
  const unsigned flags = in.u8("flags");
  in.take(2, "background and aspect");
  const Palette global = (flags & 0x80) != 0 ? read_palette(in, flags) : Palette{};
  int transparent = -1;
  for (;;) {
    const std::size_t place = in.at();
    const unsigned block = in.u8("a block");
    if (block == 0x2c) {
      const GifFrame frame = read_frame_header(in, width, height, global);
      DecodedImage out = read_first_frame(in, frame, width, height, transparent);
      if (has_more_frames(in)) out.notes.push_back("first frame of an animation");
      return out;
    }
    if (block == 0x3b) refuse(kData, at_byte(place), "a frame", "the end of the GIF");
    if (block != 0x21) refuse(kData, at_byte(place), "a block", "byte " + std::to_string(block));
    if (in.u8("an extension") == 0xf9) {
      const std::size_t length = in.u8("a graphic control");
      const Bytes control = in.take(length, "a graphic control");
      if (length < 4)
        refuse(kData, at_byte(place), "a graphic control of 4 bytes", std::to_string(length));
      transparent = (control[0] & 1) != 0 ? control[3] : -1;
    }
    skip_blocks(in);
  }
}

}  // namespace tessera::codec
