// The frames that a video begins with, out of a video or an image; and the first frame of any video.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "vision/image/image.h"

namespace tessera {

// What is wanted of them.
struct FirstFrames {
  std::int64_t width = 0, height = 0;  // pixels
  std::int64_t rate = 8;               // frames a second
  std::int64_t most = 0;               // the last ones of the file
};

// The last frames of a video, by its times at the wanted rate, or an image (.png, .jpg, .jpeg,
// .webp, .gif, .bmp) as one frame. Each is scaled to cover the wanted size and cut to its middle.
// No more than `most` frames are held. Errors: those of FrameReader and ImageReader.
std::vector<Image> read_first_frames(const std::filesystem::path& file, const FirstFrames& wanted);

// The first frame of a video, or an image, as large as it is. Errors as above, and kGeneral,
// E_VIDEO_FRAMES, for a video of none.
Image first_frame_of(const std::filesystem::path& file);

}  // namespace tessera
