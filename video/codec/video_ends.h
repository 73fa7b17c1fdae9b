// Which container a file is and how long it says it is: what is needed to notice that its end is
// missing. Internal to video/codec, but for sniff_video().
#pragma once

#include <cstdint>
#include <string_view>

#include "video/video.h"

namespace tessera {

// Where the file ends by its own words, in bytes; 0 if it says nothing. Matroska: the first
// segment; AVI: the first chunk of RIFF; mp4: the last of its outermost boxes that is one of a
// video's. Reads a few bytes a box.
std::uint64_t claimed_end(std::string_view container, FileBytes& bytes);

}  // namespace tessera
