// One video through a decoder on one thread: frames in order from the start or from a key frame.
// Whatever the decoder mended by drafting is refused; what comes before the damage is given first.
// Internal to video/codec.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "video/codec/demuxer.h"
#include "video/codec/ffmpeg.h"
#include "video/codec/h264_numbers.h"
#include "video/codec/rgb_frames.h"
#include "video/codec/upright.h"

namespace tessera {

// Errors as VideoReader tells them.
struct VideoDecoder {
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

  // Since the video was begun or a place sought.
  std::int64_t sent = 0;          // packets
  std::int64_t sent_time = 0;     // of the last of them
  std::int64_t damaged_from = 0;  // the first of them that the decoder made pixels up for, from 1
  bool settling = false;          // after a seek, before the first whole frame
  bool begins_with_key = false;
  std::int64_t key_time = INT64_MIN;  // of the first packet after a seek
  bool drained = false;
  std::optional<Stop> stopped;

  bool complained = false;  // set by the decoder, and where images are missing
  std::optional<H264Numbers> numbers;
  bool counted = true;  // `number` is that of the next frame
  std::uint64_t number = 0, decoded_pixels = 0;
  std::optional<VideoFrame> ahead;  // comes before the next one that is decoded

  VideoDecoder(FileBytes& from, const VideoLimits& most);
  std::string place() const;
  void open_decoder();
  void describe();
  // To be called with the first packet of the video.
  void begin_times();
  std::int64_t time_of_packet() const;
  bool is_leading() const;
  void note_complaint();
  void stop(ErrorInfo error, std::int64_t before);
  // Gives the decoder one packet, or the end.
  void feed();
  void send_packet();
  // Decodes the next frame into `frame`; false after the last one and after a stop.
  bool decode();
  void check_frame();
  // Of the stream, not since the start.
  std::int64_t time_of_frame();
  // Ticks since the start, always growing.
  std::int64_t since_start(std::int64_t at) const;
  [[noreturn]] void fail_stopped() const;
  std::optional<VideoFrame> next_frame();
  void forget();
  void restart();
  // The first frame from a key frame before `ticks`, or before the nearest one when `back` is
  // larger; none where a place cannot be sought or nothing whole follows.
  std::optional<VideoFrame> frame_before(std::int64_t ticks, std::int64_t back);
};

}  // namespace tessera
