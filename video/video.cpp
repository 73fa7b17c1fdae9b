#include "video/video.h"

#include <array>

namespace tessera {

std::string_view name_of(ClipContainer container) {
  constexpr std::array<std::string_view, 5> kNames = {"mp4", "webm", "mkv", "webp", "gif"};
  return kNames[static_cast<std::size_t>(container)];
}

std::string_view name_of(ClipCodec codec) {
  constexpr std::array<std::string_view, kClipCodecs> kNames = {"auto", "h264", "mpeg4", "vp9",
                                                                "av1",  "ffv1", "webp",  "gif"};
  return kNames[static_cast<std::size_t>(codec)];
}

}  // namespace tessera
