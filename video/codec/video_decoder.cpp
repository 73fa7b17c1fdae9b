#include "video/codec/video_decoder.h"

#include <algorithm>
#include <utility>

#include "engine/core/index.h"
#include "video/codec/ffv1_slices.h"

namespace tessera {

using ffmpeg::fail;
using ffmpeg::words_of;

namespace {

constexpr std::size_t kMaxWaiting = 4096;  // packets that no frame came out of

ErrorInfo info_of(const char* code, std::string expected, std::string found) {
  return {.kind = ErrorKind::kGeneral,
          .code = code,
          .expected = std::move(expected),
          .found = std::move(found)};
}

}  // namespace

VideoDecoder::VideoDecoder(FileBytes& from, const VideoLimits& most)
    : limits(most), demuxer(from, most) {
  if (!packet || !frame) throw std::bad_alloc();
  open_decoder();
  demuxer.check_sizes(codec->width, codec->height);
  describe();
}

std::string VideoDecoder::place() const {
  if (counted) return demuxer.place() + ", frame " + std::to_string(number);
  if (last == INT64_MIN) return demuxer.place() + ", after a seek";
  return demuxer.place() + ", after tick " + std::to_string(last);
}

void VideoDecoder::open_decoder() {
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
  codec->max_pixels = to_index(limits.pixels);
  codec->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
  // Frames that refer to missing ones come out with a flag, instead of not at all.
  codec->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  if (parameters.codec_id == AV_CODEC_ID_H264) {
    numbers.emplace(
        std::span<const std::uint8_t>(parameters.extradata, to_size(parameters.extradata_size)));
  }
  codec->pkt_timebase = stream.time_base;
  const int opened = avcodec_open2(codec.get(), decoder, nullptr);
  if (opened < 0) {
    fail("E_VIDEO_CODEC", demuxer.place(), "a decoder that starts", words_of(opened));
  }
}

void VideoDecoder::describe() {
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

void VideoDecoder::begin_times() {
  if (packet->pts == AV_NOPTS_VALUE) by_order = true;
  if (by_order && packet->dts != AV_NOPTS_VALUE) start = packet->dts;
}

std::int64_t VideoDecoder::time_of_packet() const {
  const std::int64_t at = by_order ? packet->dts : packet->pts;
  if (at == AV_NOPTS_VALUE) fail("E_VIDEO_TIME", place(), "a time of each frame", "none");
  return at;
}

bool VideoDecoder::is_leading() const { return sent > 1 && sent_time < key_time; }

void VideoDecoder::note_complaint() {
  if (!std::exchange(complained, false) || damaged_from != 0 || is_leading()) return;
  // H.264 after a seek misses the numbers of the frames before: no damage of a key frame.
  if (sent == 1 && begins_with_key && codec->codec_id == AV_CODEC_ID_H264) return;
  damaged_from = std::max<std::int64_t>(sent, 1);
}

void VideoDecoder::stop(ErrorInfo error, std::int64_t before) {
  if (!stopped) stopped = {std::move(error), before};
  if (!drained) avcodec_send_packet(codec.get(), nullptr);
  drained = true;
}

void VideoDecoder::feed() {
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

void VideoDecoder::send_packet() {
  if (sent == 0 && !settling) begin_times();
  const std::int64_t at = sent_time = time_of_packet();
  if (sent == 0 && settling) key_time = at;
  if (sent == 0) begins_with_key = (packet->flags & AV_PKT_FLAG_KEY) != 0;
  codec->reordered_opaque = ++sent;
  if (by_order) waiting.push(at);
  const std::span<const std::uint8_t> bytes(packet->data, to_size(packet->size));
  if (numbers && !numbers->follows(bytes) && sent > 1) complained = true;
  if (codec->codec_id == AV_CODEC_ID_FFV1 && !slices_are_whole(bytes)) complained = true;
  if (waiting.size() > kMaxWaiting) {
    fail("E_VIDEO_DATA", place(), "a frame of each packet", "none of many");
  }
  const int taken = avcodec_send_packet(codec.get(), packet.get());
  note_complaint();
  if (taken >= 0 || is_leading()) return;
  stop(info_of("E_VIDEO_DATA", "a packet that can be decoded", words_of(taken)),
       by_order ? INT64_MIN : at);
}

bool VideoDecoder::decode() {
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

void VideoDecoder::check_frame() {
  demuxer.check_sizes(frame->width, frame->height);
  if (frame->width != stored_width || frame->height != stored_height) {
    fail("E_VIDEO_SIZE", place(),
         "a frame of " + std::to_string(stored_width) + "x" + std::to_string(stored_height),
         std::to_string(frame->width) + "x" + std::to_string(frame->height));
  }
  decoded_pixels += low_bits<std::uint64_t>(frame->width * std::int64_t{frame->height});
  if (decoded_pixels > limits.decoded_pixels || number >= limits.frames) {
    fail("E_VIDEO_SIZE", place(), "a video within its budget of frames and pixels", "more");
  }
  // Whatever was stored after damage may refer to it.
  const bool after = damaged_from != 0 &&
                      (frame->reordered_opaque <= 0 || frame->reordered_opaque >= damaged_from);
  if (after || frame->decode_error_flags != 0 || (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0) {
    fail("E_VIDEO_DATA", place(), "a whole frame", "one with damaged or missing parts");
  }
}

std::int64_t VideoDecoder::time_of_frame() {
  std::int64_t at = frame->pts;
  if (by_order) {
    at = waiting.empty() ? AV_NOPTS_VALUE : waiting.top();
    if (!waiting.empty()) waiting.pop();
  }
  if (at == AV_NOPTS_VALUE) fail("E_VIDEO_TIME", place(), "a time of each frame", "none");
  return at;
}

std::int64_t VideoDecoder::since_start(std::int64_t at) const {
  std::int64_t since = 0;
  const bool late = __builtin_sub_overflow(at, start, &since) || since <= last;
  if (late) {
    fail("E_VIDEO_TIME", place(), "a time after that of the frame before",
         "tick " + std::to_string(since) + " after " + std::to_string(last));
  }
  return since;
}

void VideoDecoder::fail_stopped() const {
  ErrorInfo error = stopped->error;
  error.where = place();
  throw Error(std::move(error));
}

std::optional<VideoFrame> VideoDecoder::next_frame() {
  if (ahead) return std::exchange(ahead, std::nullopt);
  while (decode()) {
    const std::int64_t at = time_of_frame();
    // Edit lists hide frames before the start; they are decoded for those after them.
    if ((frame->flags & AV_FRAME_FLAG_DISCARD) != 0) continue;
    // After a seek the first frames may refer to what was not read.
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
  if (counted && number == 0) fail("E_VIDEO_DATA", place(), "at least one frame", "none");
  return std::nullopt;
}

void VideoDecoder::forget() {
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

void VideoDecoder::restart() {
  demuxer.restart();
  forget();
  counted = true;
}

std::optional<VideoFrame> VideoDecoder::frame_before(std::int64_t ticks, std::int64_t back) {
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

}  // namespace tessera
