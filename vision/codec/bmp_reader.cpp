// BMP: OS/2 and Windows headers of 12 to 124 bytes, 1 to 32 bits a pixel, bit fields, RLE4 and RLE8
// (Microsoft, "Bitmap Storage"). Pixels that a compressed image leaves out have index 0. Runs
// past the end of a row, indices without a colour and rows past the end of the file are errors.
#include <algorithm>
#include <bit>

#include "engine/core/index.h"
#include "vision/codec/readers.h"

namespace tessera::codec {

namespace {

enum Compression : std::uint32_t {
  kPlain = 0,
  kRle8 = 1,
  kRle4 = 2,
  kFields = 3,
  kAlphaFields = 6
};

struct BmpHeader {
  std::uint32_t data_at = 0;  // byte offset of the pixels
  std::uint32_t bytes = 0;    // size of the information header
  std::int64_t width = 0, height = 0;
  bool top_down = false;
  std::uint32_t bits = 0, compression = kPlain, colours = 0;
  std::uint32_t masks[4] = {};  // red, green, blue, alpha
};

// One channel of a pixel with bit fields, scaled to 0-255 by truncation.
class Channel {
 public:
  explicit Channel(std::uint32_t mask)
      : mask_(mask), shift_(mask == 0 ? 0 : std::countr_zero(mask)), top_(mask >> shift_) {
    if ((top_ & (top_ + 1)) != 0) refuse(kData, "bit masks", "masks of adjacent bits", "gaps");
  }
  std::uint8_t of(std::uint32_t pixel) const {
    if (mask_ == 0) return 0;
    return low_bits<std::uint8_t>(std::uint64_t{(pixel & mask_) >> shift_} * 255 / top_);
  }

 private:
  std::uint32_t mask_;
  int shift_;
  std::uint32_t top_;
};

std::int64_t signed32(std::uint32_t value) { return static_cast<std::int32_t>(value); }

void read_info(BmpHeader& out, Cursor info) {
  if (out.bytes == 12) {
    out.width = info.le16("the size");
    out.height = info.le16("the size");
    info.take(2, "planes");
    out.bits = info.le16("bits");
    return;
  }
  out.width = signed32(info.le32("the size"));
  out.height = signed32(info.le32("the size"));
  info.take(2, "planes");
  out.bits = info.le16("bits");
  out.compression = info.le32("compression");
  info.take(12, "sizes");
  out.colours = info.le32("colours");
  info.take(4, "important colours");
  if (out.bytes == 52 || out.bytes == 56 || out.bytes >= 108) {
    for (int i = 0; i < (out.bytes == 52 ? 3 : 4); ++i) out.masks[i] = info.le32("a bit mask");
  }
}

void check_kind(const BmpHeader& header) {
  static constexpr std::uint32_t kDepths[] = {1, 2, 4, 8, 16, 24, 32};
  const bool fields = header.compression == kFields || header.compression == kAlphaFields;
  const bool depth = std::ranges::find(kDepths, header.bits) != std::end(kDepths);
  const bool fits = (header.compression == kPlain && depth) ||
                    (header.compression == kRle8 && header.bits == 8) ||
                    (header.compression == kRle4 && header.bits == 4) ||
                    (fields && header.bytes != 64 && (header.bits == 16 || header.bits == 32));
  if (fits) return;
  refuse(kFormat, "header", "1-32 bits a pixel, plain, RLE4, RLE8 or bit fields",
         std::to_string(header.bits) + " bits, compression " + std::to_string(header.compression));
}

BmpHeader read_header(Cursor& in, const ImageLimits& limits) {
  static constexpr std::uint32_t kSizes[] = {12, 40, 52, 56, 64, 108, 124};
  BmpHeader out;
  in.take(8, "the file header");
  out.data_at = in.le32("the file header");
  out.bytes = in.le32("the header size");
  if (std::ranges::find(kSizes, out.bytes) == std::end(kSizes)) {
    refuse(kFormat, at_byte(14), "a header of 12, 40, 52, 56, 64, 108 or 124 bytes",
           std::to_string(out.bytes));
  }
  read_info(out, Cursor(in.take(out.bytes - 4, "the header")));
  out.top_down = out.height < 0;
  if (out.top_down) out.height = -out.height;
  check_size(narrow<std::uint64_t>(std::max<std::int64_t>(out.width, 0)),
             narrow<std::uint64_t>(out.height), limits, "header");
  check_kind(out);
  const bool fields = out.compression == kFields || out.compression == kAlphaFields;
  if (fields && out.bytes == 40) {
    const int count = out.compression == kFields ? 3 : 4;
    for (int i = 0; i < count; ++i) out.masks[i] = in.le32("a bit mask");
  } else if (!fields) {
    const bool deep = out.bits == 32;  // else 5 bits a channel
    const std::uint32_t usual[4] = {deep ? 0xff0000u : 0x7c00u, deep ? 0xff00u : 0x3e0u,
                                    deep ? 0xffu : 0x1fu, 0u};
    std::copy_n(usual, 4, out.masks);
  }
  if (out.data_at < in.at()) {
    refuse(kData, at_byte(10), "pixels after the header", at_byte(out.data_at));
  }
  return out;
}

// Blue, green, red (and a fourth byte that is ignored), as many as declared and present.
std::vector<Rgb> read_palette(Cursor& in, const BmpHeader& header) {
  const std::size_t entry = header.bytes == 12 ? 3 : 4;
  const std::size_t most = std::size_t{1} << header.bits;
  const std::size_t declared = header.colours == 0 ? most : header.colours;
  if (declared > most) {
    refuse(kData, "header", "at most " + std::to_string(most) + " colours",
           std::to_string(declared));
  }
  const std::size_t count = std::min(declared, (header.data_at - in.at()) / entry);
  std::vector<Rgb> out;
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes colour = in.take(entry, "a colour");
    out.push_back({colour[2], colour[1], colour[0]});
  }
  return out;
}

void generate_index(std::uint8_t* to, std::size_t index, const std::vector<Rgb>& palette) {
  if (index >= palette.size()) {
    refuse(kData, "pixel data", "indices below " + std::to_string(palette.size()),
           std::to_string(index));
  }
  std::copy_n(palette[index].data(), 3, to);
}

// The run-length codes of RLE8 and RLE4, generated from the bottom row up.
class RunWriter {
 public:
  RunWriter(const BmpHeader& header, Cursor in) : header_(header), in_(in) {
    indices_.resize(to_size(header.width * header.height));
  }

  std::vector<std::uint8_t> run() {
    for (;;) {
      const unsigned count = in_.u8("a run"), value = in_.u8("a run");
      if (count > 0) {
        for (unsigned i = 0; i < count; ++i) put(index_of(value, i));
      } else if (value == 0) {
        x_ = 0;
        ++y_;
      } else if (value == 1) {
        return std::move(indices_);
      } else if (value == 2) {
        x_ += in_.u8("a step");
        y_ += in_.u8("a step");
      } else {
        literal(value);
      }
      // The end mark may stand after the last row; nothing else may.
      if (y_ > header_.height) refuse_place();
    }
  }

 private:
  bool nibbles() const { return header_.compression == kRle4; }
  std::uint8_t index_of(unsigned value, unsigned i) const {
    if (!nibbles()) return low_bits<std::uint8_t>(value);
    return low_bits<std::uint8_t>(i % 2 == 0 ? value >> 4 : value & 15);
  }
  void literal(unsigned count) {
    const std::size_t bytes = nibbles() ? (count + 1) / 2 : count;
    const Bytes data = in_.take(bytes + bytes % 2, "pixels of a run");
    for (unsigned i = 0; i < count; ++i) put(index_of(data[nibbles() ? i / 2 : i], i));
  }
  void put(std::uint8_t index) {
    if (x_ >= header_.width || y_ >= header_.height) refuse_place();
    const std::int64_t row = header_.height - 1 - y_;
    indices_.data()[row * header_.width + x_++] = index;
  }
  [[noreturn]] void refuse_place() const {
    refuse(kData, at_byte(in_.at()), "runs inside the image",
           "one at " + std::to_string(x_) + "," + std::to_string(y_));
  }

  const BmpHeader& header_;
  Cursor in_;
  std::vector<std::uint8_t> indices_;
  std::int64_t x_ = 0, y_ = 0;  // y from the bottom
};

void write_row(const BmpHeader& header, Bytes row, std::uint8_t* to, std::int64_t channels,
               const std::vector<Rgb>& palette, const Channel (&fields)[4]) {
  for (std::int64_t x = 0; x < header.width; ++x, to += channels) {
    const auto i = to_size(x);
    if (header.bits <= 8) {
      const std::size_t bit = i * header.bits;
      const unsigned shift = 8 - header.bits - low_bits<unsigned>(bit % 8);
      generate_index(to, row[bit / 8] >> shift & ((1u << header.bits) - 1), palette);
    } else if (header.bits == 24) {
      std::reverse_copy(row.data() + 3 * i, row.data() + 3 * i + 3, to);
    } else {
      Cursor in(row, i * header.bits / 8);
      const std::uint32_t pixel = header.bits == 16 ? in.le16("a pixel") : in.le32("a pixel");
      for (std::int64_t c = 0; c < channels; ++c) to[c] = fields[c].of(pixel);
    }
  }
}

DecodedImage read_plain(Bytes file, const BmpHeader& header, const std::vector<Rgb>& palette) {
  const std::size_t stride = (to_size(header.width) * header.bits + 31) / 32 * 4;
  const auto height = to_size(header.height);
  Cursor in(file, std::min<std::size_t>(file.size(), header.data_at));
  const Bytes pixels = in.take(stride * height, "pixels");
  const Channel fields[4] = {Channel(header.masks[0]), Channel(header.masks[1]),
                             Channel(header.masks[2]), Channel(header.masks[3])};
  const bool alpha = header.bits != 24 && header.bits > 8 && header.masks[3] != 0;
  DecodedImage out(header.width, header.height, alpha ? 4 : 3, "BMP");
  for (std::size_t n = 0; n < height; ++n) {
    const auto y = to_index(header.top_down ? n : height - 1 - n);
    write_row(header, pixels.subspan(n * stride, stride), out.at(0, y), out.channels, palette,
              fields);
  }
  return out;
}

DecodedImage read_runs(Bytes file, const BmpHeader& header, const std::vector<Rgb>& palette) {
  if (header.top_down) refuse(kData, "header", "a positive height with RLE", "a negative one");
  Cursor in(file, std::min<std::size_t>(file.size(), header.data_at));
  const std::vector<std::uint8_t> indices = RunWriter(header, in).run();
  DecodedImage out(header.width, header.height, 3, "BMP");
  for (std::size_t i = 0; i < indices.size(); ++i) {
    generate_index(out.pixels.data() + 3 * i, indices[i], palette);
  }
  return out;
}

// Many writers declare an alpha channel and leave it empty: such an image is opaque.
void mend_empty_alpha(DecodedImage& image) {
  if (image.channels != 4) return;
  for (std::size_t i = 3; i < image.pixels.size(); i += 4) {
    if (image.pixels[i] != 0) return;
  }
  for (std::size_t i = 3; i < image.pixels.size(); i += 4) image.pixels[i] = 255;
  image.notes.push_back("an alpha channel of zeros is taken as opaque");
}

}  // namespace

DecodedImage read_bmp(Bytes file, const ImageLimits& limits) {
  Cursor in(file, 2);
  const BmpHeader header = read_header(in, limits);
  const std::vector<Rgb> palette = header.bits <= 8 ? read_palette(in, header) : std::vector<Rgb>();
  const bool runs = header.compression == kRle8 || header.compression == kRle4;
  DecodedImage out = runs ? read_runs(file, header, palette) : read_plain(file, header, palette);
  mend_empty_alpha(out);
  return out;
}

}  // namespace tessera::codec
