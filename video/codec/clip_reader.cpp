// Packets through a decoder on one thread, frames upright in RGB. Whatever the decoder mended by
// guessing is refused; what comes before the damage is given first.
#include "video/codec/clip_reader.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "video/codec/demuxer.h"
#include "video/codec/ffmpeg.h"
#include "video/codec/h264_numbers.h"
#include "video/codec/rgb_frames.h"
#include "video/codec/upright.h"

namespace tessera {

using ffmpeg::fail;
using ffmpeg::words_of;

namespace {

constexpr std::size_t kMostWaiting = 4096;  // packets that no frame came out of

// VP8 and VP9 may store pictures that are only referred to, in packets of their own.
bool is_hidden(AVCodecID codec, const AVPacket& packet) {
  const std::uint8_t first = packet.data[0];
  if (codec == AV_CODEC_ID_VP8) return (first & 0x10) == 0;
  if (codec != AV_CODEC_ID_VP9) return false;
  const bool joined = (packet.data[packet.size - 1] & 0xe0) == 0xc0;  // several in one packet
  if (joined || (first & 0xc0) != 0x80) return false;
  const int profile = (first >> 5 & 1) | (first >> 4 & 1) << 1;
  const int at = profile == 3 ? 2 : 3;  // of the bit that shows a picture stored before
  if ((first >> at & 1) != 0) return false;
  return (first >> (at - 2) & 1) == 0;
}

ErrorInfo info_of(const char* code, std::string expected, std::string found) {
  return {.kind = ErrorKind::kGeneral,
          .code = code,
          .expected = std::move(expected),
          .found = std::move(found)};
}

}  // namespace

struct ClipReader::State {
  // Why no more packets are decoded, and the time from which on frames may be missing.
  struct Stop {
    ErrorInfo error;
    std::int64_t before = INT64_MIN;
  };

  VideoLimits limits;
  Demuxer demuxer;
  VideoInfo info;
  ffmpeg::Codec codec;
  ffmpeg::Packet packet{av_packet_alloc()};
  ffmpeg::Frame frame{av_frame_alloc()};
  RgbFrames rgb;
  Turn turn;
  std::int64_t stored_width = 0, stored_height = 0;

  // Times. Where packets tell the order of decoding only, the n-th frame shown has the n-th
  // smallest time of a packet.
  std::int64_t start = 0;  // of the first frame
  bool by_order = false;
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> waiting;
  std::int64_t last = INT64_MIN;  // ticks of the frame given last, since the start

  // Since the clip was begun or a place sought.
  std::int64_t sent = 0;          // packets
  std::int64_t sent_time = 0;     // of the last of them
  std::int64_t damaged_from = 0;  // the first of them that the decoder made pixels up for, from 1
  bool settling = false;          // behind a seek, before the first whole frame
  bool begins_with_key = false;
  std::int64_t key_time = INT64_MIN;  // of the first packet behind a seek
  bool drained = false;
  std::optional<Stop> stopped;

  bool complained = false;  // set by the decoder, and where pictures are missing
  std::optional<H264Numbers> numbers;
  bool counted = true;      // `number` is that of the next frame
  std::uint64_t number = 0, decoded_pixels = 0;
  std::optional<VideoFrame> ahead;
  std::optional<ErrorInfo> failure;

  State(FileBytes& from, const VideoLimits& most) : limits(most), demuxer(from, most) {
    if (!packet || !frame) throw std::bad_alloc();
    open_decoder();
    demuxer.check_sizes(codec->width, codec->height);
    describe();
  }

  std::string place() const {
    if (counted) return demuxer.place() + ", frame " + std::to_string(number);
    if (last == INT64_MIN) return demuxer.place() + ", behind a seek";
    return demuxer.place() + ", after tick " + std::to_string(last);
  }

  void open_decoder() {
    const AVStream& stream = demuxer.stream();
    const AVCodecParameters& parameters = *stream.codecpar;
    info.container = demuxer.container();
    info.codec = avcodec_get_name(parameters.codec_id);
    const AVCodec* decoder = avcodec_find_decoder(parameters.codec_id);
    if (decoder == nullptr) {
      fail("E_VIDEO_CODEC", demuxer.place(), "a video that can be decoded", info.codec);
    }
    demuxer.check_sizes(parameters.width, parameters.height);
    codec.reset(avcodec_alloc_context3(decoder));
    if (!codec) throw std::bad_alloc();
    const int taken = avcodec_parameters_to_context(codec.get(), &parameters);
    if (taken < 0) fail("E_VIDEO_DATA", demuxer.place(), "sound parameters", words_of(taken));
    codec->thread_count = 1;
    codec->opaque = &complained;
    codec->max_pixels = static_cast<std::int64_t>(limits.pixels);
    codec->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    // Frames that refer to missing ones come out with a flag, instead of not at all.
    codec->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
    if (parameters.codec_id == AV_CODEC_ID_H264) {
      numbers.emplace(std::span<const std::uint8_t>(
          parameters.extradata, static_cast<std::size_t>(parameters.extradata_size)));
    }
    codec->pkt_timebase = stream.time_base;
    const int opened = avcodec_open2(codec.get(), decoder, nullptr);
    if (opened < 0) {
      fail("E_VIDEO_CODEC", demuxer.place(), "a decoder that starts", words_of(opened));
    }
  }

  void describe() {
    const AVStream& stream = demuxer.stream();
    const std::int32_t* matrix = reinterpret_cast<const std::int32_t*>(
        av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
    if (matrix != nullptr) turn = turn_of(matrix, info.notes);
    info.turned = turn.quarters * 90;
    stored_width = codec->width;
    stored_height = codec->height;
    const bool lying = turn.quarters % 2 == 1;
    info.width = lying ? stored_height : stored_width;
    info.height = lying ? stored_width : stored_height;
    info.tick = {stream.time_base.num, stream.time_base.den};
    const AVRational rate = stream.avg_frame_rate;
    if (rate.num > 0 && rate.den > 0) info.rate = {rate.num, rate.den};
    start = stream.start_time == AV_NOPTS_VALUE ? 0 : stream.start_time;
    by_order = demuxer.container() == "avi";
  }

  // To be called with the first packet of the clip.
  void begin_times() {
    if (packet->pts == AV_NOPTS_VALUE) by_order = true;
    if (by_order && packet->dts != AV_NOPTS_VALUE) start = packet->dts;
  }

  std::int64_t time_of_packet() const {
    const std::int64_t at = by_order ? packet->dts : packet->pts;
    if (at == AV_NOPTS_VALUE) fail("E_VIDEO_TIME", place(), "a time of each frame", "none");
    return at;
  }

  bool is_leading() const { return sent > 1 && sent_time < key_time; }

  void note_complaint() {
    if (!std::exchange(complained, false) || damaged_from != 0 || is_leading()) return;
    // H.264 behind a seek misses the numbers of the frames before: no damage of a key frame.
    if (sent == 1 && begins_with_key && codec->codec_id == AV_CODEC_ID_H264) return;
    damaged_from = std::max<std::int64_t>(sent, 1);
  }

  void stop(ErrorInfo error, std::int64_t before) {
    if (!stopped) stopped = {std::move(error), before};
    if (!drained) avcodec_send_packet(codec.get(), nullptr);
    drained = true;
  }

  // Gives the decoder one packet, or the end.
  void feed() {
    try {
      const bool more = demuxer.read(*packet);
      if (more && settling && sent == 0 && (packet->flags & AV_PKT_FLAG_KEY) == 0) return;
      if (!more) {
        drained = true;
        avcodec_send_packet(codec.get(), nullptr);
        return;
      }
    } catch (const Error& error) {
      return stop(error.info(), by_order ? INT64_MIN : demuxer.missing_from());
    }
    send_packet();
  }

  void send_packet() {
    if (sent == 0 && !settling) begin_times();
    const std::int64_t at = sent_time = time_of_packet();
    if (sent == 0 && settling) key_time = at;
    if (sent == 0) begins_with_key = (packet->flags & AV_PKT_FLAG_KEY) != 0;
    codec->reordered_opaque = ++sent;
    if (by_order) waiting.push(at);
    const auto size = static_cast<std::size_t>(packet->size);
    if (numbers && !numbers->follows({packet->data, size}) && sent > 1) complained = true;
    if (waiting.size() > kMostWaiting) {
      fail("E_VIDEO_DATA", place(), "a frame of each packet", "none of many");
    }
    const int taken = avcodec_send_packet(codec.get(), packet.get());
    note_complaint();
    if (taken >= 0 || is_leading()) return;
    stop(info_of("E_VIDEO_DATA", "a packet that can be decoded", words_of(taken)), at);
  }

  // Decodes the next frame into `frame`; false behind the last one and behind a stop.
  bool decode() {
    while (true) {
      av_frame_unref(frame.get());
      const int got = avcodec_receive_frame(codec.get(), frame.get());
      note_complaint();
      if (got == 0) return true;
      if (got == AVERROR_EOF) return false;
      if (got != AVERROR(EAGAIN)) {
        const bool known = !drained && !by_order && sent > 0;
        if (known && is_leading()) continue;
        const bool ended = drained;
        stop(info_of("E_VIDEO_DATA", "a frame that can be decoded", words_of(got)),
             known ? sent_time : INT64_MIN);
        if (ended) return false;
        continue;
      }
      if (drained) return false;
      feed();
    }
  }

  void check_frame() {
    demuxer.check_sizes(frame->width, frame->height);
    if (frame->width != stored_width || frame->height != stored_height) {
      fail("E_VIDEO_SIZE", place(),
           "a frame of " + std::to_string(stored_width) + "x" + std::to_string(stored_height),
           std::to_string(frame->width) + "x" + std::to_string(frame->height));
    }
    decoded_pixels += static_cast<std::uint64_t>(frame->width * std::int64_t{frame->height});
    if (decoded_pixels > limits.decoded_pixels || number >= limits.frames) {
      fail("E_VIDEO_SIZE", place(), "a clip within its budget of frames and pixels", "more");
    }
    // Whatever was stored behind damage may refer to it.
    const bool behind = damaged_from != 0 && (frame->reordered_opaque <= 0 ||
                                              frame->reordered_opaque >= damaged_from);
    if (behind || frame->decode_error_flags != 0 || (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0) {
      fail("E_VIDEO_DATA", place(), "a whole frame", "one with damaged or missing parts");
    }
  }

  // Of the stream, not since the start.
  std::int64_t time_of_frame() {
    std::int64_t at = frame->pts;
    if (by_order) {
      at = waiting.empty() ? AV_NOPTS_VALUE : waiting.top();
      if (!waiting.empty()) waiting.pop();
    }
    if (at == AV_NOPTS_VALUE) fail("E_VIDEO_TIME", place(), "a time of each frame", "none");
    return at;
  }

  // Ticks since the start, always growing.
  std::int64_t since_start(std::int64_t at) const {
    std::int64_t since = 0;
    if (__builtin_sub_overflow(at, start, &since) || since <= last) {
      fail("E_VIDEO_TIME", place(), "a time after that of the frame before",
           "tick " + std::to_string(since) + " after " + std::to_string(last));
    }
    return since;
  }

  [[noreturn]] void fail_stopped() const {
    ErrorInfo error = stopped->error;
    error.where = place();
    throw Error(std::move(error));
  }

  std::optional<VideoFrame> next_frame() {
    if (ahead) return std::exchange(ahead, std::nullopt);
    while (decode()) {
      const std::int64_t at = time_of_frame();
      // Edit lists hide frames before the start; they are decoded for those behind them.
      if ((frame->flags & AV_FRAME_FLAG_DISCARD) != 0) continue;
      // Behind a seek the first frames may refer to what was not read.
      const bool corrupt = (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0;
      if (at < key_time || (settling && corrupt)) continue;
      if (stopped && at >= stopped->before) fail_stopped();
      check_frame();
      const std::int64_t since = since_start(at);
      VideoFrame out = upright(rgb.convert(*frame, place()), turn);
      settling = false;
      out.ticks = last = since;
      ++number;
      return out;
    }
    if (stopped) fail_stopped();
    return std::nullopt;
  }

  void forget() {
    avcodec_flush_buffers(codec.get());
    complained = settling = drained = false;
    if (numbers) numbers->forget();
    sent = damaged_from = 0;
    key_time = last = INT64_MIN;
    waiting = {};
    ahead.reset();
    stopped.reset();
    number = 0;
  }

  void restart() {
    demuxer.restart();
    forget();
    counted = true;
  }

  // The first frame from a key frame before `ticks`, or before the nearest one when `back` is
  // larger; none where a place cannot be sought or nothing whole follows.
  std::optional<VideoFrame> frame_before(std::int64_t ticks, std::int64_t back) {
    std::int64_t target = 0;
    if (__builtin_add_overflow(ticks, start, &target) ||
        __builtin_sub_overflow(target, back, &target) || target <= start || !demuxer.seek(target)) {
      return std::nullopt;
    }
    forget();
    counted = false;
    settling = true;
    try {
      return next_frame();
    } catch (const Error&) {
      if (!settling) throw;
      return std::nullopt;
    }
  }

  // Behind a seek the decoder may complain of what was not read. What ends the clip there is taken
  // for damage if it ends there from the start on too.
  std::optional<VideoFrame> next_sure() {
    ErrorInfo found;
    const std::int64_t after = last;
    try {
      return next_frame();
    } catch (const Error& error) {
      if (counted || error.info().code != "E_VIDEO_DATA") throw;
      found = error.info();
    }
    restart();
    try {
      while (std::optional<VideoFrame> later = next_frame()) {
        if (later->ticks > after) return later;
      }
    } catch (const Error&) {
      if (last >= after) throw;
      throw Error(std::move(found));
    }
    return std::nullopt;
  }

  // The frame to begin with: one that does not begin after `ticks`, or the first of the clip.
  std::optional<VideoFrame> frame_not_after(std::int64_t ticks) {
    const std::int64_t second = std::max<std::int64_t>(info.tick.den / info.tick.num, 1);
    const bool sought = !by_order || codec->has_b_frames == 0;
    for (std::int64_t back = 0; sought && back < ticks; back = std::max(second, back * 4)) {
      std::optional<VideoFrame> first = frame_before(ticks, back);
      if (first && first->ticks <= ticks) return first;
      if (back > INT64_MAX / 8) break;
    }
    restart();
    return next_frame();
  }

  std::optional<VideoFrame> frame_at(std::int64_t ticks) {
    std::optional<VideoFrame> shown = frame_not_after(ticks);
    while (shown && shown->ticks < ticks) {
      std::optional<VideoFrame> later = next_sure();
      if (later && later->ticks <= ticks) {
        shown = std::move(later);
        continue;
      }
      ahead = std::move(later);
      break;
    }
    return shown;
  }

  std::vector<std::int64_t> scan() {
    restart();
    const AVCodecDescriptor* kind = avcodec_descriptor_get(codec->codec_id);
    const bool reorders =
        !by_order && (kind == nullptr || (kind->props & AV_CODEC_PROP_REORDER) != 0);
    std::vector<std::int64_t> times;
    for (bool first = true; demuxer.read(*packet); first = false) {
      if (first) begin_times();
      if ((packet->flags & AV_PKT_FLAG_DISCARD) != 0) continue;
      if (is_hidden(codec->codec_id, *packet)) continue;
      std::int64_t since = 0;
      if (__builtin_sub_overflow(time_of_packet(), start, &since)) {
        fail("E_VIDEO_TIME", place(), "times that can be told apart", "one out of range");
      }
      if (!reorders && !times.empty() && since <= times.back()) fail_order(times.back(), since);
      times.push_back(since);
      number = times.size();
      if (times.size() > limits.frames) {
        fail("E_VIDEO_SIZE", demuxer.place(),
             "at most " + std::to_string(limits.frames) + " frames", "more");
      }
    }
    std::sort(times.begin(), times.end());
    const auto twice = std::adjacent_find(times.begin(), times.end());
    if (twice != times.end()) fail_order(*twice, *twice);
    restart();
    return times;
  }

  [[noreturn]] void fail_order(std::int64_t before, std::int64_t found) const {
    fail("E_VIDEO_TIME", place(), "a time after that of the frame before",
         "tick " + std::to_string(found) + " after " + std::to_string(before));
  }

  // What ends the clip once ends it again until another place is asked for.
  template <typename Work>
  auto guarded(Work&& work) {
    try {
      return work();
    } catch (const Error& error) {
      failure = error.info();
      throw;
    } catch (const std::bad_alloc&) {
      failure = info_of("E_VIDEO_MEMORY", "a clip that fits the memory of its process", "a larger one");
      throw;
    }
  }
};

ClipReader::ClipReader(FileBytes& bytes, const VideoLimits& limits) {
  ffmpeg::listen();
  state_ = std::make_unique<State>(bytes, limits);
}
ClipReader::~ClipReader() = default;
ClipReader::ClipReader(ClipReader&&) noexcept = default;
ClipReader& ClipReader::operator=(ClipReader&&) noexcept = default;

const VideoInfo& ClipReader::info() const { return state_->info; }

std::optional<VideoFrame> ClipReader::next() {
  if (state_->failure) throw Error(*state_->failure);
  return state_->guarded([this] { return state_->next_sure(); });
}

std::optional<VideoFrame> ClipReader::frame_at(std::int64_t ticks) {
  state_->failure.reset();
  return state_->guarded([this, ticks] { return state_->frame_at(ticks); });
}

std::vector<std::int64_t> ClipReader::scan() {
  state_->failure.reset();
  return state_->guarded([this] { return state_->scan(); });
}

}  // namespace tessera
