#include "video/video.h"

#include <array>

#include "engine/core/index.h"

namespace tessera {

std::string_view name_of(VideoContainer container) {
  constexpr std::array<std::string_view, 5> kNames = {"mp4", "webm", "mkv", "webp", "gif"};
  return nth(kNames, container);
}

std::string_view name_of(VideoCodec codec) {
  constexpr std::array<std::string_view, kVideoCodecs> kNames = {"auto", "h264", "mpeg4", "vp9",
                                                                "av1",  "ffv1", "webp",  "gif"};
  return nth(kNames, codec);
}

}  // namespace tessera
