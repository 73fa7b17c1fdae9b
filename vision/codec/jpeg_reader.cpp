// JPEG through libjpeg-turbo. Warnings that mean lost pixels are errors, since libjpeg fills what
// it cannot read with gray; progressive files may have 100 scans at most.
#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <new>

// After <cstdio>, and in this order: each needs what stands before it.
#include <jpeglib.h>

#include <jerror.h>

#include "engine/core/index.h"
#include "vision/codec/readers.h"

namespace tessera::codec {

namespace {

constexpr int kMaxScans = 100;

// All that libjpeg's callbacks and the code between setjmp and longjmp touch.
struct JpegJob {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf jump = {};
  char message[JMSG_LENGTH_MAX] = {};
  int failure = 0;  // message code of what ended the work
  long warnings = 0;

  ~JpegJob() { jpeg_destroy_decompress(&info); }
};

JpegJob& job_of(j_common_ptr info) { return *static_cast<JpegJob*>(info->client_data); }

[[noreturn]] void stop(j_common_ptr info) {
  JpegJob& job = job_of(info);
  job.failure = info->err->msg_code;
  (*info->err->format_message)(info, job.message);
  std::longjmp(job.jump, 1);
}

bool loses_pixels(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC;
}

void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;  // a trace message
  if (loses_pixels(info->err->msg_code)) stop(info);
  ++job_of(info).warnings;
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  JpegJob& job = job_of(info);
  std::snprintf(job.message, sizeof job.message, "more than %d scans", kMaxScans);
  std::longjmp(job.jump, 1);
}

void quiet(j_common_ptr) {}

// No local of the two functions below has a destructor: libjpeg may jump out of them.
bool read_header(JpegJob& job, const std::uint8_t* data, std::size_t size) {
  job.info.err = jpeg_std_error(&job.errors);
  job.errors.error_exit = &stop;
  job.errors.emit_message = &on_message;
  job.errors.output_message = &quiet;
  job.info.client_data = &job;
  if (setjmp(job.jump) != 0) return false;
  jpeg_create_decompress(&job.info);
  job.progress.progress_monitor = &on_progress;
  job.info.progress = &job.progress;
  jpeg_mem_src(&job.info, data, size);
  jpeg_read_header(&job.info, TRUE);
  const bool four_inks =
      job.info.jpeg_color_space == JCS_CMYK || job.info.jpeg_color_space == JCS_YCCK;
  job.info.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
  return true;
}

// CMYK as it is stored in practice: inverted, whether or not an Adobe marker says so (Pillow reads
// it so too). Each colour loses the share that black ink covers.
void inks_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::int64_t width) {
  for (std::int64_t x = 0; x < width; ++x, from += 4, to += 3) {
    const unsigned light = from[3];  // 255 - black
    for (int c = 0; c < 3; ++c) {
      const unsigned product = (255u - from[c]) * light + 128;
      to[c] = low_bits<std::uint8_t>(light - ((product + (product >> 8)) >> 8));
    }
  }
}

bool read_rows(JpegJob& job, DecodedImage& out, std::uint8_t* inks) {
  if (setjmp(job.jump) != 0) return false;
  jpeg_start_decompress(&job.info);
  while (job.info.output_scanline < job.info.output_height) {
    std::uint8_t* to = out.at(0, job.info.output_scanline);
    JSAMPROW row = inks != nullptr ? inks : to;
    if (jpeg_read_scanlines(&job.info, &row, 1) == 1 && inks != nullptr) {
      inks_to_rgb(inks, to, out.width);
    }
  }
  jpeg_finish_decompress(&job.info);
  return true;
}

[[noreturn]] void fail(const JpegJob& job) {
  const bool cut = job.failure == JWRN_JPEG_EOF || job.failure == JERR_INPUT_EOF ||
                   job.failure == JERR_INPUT_EMPTY || job.failure == JWRN_HIT_MARKER;
  if (job.failure == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
  refuse(cut ? kCut : kData, "", cut ? "a whole JPEG" : "a JPEG that can be read", job.message);
}

// The EXIF block of the first APP1 segment that has one; segments end where the scan begins.
Bytes find_exif(Bytes file) {
  static constexpr std::uint8_t kExif[] = {'E', 'x', 'i', 'f', 0, 0};
  std::size_t at = 2;
  while (file.size() - at >= 4 && file[at] == 0xff) {
    const unsigned marker = file[at + 1];
    if (marker == 0xff) {
      ++at;  // fill byte
      continue;
    }
    if (marker == 0xda || marker == 0xd9 || marker == 0 || (marker >= 0xd0 && marker <= 0xd8))
      break;
    const std::size_t length = std::size_t{file[at + 2]} << 8 | file[at + 3];
    if (length < 2 || length > file.size() - at - 2) break;
    const Bytes body = file.subspan(at + 4, length - 2);
    if (marker == 0xe1 && body.size() > sizeof kExif &&
        std::equal(std::begin(kExif), std::end(kExif), body.begin())) {
      return body.subspan(sizeof kExif);
    }
    at += 2 + length;
  }
  return {};
}

}  // namespace

DecodedImage read_jpeg(Bytes file, const ImageLimits& limits) {
  JpegJob job;
  if (!read_header(job, file.data(), file.size())) fail(job);
  check_size(job.info.image_width, job.info.image_height, limits, "frame header");
  DecodedImage out(job.info.image_width, job.info.image_height, 3, "JPEG");
  std::vector<std::uint8_t> inks;
  if (job.info.out_color_space == JCS_CMYK) inks.resize(to_size(out.width) * 4);
  if (!read_rows(job, out, inks.empty() ? nullptr : inks.data())) fail(job);
  if (job.warnings > 0) out.notes.push_back("the JPEG breaks rules that cost no pixels");
  const Bytes exif = find_exif(file);
  const int orientation = exif.empty() ? 0 : exif_orientation(exif, out.notes);
  return upright(std::move(out), orientation);
}

}  // namespace tessera::codec
