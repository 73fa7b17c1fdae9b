// Captions of a video's scenes with their times: as subtitles, and what a file name says of a video.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tessera {

struct TimedCaption {
  double start = 0, end = 0;  // seconds since the video began
  std::string text;           // UTF-8
};

// SubRip (.srt): numbered from 1, "00:01:02,500 --> 00:01:04,000", the text, an empty line. Times
// are rounded to milliseconds, and a cue lasts at least one. Texts are cleaned; their line breaks
// become spaces and "-->" becomes "->", since either would end or begin a cue. A caption without
// text has no cue.
std::string subtitles(std::span<const TimedCaption> captions);

// "1:02:03.250", "0:04.000": minutes and seconds, hours where there are some.
std::string clock_time(double seconds);

// Video endings: mp4, m4v, mov, mkv, webm, avi, without case and without the dot.
bool is_video_extension(std::string_view extension);

}  // namespace tessera
