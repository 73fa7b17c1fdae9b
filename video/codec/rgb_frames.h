// Decoded frames as RGB. Internal to video/codec.
#pragma once

#include <string>

#include "video/codec/ffmpeg.h"

namespace tessera {

class RgbFrames {
 public:
  // As stored, not yet upright; ticks 0. Error E_VIDEO_CODEC at `place` for pixels that have no
  // conversion.
  VideoFrame convert(const AVFrame& frame, const std::string& place);

 private:
  ffmpeg::Scaler scaler_;
};

}  // namespace tessera
