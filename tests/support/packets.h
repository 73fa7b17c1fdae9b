// Videos made packet by packet with FFmpeg's libraries, for what the program's own writer never
// writes: missing, empty and misdated packets, sound alone, sizes that are no sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/video_file.h"
#include "video/codec/ffmpeg.h"

namespace tessera {

struct StoredPacket {
  std::vector<std::uint8_t> data;
  std::int64_t pts = 0, dts = 0;  // in ticks
  bool key = false;
  std::uint64_t offset = 0;  // in the file it was read from
};

struct StoredVideo {
  std::shared_ptr<AVCodecParameters> parameters;
  AVRational tick{1, 25};
  std::vector<StoredPacket> packets;
};

using Options = std::vector<std::pair<std::string, std::string>>;

// Drawn frames through an encoder. `ticks`: of each frame, in 1/25 s.
StoredVideo encoded(const char* encoder, std::int64_t width, std::int64_t height,
                   std::span<const std::int64_t> ticks, const Options& options = {});
// One second of silence as "pcm_s16le".
StoredVideo silence();
// The packets into a container of FFmpeg's, as they are. `prepare` may change the stream.
MemoryFile muxed(const StoredVideo& video, const char* container,
                 const std::function<void(AVStream&)>& prepare = {});
// Packets of a file, in the order of the file.
StoredVideo demuxed(MemoryFile& file);
// An mp4 whose tables are moved before its images.
MemoryFile tables_first(const MemoryFile& file);

}  // namespace tessera
