#include "video/codec/ffmpeg.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdlib>
#include <new>
#include <string_view>

#include "video/codec/video_reader.h"

namespace tessera::ffmpeg {

void fail(const char* code, std::string where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

std::string words_of(int result) {
  if (result == AVERROR(ENOMEM)) throw std::bad_alloc();
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(result, text, sizeof text);
  return text;
}

namespace {

// How messages begin that tell of pixels made up, whatever their level: the decoders go on.
constexpr std::array<std::string_view, 10> kMadeUp = {
    "slice CRC mismatch",
    "Frame num gap",
    "Missing reference picture",
    "reference picture missing during reorder",
    "co located POCs unavailable",
    "Could not find ref with POC",
    "number of reference frames (%d+%d) exceeds max",
    "concealing ",
    "warning: first frame is no keyframe",
    "Reference not available",
};

void hear(void* context, int level, const char* format, va_list) {
  if (context == nullptr) return;
  const auto* kind = *static_cast<const AVClass**>(context);
  if (kind == avcodec_get_class()) {
    auto* damaged = static_cast<bool*>(static_cast<AVCodecContext*>(context)->opaque);
    const std::string_view text = format;
    const bool made_up = std::any_of(kMadeUp.begin(), kMadeUp.end(), [&](std::string_view words) {
      return text.starts_with(words);
    });
    if (damaged != nullptr && made_up) *damaged = true;
  } else if (kind == avformat_get_class() && level <= AV_LOG_ERROR) {
    const auto* input = static_cast<AVFormatContext*>(context);
    auto* complained = static_cast<bool*>(input->opaque);
    const bool skips =
        input->iformat != nullptr && std::string_view(input->iformat->name).starts_with("matroska");
    if (complained != nullptr && skips) *complained = true;
  }
}

}  // namespace

void listen() { av_log_set_callback(&hear); }

}  // namespace tessera::ffmpeg

namespace tessera {

namespace {

// The C library's qsort() asks the system for its memory when it first sorts more than a few bytes,
// which the walls forbid: libwebp and others sort with it.
void settle_sorting() {
  std::array<int, 4096> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i * 2654435761u);
  std::qsort(numbers.data(), numbers.size(), sizeof numbers[0], [](const void* a, const void* b) {
    const int x = *static_cast<const int*>(a), y = *static_cast<const int*>(b);
    return x < y ? -1 : x > y ? 1 : 0;
  });
}

}  // namespace

void settle_video_codecs(std::size_t max_bytes) {
  ffmpeg::listen();
  av_cpu_force_count(1);
  av_get_cpu_flags();
  tzset();  // dates of files are notified in words; the first asks for the time zone's file
  av_max_alloc(max_bytes);
  settle_sorting();
}

}  // namespace tessera
