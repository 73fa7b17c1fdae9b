// A video's packets: the container opened, its image stream found and checked, packets in the
// order in which they are stored. Internal to video/codec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "video/codec/bytes_io.h"
#include "video/codec/ffmpeg.h"

namespace tessera {

// Errors as VideoReader tells them.
class Demuxer {
 public:
  // `bytes` outlives it.
  Demuxer(FileBytes& bytes, const VideoLimits& limits);
  Demuxer(const Demuxer&) = delete;
  Demuxer& operator=(const Demuxer&) = delete;

  const std::string& container() const { return container_; }
  AVStream& stream() const { return *stream_; }
  std::string place() const { return "stream " + std::to_string(stream_->index); }
  // Width and height in pixels within the limits, or error E_VIDEO_SIZE.
  void check_sizes(std::int64_t width, std::int64_t height) const;

  // The next packet of the stream that holds anything; false after the last one. Empty packets
  // are left out: what was shown before stays. Throws where the video is cut or its container
  // damaged; missing_from() then says from which time on nothing can be had.
  bool read(AVPacket& packet);
  // No frame that can no longer be read is shown before this time of the stream, INT64_MIN where
  // nobody knows and INT64_MAX where none is missing.
  std::int64_t missing_from() const { return missing_from_; }

  // Goes to a key frame before that time of the stream, most often the nearest. False where the
  // container cannot.
  bool seek(std::int64_t time);
  // Throws E_VIDEO_CUT where the file is shorter than it says.
  void check_whole();
  // Opens the video again: read() begins with the first packet.
  void restart();

 private:
  void open();
  void find_stream();
  void choose_stream();
  void check_rate() const;
  void check_index();

  FileBytes& bytes_;
  VideoLimits limits_;
  std::string container_;
  std::optional<BytesIo> io_;
  bool complained_ = false;
  ffmpeg::Input input_;
  AVStream* stream_ = nullptr;
  std::int64_t missing_from_ = INT64_MAX;
};

}  // namespace tessera
