// PNG (PNG specification, third edition). The chunks are walked here; libpng is given IHDR, PLTE,
// tRNS, IDAT and IEND only, so that colour profiles, texts and other chunks reach no decoder.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "engine/core/index.h"
#include "vision/codec/readers.h"

namespace tessera::codec {

namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kMaxChunks = std::size_t{1} << 20;
// Deflate packs at most 1032 bytes into one; a file that would need more is cut or a bomb.
constexpr std::uint64_t kMaxRatio = 1100;

struct PngHeader {
  std::uint32_t width, height;
  unsigned depth, colour_type, interlaced;
};

struct Layout {
  PngHeader header;
  std::vector<Bytes> parts;      // what libpng reads, one after the other
  std::uint64_t data_bytes = 0;  // of all IDAT chunks
  int orientation = 0;
};

bool checksum_is_right(Bytes type_and_data, std::uint32_t want) {
  return crc32(0, type_and_data.data(), narrow<uInt>(type_and_data.size())) == want;
}

PngHeader read_header(Bytes data, const ImageLimits& limits) {
  if (data.size() != 13) refuse(kData, at_byte(8), "IHDR of 13 bytes", std::to_string(data.size()));
  Cursor in(data);
  PngHeader header = {};
  header.width = in.be32("width");
  header.height = in.be32("height");
  header.depth = in.u8("depth");
  header.colour_type = in.u8("colour type");
  header.interlaced = data[12];
  check_size(header.width, header.height, limits, "IHDR");
  return header;
}

// Bytes of filtered rows that the pixel data unpack to, without the few of interlacing.
std::uint64_t unpacked_bytes(const PngHeader& header) {
  static constexpr unsigned kSamples[] = {1, 0, 3, 1, 2, 0, 4};
  const unsigned samples = header.colour_type < 7 ? kSamples[header.colour_type] : 0;
  const std::uint64_t bits = std::uint64_t{header.width} * samples * header.depth;
  return (bits + 7) / 8 * header.height;
}

Layout walk_chunks(Bytes file, const ImageLimits& limits, std::vector<std::string>& notes) {
  Layout out;
  out.parts.push_back(file.first(kSignatureBytes));
  Cursor in(file, kSignatureBytes);
  for (std::size_t chunks = 0;; ++chunks) {
    const std::size_t begin = in.at();
    if (chunks == kMaxChunks) refuse(kData, at_byte(begin), "at most 2^20 chunks", "more");
    const std::uint32_t length = in.be32("a chunk");
    const Bytes type = in.take(4, "a chunk type");
    const std::string_view name(reinterpret_cast<const char*>(type.data()), 4);
    const Bytes data = in.take(length, "a chunk");
    const bool intact =
        checksum_is_right(file.subspan(begin + 4, 4 + std::size_t{length}), in.be32("a checksum"));
    if ((chunks == 0) != (name == "IHDR")) {
      refuse(kData, at_byte(begin), "IHDR as the first chunk and nowhere else", "another order");
    }
    const bool wanted = name == "IHDR" || name == "PLTE" || name == "IDAT" || name == "IEND";
    const bool critical = (type[0] & 0x20) == 0;
    if ((critical || name == "tRNS") && !intact) {
      refuse(kData, at_byte(begin), "a chunk with its checksum", "another checksum");
    }
    if (critical && !wanted) {
      refuse(kFormat, at_byte(begin), "chunks of the PNG specification",
             "a critical chunk next to them");
    }
    if (chunks == 0) out.header = read_header(data, limits);
    if (name == "IDAT") out.data_bytes += length;
    if (name == "eXIf" && intact) out.orientation = exif_orientation(data, notes);
    if (wanted || name == "tRNS")
      out.parts.push_back(file.subspan(begin, 12 + std::size_t{length}));
    if (name == "IEND") return out;
  }
}

// All that libpng's callbacks and the code between setjmp and longjmp touch.
struct PngJob {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const std::vector<Bytes>* parts = nullptr;
  std::size_t part = 0, offset = 0;
  int passes = 1;
  png_uint_32 height = 0;
  char message[160] = {};

  ~PngJob() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_error(png_structp png, png_const_charp message) {
  PngJob* job = static_cast<PngJob*>(png_get_error_ptr(png));
  std::snprintf(job->message, sizeof job->message, "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void feed(png_structp png, png_bytep to, std::size_t count) {
  PngJob* job = static_cast<PngJob*>(png_get_io_ptr(png));
  while (count > 0) {
    if (job->part == job->parts->size()) png_error(png, "the end of the file");
    const Bytes& part = (*job->parts)[job->part];
    const std::size_t step = std::min(count, part.size() - job->offset);
    std::memcpy(to, part.data() + job->offset, step);
    to += step;
    count -= step;
    job->offset += step;
    if (job->offset == part.size()) {
      ++job->part;
      job->offset = 0;
    }
  }
}

// No local of the two functions below has a destructor: libpng may jump out of them.
bool read_info(PngJob& job, const ImageLimits& limits) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;
  png_set_read_fn(job.png, &job, &feed);
  png_set_user_limits(job.png, narrow<png_uint_32>(limits.side), narrow<png_uint_32>(limits.side));
  png_read_info(job.png, job.info);
  png_set_expand(job.png);    // palettes to RGB, few bits to 8, tRNS to alpha
  png_set_strip_16(job.png);  // the upper byte, as Pillow's readers take it
  png_set_gray_to_rgb(job.png);
  job.passes = png_set_interlace_handling(job.png);
  png_read_update_info(job.png, job.info);
  return true;
}

bool read_rows(PngJob& job, std::uint8_t* pixels, std::size_t stride) {
  if (setjmp(png_jmpbuf(job.png)) != 0) return false;
  for (int pass = 0; pass < job.passes; ++pass) {
    for (png_uint_32 y = 0; y < job.height; ++y) {
      png_read_row(job.png, pixels + y * stride, nullptr);
    }
  }
  png_read_end(job.png, nullptr);
  return true;
}

[[noreturn]] void fail(const PngJob& job) {
  const std::string message = job.message;
  const bool cut = message.find("Not enough image data") != std::string::npos ||
                   message.find("the end of the file") != std::string::npos;
  refuse(cut ? kCut : kData, "pixel data", cut ? "a whole image" : "an intact PNG", message);
}

}  // namespace

DecodedImage read_png(Bytes file, const ImageLimits& limits) {
  std::vector<std::string> notes;
  const Layout layout = walk_chunks(file, limits, notes);
  const std::uint64_t needed = unpacked_bytes(layout.header);
  if (needed > kMaxRatio * layout.data_bytes) {
    refuse(kCut, "IDAT",
           "at least " + std::to_string(needed / kMaxRatio + 1) + " bytes of pixel data",
           std::to_string(layout.data_bytes));
  }
  PngJob job;
  job.parts = &layout.parts;
  job.height = layout.header.height;
  job.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, &on_error, &on_warning);
  if (job.png != nullptr) job.info = png_create_info_struct(job.png);
  if (job.info == nullptr) throw std::bad_alloc();
  if (!read_info(job, limits)) fail(job);
  const std::int64_t channels = png_get_channels(job.png, job.info);
  expects(channels == 3 || channels == 4, "libpng gives RGB or RGBA");
  DecodedImage out(layout.header.width, layout.header.height, channels, "PNG");
  out.notes = std::move(notes);
  const std::size_t stride = to_size(out.width * channels);
  expects(png_get_rowbytes(job.png, job.info) == stride, "libpng gives 8-bit samples");
  if (!read_rows(job, out.pixels.data(), stride)) fail(job);
  return upright(std::move(out), layout.orientation);
}

}  // namespace tessera::codec
