// Places in a video: the frame of a moment, the times of all frames, and what ended it.
#include "video/codec/video_reader.h"

#include <algorithm>
#include <utility>

#include "video/codec/video_decoder.h"

namespace tessera {

using ffmpeg::fail;

namespace {

// VP8 and VP9 may store images that are only referred to, in packets of their own.
bool is_hidden(AVCodecID codec, const AVPacket& packet) {
  const std::uint8_t first = packet.data[0];
  if (codec == AV_CODEC_ID_VP8) return (first & 0x10) == 0;
  if (codec != AV_CODEC_ID_VP9) return false;
  const bool joined = (packet.data[packet.size - 1] & 0xe0) == 0xc0;  // several in one packet
  if (joined || (first & 0xc0) != 0x80) return false;
  const int profile = (first >> 5 & 1) | (first >> 4 & 1) << 1;
  const int at = profile == 3 ? 2 : 3;  // of the bit that shows an image stored before
  if ((first >> at & 1) != 0) return false;
  return (first >> (at - 2) & 1) == 0;
}

}  // namespace

struct VideoReader::State : VideoDecoder {
  std::optional<ErrorInfo> failure;  // what next() ended with

  using VideoDecoder::VideoDecoder;

  // After a seek the decoder may complain of what was not read. What ends the video there is taken
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

  // The frame to begin with: one that does not begin after `ticks`, or the first of the video.
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
        fail("E_VIDEO_TIME", place(), "times that can be distinguished", "one out of range");
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

  // What ends the video once ends it again until another place is asked for.
  template <typename Work>
  auto guarded(Work&& work) {
    try {
      return work();
    } catch (const Error& error) {
      failure = error.info();
      throw;
    } catch (const std::bad_alloc&) {
      failure = ErrorInfo{.kind = ErrorKind::kGeneral,
                          .code = "E_VIDEO_MEMORY",
                          .expected = "a video that fits the memory of its process",
                          .found = "a larger one"};
      throw;
    }
  }
};

VideoReader::VideoReader(FileBytes& bytes, const VideoLimits& limits) {
  ffmpeg::listen();
  state_ = std::make_unique<State>(bytes, limits);
}
VideoReader::~VideoReader() = default;
VideoReader::VideoReader(VideoReader&&) noexcept = default;
VideoReader& VideoReader::operator=(VideoReader&&) noexcept = default;

const VideoInfo& VideoReader::info() const { return state_->info; }

std::optional<VideoFrame> VideoReader::next() {
  if (state_->failure) throw Error(*state_->failure);
  return state_->guarded([this] { return state_->next_sure(); });
}

std::optional<VideoFrame> VideoReader::frame_at(std::int64_t ticks) {
  state_->failure.reset();
  return state_->guarded([this, ticks] { return state_->frame_at(ticks); });
}

std::vector<std::int64_t> VideoReader::scan() {
  state_->failure.reset();
  return state_->guarded([this] { return state_->scan(); });
}

}  // namespace tessera
