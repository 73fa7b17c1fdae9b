#include "video/codec/ffmpeg.h"

#include <cstdarg>
#include <cstring>
#include <new>

#include "video/codec/clip_reader.h"

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

void hear(void* context, int level, const char* format, va_list) {
  if (level > AV_LOG_ERROR || context == nullptr) return;
  if (*static_cast<const AVClass**>(context) != avcodec_get_class()) return;
  auto* damaged = static_cast<bool*>(static_cast<AVCodecContext*>(context)->opaque);
  if (damaged != nullptr && std::strncmp(format, "slice CRC mismatch", 18) == 0) *damaged = true;
}

}  // namespace

void listen() { av_log_set_callback(&hear); }

}  // namespace tessera::ffmpeg

namespace tessera {

void settle_clip_codecs(std::size_t most_bytes) {
  ffmpeg::listen();
  av_cpu_force_count(1);
  av_get_cpu_flags();
  av_max_alloc(most_bytes);
}

}  // namespace tessera
