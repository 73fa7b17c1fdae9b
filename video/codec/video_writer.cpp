// Encoders are looked up by name, so that a build without one of them takes the next.
#include "video/codec/video_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/core/index.h"
#include "video/codec/ffmpeg.h"
#include "video/codec/frame_times.h"
#include "video/codec/palette.h"
#include "video/codec/sink_io.h"
#include "video/codec/webp_writer.h"

namespace tessera {

using ffmpeg::fail;
using ffmpeg::words_of;

namespace {

constexpr std::int64_t kMinSide = 16, kMaxSide = 8192;
// Of GIF, in hundredths of a second. What stays for less than two is shown for ten by its viewers.
constexpr std::int64_t kGifUnits = 100, kMinGifStay = 2, kMaxGifStay = 65535;

struct Encoder {
  VideoCodec codec;
  const char* name;
  AVPixelFormat pixels;
};
constexpr std::array<Encoder, 6> kEncoders = {{
    {VideoCodec::kH264, "libx264", AV_PIX_FMT_YUV420P},
    {VideoCodec::kMpeg4, "mpeg4", AV_PIX_FMT_YUV420P},
    {VideoCodec::kVp9, "libvpx-vp9", AV_PIX_FMT_YUV420P},
    {VideoCodec::kAv1, "libaom-av1", AV_PIX_FMT_YUV420P},
    {VideoCodec::kFfv1, "ffv1", AV_PIX_FMT_BGR0},
    {VideoCodec::kGif, "gif", AV_PIX_FMT_PAL8},
}};

std::span<const VideoCodec> codecs_of(VideoContainer container) {
  static constexpr std::array kMp4 = {VideoCodec::kH264, VideoCodec::kMpeg4};
  static constexpr std::array kWebm = {VideoCodec::kVp9, VideoCodec::kAv1};
  static constexpr std::array kMatroska = {VideoCodec::kFfv1, VideoCodec::kH264, VideoCodec::kVp9,
                                           VideoCodec::kAv1};
  if (container == VideoContainer::kMp4) return kMp4;
  static constexpr std::array kWebp = {VideoCodec::kWebp};
  static constexpr std::array kGif = {VideoCodec::kGif};
  if (container == VideoContainer::kWebm) return kWebm;
  if (container == VideoContainer::kWebp) return kWebp;
  if (container == VideoContainer::kGif) return kGif;
  return kMatroska;
}

const Encoder& encoder_of(VideoCodec codec) {
  return *std::find_if(kEncoders.begin(), kEncoders.end(),
                       [&](const Encoder& encoder) { return encoder.codec == codec; });
}

const char* muxer_of(VideoContainer container) {
  return container == VideoContainer::kMp4    ? "mp4"
         : container == VideoContainer::kWebm ? "webm"
         : container == VideoContainer::kGif  ? "gif"
                                             : "matroska";
}

// quality 100 .. 1 as the codec's own scale from `best` to `worst`.
std::string scaled(int quality, int best, int worst) {
  return std::to_string(best + (100 - quality) * (worst - best) / 99);
}

void set_quality(AVCodecContext& codec, VideoCodec kind, int quality) {
  void* options = codec.priv_data;
  switch (kind) {
    case VideoCodec::kH264:
      av_opt_set(options, "preset", "medium", 0);
      av_opt_set(options, "crf", scaled(quality, 12, 40).c_str(), 0);
      break;
    case VideoCodec::kMpeg4:
      codec.flags |= AV_CODEC_FLAG_QSCALE;
      codec.global_quality = FF_QP2LAMBDA * std::stoi(scaled(quality, 2, 24));
      break;
    case VideoCodec::kVp9:
      codec.bit_rate = 0;
      av_opt_set(options, "crf", scaled(quality, 10, 55).c_str(), 0);
      av_opt_set(options, "cpu-used", "4", 0);
      break;
    case VideoCodec::kAv1:
      codec.bit_rate = 0;
      av_opt_set(options, "crf", scaled(quality, 12, 55).c_str(), 0);
      av_opt_set(options, "cpu-used", "6", 0);
      break;
    case VideoCodec::kFfv1:
      codec.level = 3;
      av_opt_set(options, "slicecrc", "1", 0);
      break;
    case VideoCodec::kGif:
      av_opt_set(options, "gifflags", "offsetting",
                 0);  // no pixel is left out for a see-through one
      break;
    case VideoCodec::kAuto:
    case VideoCodec::kWebp:
      break;
  }
}

void check(const VideoFormat& format, VideoCodec codec) {
  const std::int64_t low = std::min(format.width, format.height);
  const std::int64_t high = std::max(format.width, format.height);
  if (low < kMinSide || high > kMaxSide) {
    fail("E_VIDEO_SIZE", "", "sides of 16 to 8192 pixels",
         std::to_string(format.width) + "x" + std::to_string(format.height));
  }
  const bool halves =
      codec != VideoCodec::kFfv1 && codec != VideoCodec::kGif && codec != VideoCodec::kWebp;
  if (halves && (format.width % 2 != 0 || format.height % 2 != 0)) {
    fail("E_VIDEO_SIZE", "", "even sides for " + std::string(name_of(codec)) + ", or ffv1 in mkv",
         std::to_string(format.width) + "x" + std::to_string(format.height));
  }
  expects(format.tick.num > 0 && format.tick.den > 0 && format.tick.num <= INT32_MAX &&
              format.tick.den <= INT32_MAX,
          "a tick of the video's time");
  expects(format.quality >= 1 && format.quality <= 100, "a quality of 1 to 100");
  expects(format.comment.find('\0') == std::string::npos, "a comment without NUL");
}

}  // namespace

std::vector<VideoCodec> codecs_for(VideoContainer container) {
  std::vector<VideoCodec> out;
  for (const VideoCodec codec : codecs_of(container)) {
    const bool there = codec == VideoCodec::kWebp ||  // which comes from libwebp
                       avcodec_find_encoder_by_name(encoder_of(codec).name) != nullptr;
    if (there) out.push_back(codec);
  }
  return out;
}

namespace {

VideoCodec choose(const VideoFormat& wanted) {
  const std::vector<VideoCodec> there = codecs_for(wanted.container);
  std::string names;
  for (const VideoCodec codec : there)
    names += (names.empty() ? "" : ", ") + std::string(name_of(codec));
  const bool any = wanted.codec == VideoCodec::kAuto && !there.empty();
  if (any) return there.front();
  if (std::find(there.begin(), there.end(), wanted.codec) != there.end()) return wanted.codec;
  fail("E_VIDEO_CODEC", "",
       "a codec for " + std::string(name_of(wanted.container)) + ": " +
           (names.empty() ? "none is there" : names),
       std::string(name_of(wanted.codec)));
}

}  // namespace

// All containers but WebP.
struct VideoWriter::Ffmpeg {
  VideoFormat format;
  VideoCodec kind;
  SinkIo io;
  ffmpeg::Output output;
  ffmpeg::Codec codec;
  ffmpeg::Frame frame{av_frame_alloc()};
  ffmpeg::Packet packet{av_packet_alloc()};
  ffmpeg::Scaler scaler;
  std::vector<std::uint8_t> indices;  // of the frame's colours
  AVStream* stream = nullptr;
  std::int64_t last = INT64_MIN, step = 1;  // ticks; of the frame before and to it

  std::optional<FrameTimes> hundredths;  // GIF's

  Ffmpeg(VideoSink& sink, const VideoFormat& wanted, VideoCodec taken)
      : format(wanted), kind(taken), io(sink) {
    if (!frame || !packet) throw std::bad_alloc();
    if (kind == VideoCodec::kGif) {
      hundredths.emplace(format.tick, kGifUnits, kMinGifStay, kMaxGifStay);
    }
    AVFormatContext* context = nullptr;
    if (avformat_alloc_output_context2(&context, nullptr, muxer_of(format.container), nullptr) <
        0) {
      fail("E_VIDEO_CODEC", "", std::string("a writer of ") + muxer_of(format.container), "none");
    }
    output.reset(context);
    output->pb = io.context();
    output->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
    open_encoder();
    open_stream();
  }

  void open_encoder() {
    const Encoder& encoder = encoder_of(kind);
    const AVCodec* found = avcodec_find_encoder_by_name(encoder.name);
    codec.reset(avcodec_alloc_context3(found));
    if (!codec) throw std::bad_alloc();
    codec->width = narrow<int>(format.width);
    codec->height = narrow<int>(format.height);
    codec->pix_fmt = encoder.pixels;
    codec->time_base = {narrow<int>(format.tick.num), narrow<int>(format.tick.den)};
    if (hundredths) codec->time_base = {1, kGifUnits};
    codec->framerate = {codec->time_base.den, codec->time_base.num};
    codec->thread_count = 1;
    codec->gop_size = 48;
    codec->flags |= AV_CODEC_FLAG_BITEXACT;
    if (encoder.pixels == AV_PIX_FMT_YUV420P) {
      codec->colorspace = AVCOL_SPC_BT709;
      codec->color_primaries = AVCOL_PRI_BT709;
      codec->color_trc = AVCOL_TRC_BT709;
      codec->color_range = AVCOL_RANGE_MPEG;
    }
    if ((output->oformat->flags & AVFMT_GLOBALHEADER) != 0) {
      codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    }
    set_quality(*codec, kind, format.quality);
    const int opened = avcodec_open2(codec.get(), found, nullptr);
    if (opened < 0) {
      fail("E_VIDEO_CODEC", "", std::string("an encoder that starts, ") + encoder.name,
           words_of(opened));
    }
    frame->format = codec->pix_fmt;
    frame->width = codec->width;
    frame->height = codec->height;
    if (av_frame_get_buffer(frame.get(), 0) < 0) throw std::bad_alloc();
  }

  void open_stream() {
    stream = avformat_new_stream(output.get(), nullptr);
    if (stream == nullptr || avcodec_parameters_from_context(stream->codecpar, codec.get()) < 0) {
      throw std::bad_alloc();
    }
    stream->time_base = codec->time_base;
    stream->avg_frame_rate = codec->framerate;
    if (!format.comment.empty()) {
      av_dict_set(&output->metadata, "comment", format.comment.c_str(), 0);
    }
    const int begun = avformat_write_header(output.get(), nullptr);
    io.rethrow();
    if (begun < 0) fail("E_VIDEO_CODEC", "", "a container that takes the video", words_of(begun));
  }

  void fill_indices(std::span<const std::uint8_t> rgb) {
    indices.resize(rgb.size() / 3);
    const GifPalette palette = quantize(rgb, indices);
    std::memcpy(frame->data[1], palette.colours.data(), sizeof palette.colours);
    const auto width = to_size(format.width);
    for (std::int64_t y = 0; y < format.height; ++y) {
      std::memcpy(frame->data[0] + y * frame->linesize[0], indices.data() + to_size(y) * width,
                  width);
    }
  }

  void fill(std::span<const std::uint8_t> rgb) {
    if (av_frame_make_writable(frame.get()) < 0) throw std::bad_alloc();
    if (codec->pix_fmt == AV_PIX_FMT_PAL8) return fill_indices(rgb);
    const auto width = to_size(format.width);
    if (codec->pix_fmt == AV_PIX_FMT_BGR0) {
      for (std::int64_t y = 0; y < format.height; ++y) {
        const std::uint8_t* from = rgb.data() + to_size(y) * width * 3;
        std::uint8_t* to = frame->data[0] + y * frame->linesize[0];
        for (std::size_t x = 0; x < width; ++x, from += 3, to += 4) {
          to[0] = from[2];
          to[1] = from[1];
          to[2] = from[0];
          to[3] = 255;
        }
      }
      return;
    }
    if (!scaler) {
      scaler.reset(sws_getContext(
          codec->width, codec->height, AV_PIX_FMT_RGB24, codec->width, codec->height,
          codec->pix_fmt,
          SWS_BILINEAR | SWS_BITEXACT | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP,
          nullptr, nullptr, nullptr));
      if (!scaler) fail("E_VIDEO_CODEC", "", "a conversion to the encoder's pixels", "none");
      const int* matrix = sws_getCoefficients(SWS_CS_ITU709);
      sws_setColorspaceDetails(scaler.get(), matrix, 1, matrix, 0, 0, 1 << 16, 1 << 16);
    }
    // The scaler may read past a row's end: a copy with room after it.
    std::vector<std::uint8_t> padded(rgb.size() + 64);
    std::memcpy(padded.data(), rgb.data(), rgb.size());
    const std::uint8_t* planes[1] = {padded.data()};
    const int strides[1] = {narrow<int>(width * 3)};
    sws_scale(scaler.get(), planes, strides, 0, codec->height, frame->data, frame->linesize);
  }

  void write_packets() {
    while (true) {
      const int got = avcodec_receive_packet(codec.get(), packet.get());
      if (got == AVERROR(EAGAIN) || got == AVERROR_EOF) return;
      if (got < 0) fail("E_VIDEO_CODEC", "", "a frame that can be encoded", words_of(got));
      packet->stream_index = stream->index;
      if (packet->duration == 0) packet->duration = step;
      av_packet_rescale_ts(packet.get(), codec->time_base, stream->time_base);
      const int put = av_interleaved_write_frame(output.get(), packet.get());
      io.rethrow();
      if (put < 0) fail("E_VIDEO_CODEC", "", "a packet that can be written", words_of(put));
    }
  }

  void put(std::span<const std::uint8_t> rgb, std::int64_t ticks) {
    if (last != INT64_MIN && ticks <= last) {
      fail("E_VIDEO_TIME", "", "a time after tick " + std::to_string(last),
           "tick " + std::to_string(ticks));
    }
    const std::int64_t shown = hundredths ? hundredths->begin(ticks) : ticks;
    if (last != INT64_MIN) step = ticks - last;
    last = ticks;
    fill(rgb);
    frame->pts = shown;
    const int sent = avcodec_send_frame(codec.get(), frame.get());
    if (sent < 0) fail("E_VIDEO_CODEC", "", "a frame that can be encoded", words_of(sent));
    write_packets();
  }

  void finish(std::int64_t end_ticks) {
    if (end_ticks > last) step = end_ticks - last;
    if (hundredths) {
      av_opt_set_int(output->priv_data, "final_delay", hundredths->last_stay(end_ticks), 0);
    }
    avcodec_send_frame(codec.get(), nullptr);
    write_packets();
    const int ended = av_write_trailer(output.get());
    io.rethrow();
    if (ended < 0) fail("E_VIDEO_CODEC", "", "an end that can be written", words_of(ended));
  }
};

VideoWriter::VideoWriter(VideoSink& sink, const VideoFormat& format)
    : format_(format), kind_(choose(format)) {
  check(format, kind_);
  if (kind_ == VideoCodec::kWebp) {
    webp_ = std::make_unique<WebpWriter>(sink, format);
  } else {
    ffmpeg_ = std::make_unique<Ffmpeg>(sink, format, kind_);
  }
}
VideoWriter::~VideoWriter() = default;

void VideoWriter::put(std::span<const std::uint8_t> rgb, std::int64_t ticks) {
  expects(!ended_, "a video that is not finished");
  expects(rgb.size() == to_size(format_.width * format_.height * 3), "a frame of the video's size");
  if (webp_) {
    webp_->put(rgb, ticks);
  } else {
    ffmpeg_->put(rgb, ticks);
  }
  ++frames_;
}

void VideoWriter::finish(std::int64_t end_ticks) {
  expects(!ended_, "a video that is not finished");
  if (frames_ == 0) fail("E_VIDEO_EMPTY", "", "at least one frame", "none");
  ended_ = true;
  if (webp_) {
    webp_->finish(end_ticks);
  } else {
    ffmpeg_->finish(end_ticks);
  }
}

}  // namespace tessera
