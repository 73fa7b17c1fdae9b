#include "video/video.h"

#include <array>

namespace tessera {

std::string_view name_of(ClipContainer container) {
  constexpr std::array<std::string_view, 3> kNames = {"mp4", "webm", "mkv"};
  return kNames[static_cast<std::size_t>(container)];
}

std::string_view name_of(ClipCodec codec) {
  constexpr std::array<std::string_view, 6> kNames = {"auto", "h264", "mpeg4",
                                                      "vp9",  "av1",  "ffv1"};
  return kNames[static_cast<std::size_t>(codec)];
}

}  // namespace tessera
