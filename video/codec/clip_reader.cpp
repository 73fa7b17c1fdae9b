// Demuxing through callbacks on bytes that somebody else reads, decoding on one thread, conversion
// to RGB, upright. Whatever the decoder mended by guessing is refused.
#include "video/codec/clip_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "video/codec/ffmpeg.h"

namespace tessera {

using ffmpeg::fail;
using ffmpeg::words_of;

namespace {

constexpr int kIoBytes = 64 << 10;
constexpr int kMostStreams = 64;
constexpr std::int64_t kMicro = 1'000'000;

// AVIOContext over FileBytes. What the bytes throw is kept and thrown again outside of FFmpeg.
class BytesIo {
 public:
  explicit BytesIo(FileBytes& bytes) : bytes_(bytes) {
    auto* buffer = static_cast<unsigned char*>(av_malloc(kIoBytes));
    if (buffer == nullptr) throw std::bad_alloc();
    io_.reset(avio_alloc_context(buffer, kIoBytes, 0, this, &read, nullptr, &seek));
    if (!io_) {
      av_free(buffer);
      throw std::bad_alloc();
    }
  }
  BytesIo(const BytesIo&) = delete;
  BytesIo& operator=(const BytesIo&) = delete;
  AVIOContext* context() const { return io_.get(); }
  void rethrow() {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  static int read(void* self, std::uint8_t* data, int count) {
    auto& io = *static_cast<BytesIo*>(self);
    try {
      const std::size_t got = io.bytes_.read(io.at_, data, static_cast<std::size_t>(count));
      io.at_ += got;
      return got == 0 ? AVERROR_EOF : static_cast<int>(got);
    } catch (...) {
      io.thrown_ = std::current_exception();
      return AVERROR(EIO);
    }
  }
  static std::int64_t seek(void* self, std::int64_t offset, int whence) {
    auto& io = *static_cast<BytesIo*>(self);
    const auto size = static_cast<std::int64_t>(io.bytes_.size());
    if (whence == AVSEEK_SIZE) return size;
    if (whence == SEEK_CUR) offset += static_cast<std::int64_t>(io.at_);
    if (whence == SEEK_END) offset += size;
    if (offset < 0) return AVERROR(EINVAL);
    io.at_ = static_cast<std::uint64_t>(offset);
    return offset;
  }

  FileBytes& bytes_;
  std::uint64_t at_ = 0;
  std::exception_ptr thrown_;
  ffmpeg::Io io_;
};

// Nothing but the file itself is ever opened.
int refuse_open(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EPERM);
}

const char* demuxer_of(std::string_view container) {
  return container == "mp4" ? "mov" : container == "avi" ? "avi" : "matroska";
}

// An EBML number of 1 to 8 bytes with its length marker cleared; all ones is "unknown". 0 bytes
// taken where there is none (RFC 8794, section 4).
struct EbmlNumber {
  std::size_t taken = 0;
  std::uint64_t value = 0;
  bool unknown = false;
};
EbmlNumber ebml_number(std::span<const std::uint8_t> bytes) {
  if (bytes.empty() || bytes[0] == 0) return {};
  const auto length = static_cast<std::size_t>(std::countl_zero(bytes[0])) + 1;
  if (bytes.size() < length) return {};
  std::uint64_t value = bytes[0] & (0xffu >> length);
  for (std::size_t i = 1; i < length; ++i) value = value << 8 | bytes[i];
  return {length, value, value == (std::uint64_t{1} << (7 * length)) - 1};
}

// How many bytes the file says it has, 0 if it does not: the first segment of Matroska, the first
// chunk of RIFF.
std::uint64_t claimed_end(std::string_view container, std::span<const std::uint8_t> start) {
  if (container == "avi" && start.size() >= 8) {
    return 8 + (std::uint64_t{start[4]} | std::uint64_t{start[5]} << 8 |
                std::uint64_t{start[6]} << 16 | std::uint64_t{start[7]} << 24);
  }
  if (container != "matroska" || start.size() < 5) return 0;
  const EbmlNumber header = ebml_number(start.subspan(4));
  std::uint64_t at = 4 + header.taken + header.value;
  constexpr std::array<std::uint8_t, 4> kSegment = {0x18, 0x53, 0x80, 0x67};
  if (header.taken == 0 || at + 4 > start.size() ||
      !std::equal(kSegment.begin(), kSegment.end(),
                  start.begin() + static_cast<std::ptrdiff_t>(at))) {
    return 0;
  }
  const EbmlNumber segment = ebml_number(start.subspan(at + 4));
  if (segment.taken == 0 || segment.unknown) return 0;
  return at + 4 + segment.taken + segment.value;
}

// How stored frames become upright: quarter turns clockwise, then a mirror from left to right.
struct Turn {
  int quarters = 0;
  bool mirrored = false;
};

// The display matrix maps stored places to shown ones: x' = a x + c y, y' = b x + d y.
Turn turn_of(const std::int32_t* matrix, std::vector<std::string>& notes) {
  const std::int64_t a = matrix[0], b = matrix[1], c = matrix[3], d = matrix[4];
  if ((a == 0 || d == 0) && (b == 0 || c == 0)) return {};
  const bool square = (b == 0 && c == 0) || (a == 0 && d == 0);
  if (!square) notes.push_back("a turn by no right angle was left out");
  if (!square) return {};
  const bool mirrored = (a != 0 ? (a < 0) != (d < 0) : (b < 0) == (c < 0));
  if (a != 0) {
    if (!mirrored) return {a > 0 ? 0 : 2, false};
    return {a > 0 ? 2 : 0, true};  // upside down is a half turn and a mirror
  }
  if (!mirrored) return {b > 0 ? 1 : 3, false};
  return {b > 0 ? 3 : 1, true};
}

// A quarter turn clockwise: out(x, y) = in(y, h - 1 - x).
VideoFrame turned(VideoFrame in) {
  VideoFrame out{in.ticks, in.height, in.width, std::vector<std::uint8_t>(in.rgb.size())};
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      std::memcpy(&out.rgb[static_cast<std::size_t>((y * out.width + x) * 3)],
                  &in.rgb[static_cast<std::size_t>(((in.height - 1 - x) * in.width + y) * 3)], 3);
    }
  }
  return out;
}

void mirror(VideoFrame& frame) {
  for (std::int64_t y = 0; y < frame.height; ++y) {
    std::uint8_t* row = &frame.rgb[static_cast<std::size_t>(y * frame.width * 3)];
    for (std::int64_t left = 0, right = frame.width - 1; left < right; ++left, --right) {
      std::swap_ranges(row + left * 3, row + left * 3 + 3, row + right * 3);
    }
  }
}

// As players guess where the file does not say: BT.709 from 720 lines on.
int matrix_of(const AVFrame& frame) {
  switch (frame.colorspace) {
    case AVCOL_SPC_BT709:
      return SWS_CS_ITU709;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL:
      return SWS_CS_BT2020;
    case AVCOL_SPC_SMPTE240M:
      return SWS_CS_SMPTE240M;
    case AVCOL_SPC_FCC:
      return SWS_CS_FCC;
    case AVCOL_SPC_UNSPECIFIED:
    case AVCOL_SPC_RESERVED:
      return frame.height >= 720 ? SWS_CS_ITU709 : SWS_CS_ITU601;
    default:
      return SWS_CS_ITU601;
  }
}

}  // namespace

std::string_view sniff_clip(std::span<const std::uint8_t> start) {
  const auto has = [&](std::size_t at, std::string_view text) {
    return start.size() >= at + text.size() &&
           std::memcmp(start.data() + at, text.data(), text.size()) == 0;
  };
  for (const char* box : {"ftyp", "moov", "mdat", "wide", "free", "skip", "pnot"}) {
    if (has(4, box)) return "mp4";
  }
  if (has(0, "\x1a\x45\xdf\xa3")) return "matroska";
  if (has(0, "RIFF") && has(8, "AVI ")) return "avi";
  return {};
}

struct ClipReader::State {
  FileBytes& bytes;
  VideoLimits limits;
  VideoInfo info;
  BytesIo io;
  ffmpeg::Input input;
  int stream_index = -1;
  AVStream* stream = nullptr;
  ffmpeg::Codec codec;
  ffmpeg::Packet packet{av_packet_alloc()};
  ffmpeg::Frame frame{av_frame_alloc()};
  ffmpeg::Scaler scaler;
  Turn turn;
  std::int64_t start = 0;         // ticks of the first frame
  std::int64_t last = INT64_MIN;  // of the frame given last, since the start
  std::uint64_t given = 0, decoded_pixels = 0;
  bool drained = false;
  bool damaged = false;  // the decoder said so of the frame at work
  std::optional<VideoFrame> ahead;

  State(FileBytes& from, const VideoLimits& most) : bytes(from), limits(most), io(from) {
    if (!packet || !frame) throw std::bad_alloc();
    ffmpeg::listen();
    open();
    find_stream();
    open_decoder();
    check_sizes(codec->width, codec->height);
    describe();
  }

  std::string stream_name() const { return "stream " + std::to_string(stream_index); }
  std::string frame_name() const { return stream_name() + ", frame " + std::to_string(given); }

  void open() {
    std::uint8_t magic[16] = {};
    const std::size_t got = bytes.read(0, magic, sizeof magic);
    if (got == 0) fail("E_VIDEO_FILE", "", "a clip", "an empty file");
    info.container = sniff_clip({magic, got});
    if (info.container.empty()) {
      fail("E_VIDEO_FORMAT", "", "mp4, mov, matroska, webm or avi", "another kind of file");
    }
    AVFormatContext* context = avformat_alloc_context();
    if (context == nullptr) throw std::bad_alloc();
    context->pb = io.context();
    context->flags |= AVFMT_FLAG_CUSTOM_IO;
    context->max_streams = kMostStreams;
    context->io_open = &refuse_open;
    const int opened = avformat_open_input(
        &context, nullptr, av_find_input_format(demuxer_of(info.container)), nullptr);
    io.rethrow();
    if (opened < 0) {  // the context is gone
      fail("E_VIDEO_FORMAT", "", "a " + info.container + " file that can be opened",
           words_of(opened));
    }
    input.reset(context);
  }

  void find_stream() {
    const int found = avformat_find_stream_info(input.get(), nullptr);
    io.rethrow();
    if (found < 0) fail("E_VIDEO_FORMAT", "", "streams that can be read", words_of(found));
    unsigned sounds = 0, covers = 0;
    for (unsigned i = 0; i < input->nb_streams; ++i) {
      AVStream* candidate = input->streams[i];
      if (candidate->codecpar->codec_type == AVMEDIA_TYPE_AUDIO) ++sounds;
      candidate->discard = AVDISCARD_ALL;
      if (candidate->codecpar->codec_type != AVMEDIA_TYPE_VIDEO) continue;
      if ((candidate->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0) {
        ++covers;
      } else if (stream == nullptr) {
        stream = candidate;
        stream_index = static_cast<int>(i);
      }
    }
    if (stream == nullptr) {
      fail("E_VIDEO_STREAM", "", "a video stream",
           std::to_string(sounds) + " of sound, " + std::to_string(covers) + " cover pictures");
    }
    stream->discard = AVDISCARD_DEFAULT;
    if (stream->time_base.num <= 0 || stream->time_base.den <= 0) {
      fail("E_VIDEO_TIME", stream_name(), "a unit of time", "none");
    }
  }

  void open_decoder() {
    const AVCodecParameters& parameters = *stream->codecpar;
    info.codec = avcodec_get_name(parameters.codec_id);
    const AVCodec* decoder = avcodec_find_decoder(parameters.codec_id);
    if (decoder == nullptr) {
      fail("E_VIDEO_CODEC", stream_name(), "a video that can be decoded", info.codec);
    }
    check_sizes(parameters.width, parameters.height);
    codec.reset(avcodec_alloc_context3(decoder));
    if (!codec) throw std::bad_alloc();
    const int taken = avcodec_parameters_to_context(codec.get(), &parameters);
    if (taken < 0) fail("E_VIDEO_DATA", stream_name(), "sound parameters", words_of(taken));
    codec->thread_count = 1;
    codec->opaque = &damaged;
    codec->max_pixels = static_cast<std::int64_t>(limits.pixels);
    codec->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    codec->pkt_timebase = stream->time_base;
    const int opened = avcodec_open2(codec.get(), decoder, nullptr);
    if (opened < 0) fail("E_VIDEO_CODEC", stream_name(), "a decoder that starts", words_of(opened));
  }

  void check_sizes(std::int64_t width, std::int64_t height) const {
    const auto side = static_cast<std::int64_t>(limits.side);
    const bool fits = width > 0 && height > 0 && width <= side && height <= side &&
                      static_cast<std::uint64_t>(width * height) <= limits.pixels;
    if (fits) return;
    fail("E_VIDEO_SIZE", stream_name(),
         "sides of 1 to " + std::to_string(side) + " and at most " + std::to_string(limits.pixels) +
             " pixels",
         std::to_string(width) + "x" + std::to_string(height));
  }

  void describe() {
    const std::int32_t* matrix = reinterpret_cast<const std::int32_t*>(
        av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
    if (matrix != nullptr) turn = turn_of(matrix, info.notes);
    info.turned = turn.quarters * 90;
    const bool lying = turn.quarters % 2 == 1;
    info.width = lying ? codec->height : codec->width;
    info.height = lying ? codec->width : codec->height;
    info.tick = {stream->time_base.num, stream->time_base.den};
    const AVRational rate = stream->avg_frame_rate;
    if (rate.num > 0 && rate.den > 0) {
      info.rate = {rate.num, rate.den};
      if (info.rate.value() > limits.rate) {
        fail("E_VIDEO_RATE", stream_name(),
             "at most " + std::to_string(static_cast<int>(limits.rate)) + " frames a second",
             std::to_string(rate.num) + "/" + std::to_string(rate.den));
      }
    }
    start = stream->start_time == AV_NOPTS_VALUE ? 0 : stream->start_time;
  }

  // Reads the next packet of the stream; false at the end of the file.
  bool read_packet() {
    while (true) {
      av_packet_unref(packet.get());
      const int got = av_read_frame(input.get(), packet.get());
      io.rethrow();
      if (got == AVERROR_EOF) {
        check_end();
        return false;
      }
      if (got < 0) fail("E_VIDEO_CUT", frame_name(), "the rest of the clip", words_of(got));
      if (packet->stream_index != stream_index) continue;
      if ((packet->flags & AV_PKT_FLAG_CORRUPT) != 0) {
        fail("E_VIDEO_CUT", frame_name(), "a whole packet", "the end of the file in it");
      }
      return true;
    }
  }

  // Matroska and AVI say how long they are before anything else; mp4's tables say it of each frame.
  void check_end() {
    std::uint8_t start_bytes[256] = {};
    const std::size_t got = bytes.read(0, start_bytes, sizeof start_bytes);
    const std::uint64_t end = claimed_end(info.container, {start_bytes, got});
    if (end <= bytes.size()) return;
    fail("E_VIDEO_CUT", frame_name(), std::to_string(end) + " bytes", std::to_string(bytes.size()));
  }

  // Decodes the next frame into `frame`; false behind the last one.
  bool decode() {
    while (true) {
      av_frame_unref(frame.get());
      const int got = avcodec_receive_frame(codec.get(), frame.get());
      if (got == 0) return true;
      if (got == AVERROR_EOF) return false;
      if (got != AVERROR(EAGAIN)) {
        fail("E_VIDEO_DATA", frame_name(), "a frame that can be decoded", words_of(got));
      }
      if (drained) return false;
      const bool more = read_packet();
      const int sent = avcodec_send_packet(codec.get(), more ? packet.get() : nullptr);
      drained = !more;
      if (sent < 0 && sent != AVERROR_EOF) {
        fail("E_VIDEO_DATA", frame_name(), "a packet that can be decoded", words_of(sent));
      }
    }
  }

  void check_frame() {
    check_sizes(frame->width, frame->height);
    decoded_pixels += static_cast<std::uint64_t>(frame->width) * frame->height;
    if (decoded_pixels > limits.decoded_pixels || given >= limits.frames) {
      fail("E_VIDEO_SIZE", frame_name(), "a clip within its budget of frames and pixels", "more");
    }
    if (damaged || frame->decode_error_flags != 0 || (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0) {
      fail("E_VIDEO_DATA", frame_name(), "a whole frame", "one with damaged parts");
    }
  }

  // Ticks since the start, always growing.
  std::int64_t time_of_frame() {
    const std::int64_t at = frame->best_effort_timestamp;
    if (at == AV_NOPTS_VALUE) fail("E_VIDEO_TIME", frame_name(), "a time", "none");
    std::int64_t since = 0;
    if (__builtin_sub_overflow(at, start, &since) || since <= last) {
      fail("E_VIDEO_TIME", frame_name(), "a time after that of the frame before",
           "tick " + std::to_string(since) + " after " + std::to_string(last));
    }
    return since;
  }

  VideoFrame convert() {
    VideoFrame out{0, frame->width, frame->height, {}};
    out.rgb.resize(static_cast<std::size_t>(out.width * out.height * 3));
    const auto format = static_cast<AVPixelFormat>(frame->format);
    scaler.reset(sws_getCachedContext(
        scaler.release(), frame->width, frame->height, format, frame->width, frame->height,
        AV_PIX_FMT_RGB24,
        SWS_BILINEAR | SWS_BITEXACT | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP,
        nullptr, nullptr, nullptr));
    if (!scaler) {
      const char* name = av_get_pix_fmt_name(format);
      fail("E_VIDEO_CODEC", frame_name(), "pixels that can be shown as RGB",
           name != nullptr ? name : "an unknown format");
    }
    const int* matrix = sws_getCoefficients(matrix_of(*frame));
    const int full = frame->color_range == AVCOL_RANGE_JPEG ? 1 : 0;
    sws_setColorspaceDetails(scaler.get(), matrix, full, matrix, 1, 0, 1 << 16, 1 << 16);
    std::uint8_t* planes[1] = {out.rgb.data()};
    const int strides[1] = {frame->width * 3};
    // A row of RGB24 may be written up to its stride only: the scaler works on padded rows else.
    if (frame->width % 16 != 0) return convert_padded(std::move(out));
    sws_scale(scaler.get(), frame->data, frame->linesize, 0, frame->height, planes, strides);
    return out;
  }

  // Vector code of the scaler writes whole registers: rows with room, copied after.
  VideoFrame convert_padded(VideoFrame out) {
    const int stride = (frame->width * 3 + 127) / 64 * 64;
    std::vector<std::uint8_t> rows(static_cast<std::size_t>(stride) * frame->height + 64);
    std::uint8_t* planes[1] = {rows.data()};
    sws_scale(scaler.get(), frame->data, frame->linesize, 0, frame->height, planes, &stride);
    const auto bytes_a_row = static_cast<std::size_t>(out.width * 3);
    for (std::int64_t y = 0; y < out.height; ++y) {
      std::memcpy(&out.rgb[static_cast<std::size_t>(y) * bytes_a_row],
                  &rows[static_cast<std::size_t>(y * stride)], bytes_a_row);
    }
    return out;
  }

  std::optional<VideoFrame> next_frame() {
    if (ahead) return std::exchange(ahead, std::nullopt);
    do {
      if (!decode()) return std::nullopt;
      // Edit lists hide frames before the start; they are decoded for those behind them.
    } while ((frame->flags & AV_FRAME_FLAG_DISCARD) != 0);
    check_frame();
    const std::int64_t since = time_of_frame();
    VideoFrame out = convert();
    for (int i = 0; i < turn.quarters; ++i) out = turned(std::move(out));
    if (turn.mirrored) mirror(out);
    out.ticks = last = since;
    ++given;
    return out;
  }

  void seek(std::int64_t ticks) {
    std::int64_t target = 0;
    if (__builtin_add_overflow(ticks, start, &target)) target = ticks;
    const int done = av_seek_frame(input.get(), stream_index, target, AVSEEK_FLAG_BACKWARD);
    io.rethrow();
    if (done < 0) {
      const int begun = av_seek_frame(input.get(), stream_index, start, AVSEEK_FLAG_BACKWARD);
      io.rethrow();
      if (begun < 0) fail("E_VIDEO_DATA", stream_name(), "a place to seek to", words_of(begun));
    }
    avcodec_flush_buffers(codec.get());
    drained = false;
    ahead.reset();
    last = INT64_MIN;
  }
};

ClipReader::ClipReader(FileBytes& bytes, const VideoLimits& limits)
    : state_(std::make_unique<State>(bytes, limits)) {}
ClipReader::~ClipReader() = default;
ClipReader::ClipReader(ClipReader&&) noexcept = default;
ClipReader& ClipReader::operator=(ClipReader&&) noexcept = default;

const VideoInfo& ClipReader::info() const { return state_->info; }

std::optional<VideoFrame> ClipReader::next() { return state_->next_frame(); }

std::optional<VideoFrame> ClipReader::frame_at(std::int64_t ticks) {
  state_->seek(ticks);
  std::optional<VideoFrame> shown = state_->next_frame();
  while (shown && shown->ticks < ticks) {
    std::optional<VideoFrame> later = state_->next_frame();
    if (later && later->ticks <= ticks) {
      shown = std::move(later);
      continue;
    }
    state_->ahead = std::move(later);
    break;
  }
  return shown;
}

std::vector<std::int64_t> ClipReader::scan() {
  State& state = *state_;
  state.seek(0);
  std::vector<std::int64_t> times;
  while (state.read_packet()) {
    const AVPacket& packet = *state.packet;
    if ((packet.flags & AV_PKT_FLAG_DISCARD) != 0) continue;
    const std::int64_t at = packet.pts != AV_NOPTS_VALUE ? packet.pts : packet.dts;
    if (at == AV_NOPTS_VALUE) {
      fail("E_VIDEO_TIME", state.stream_name(), "a time of each frame", "none");
    }
    times.push_back(at - state.start);
    if (times.size() > state.limits.frames) {
      fail("E_VIDEO_SIZE", state.stream_name(),
           "at most " + std::to_string(state.limits.frames) + " frames", "more");
    }
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  state.seek(0);
  state.given = 0;
  return times;
}

}  // namespace tessera
