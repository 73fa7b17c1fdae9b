#include "apps/captions/subtitles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "apps/captions/text_forms.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

std::string cue_time(long long milliseconds) {
  char text[48];
  std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld,%03lld", milliseconds / 3600000,
                milliseconds / 60000 % 60, milliseconds / 1000 % 60, milliseconds % 1000);
  return text;
}

std::string cue_text(const std::string& caption) {
  std::string out = clean_caption(caption);
  std::replace(out.begin(), out.end(), '\n', ' ');
  for (std::size_t at = 0; (at = out.find("-->")) != std::string::npos;) out.erase(at, 1);
  return out;
}

}  // namespace

std::string subtitles(std::span<const TimedCaption> captions) {
  std::string out;
  int number = 0;
  for (const TimedCaption& caption : captions) {
    const std::string text = cue_text(caption.text);
    if (text.empty()) continue;
    const long long start = std::llround(std::max(caption.start, 0.0) * 1000);
    const long long end = std::max(std::llround(caption.end * 1000), start + 1);
    out += std::to_string(++number) + "\n" + cue_time(start) + " --> " + cue_time(end) + "\n" +
           text + "\n\n";
  }
  return out;
}

std::string clock_time(double seconds) {
  const long long all = std::llround(std::max(seconds, 0.0) * 1000);
  const long long hours = all / 3600000, minutes = all / 60000 % 60;
  char text[64];
  if (hours > 0) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld.%03lld", hours, minutes, all / 1000 % 60,
                  all % 1000);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld.%03lld", minutes, all / 1000 % 60, all % 1000);
  }
  return text;
}

bool is_video_extension(std::string_view extension) {
  static constexpr std::array<std::string_view, 6> kEndings = {"mp4", "m4v",  "mov",
                                                               "mkv", "webm", "avi"};
  std::string lower(extension);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? char_of(c - 'A' + 'a') : c;
  return std::find(kEndings.begin(), kEndings.end(), lower) != kEndings.end();
}

}  // namespace tessera
