// FFmpeg's structures as owned values, and the error every call shares. Internal to video/codec.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/cpu.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/mem.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <string>

#include "video/video.h"

namespace tessera::ffmpeg {

template <auto Free>
struct FreeByPointer {
  template <typename T>
  void operator()(T* value) const {
    Free(&value);
  }
};
struct FreeInput {
  void operator()(AVFormatContext* value) const { avformat_close_input(&value); }
};
struct FreeOutput {
  void operator()(AVFormatContext* value) const { avformat_free_context(value); }
};
struct FreeIo {
  void operator()(AVIOContext* value) const {
    if (value == nullptr) return;
    av_freep(&value->buffer);
    avio_context_free(&value);
  }
};
struct FreeScaler {
  void operator()(SwsContext* value) const { sws_freeContext(value); }
};

using Input = std::unique_ptr<AVFormatContext, FreeInput>;
using Output = std::unique_ptr<AVFormatContext, FreeOutput>;
using Io = std::unique_ptr<AVIOContext, FreeIo>;
using Codec = std::unique_ptr<AVCodecContext, FreeByPointer<avcodec_free_context>>;
using Frame = std::unique_ptr<AVFrame, FreeByPointer<av_frame_free>>;
using Packet = std::unique_ptr<AVPacket, FreeByPointer<av_packet_free>>;
using Scaler = std::unique_ptr<SwsContext, FreeScaler>;

[[noreturn]] void fail(const char* code, std::string where, std::string expected,
                       std::string found);
// FFmpeg's words for one of its negative results; bad_alloc for ENOMEM.
std::string words_of(int result);

// FFmpeg says nothing on its own. What a codec context with an `opaque` complains about sets the
// bool there if it means lost pixels that its results do not tell (FFV1's checksums, images that
// refer to missing ones); so do errors of a demuxer with an `opaque` that leaves out what it cannot
// read.
void listen();

}  // namespace tessera::ffmpeg
