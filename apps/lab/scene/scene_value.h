// A scene or a video as a JSON value, for the readers and writers of the worlds. Includers need
// <nlohmann/json.hpp>.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "apps/lab/scene/video.h"
#include "engine/core/json.h"

namespace tessera {

inline constexpr JsonLimits kSceneLimits = {
    .max_bytes = 1 << 16, .max_depth = 8, .kind = ErrorKind::kUsage};

Json scene_value(const Scene& scene);
Json video_value(const Video& video);
// The seed of a scene: a whole number below 2^64 as a string, 0 if "seed" is left out.
std::uint64_t read_seed(const JsonReader& reader);
// What scene_from_json() reads, its solids in the order of the text.
Scene scene_of(const JsonReader& reader);

// Index of the word at `key`, which must be one of `words`.
template <typename Enum>
Enum read_word(const JsonReader& reader, std::string_view key,
               std::span<const std::string_view> words) {
  const std::string word = reader.choice(key, words);
  return static_cast<Enum>(std::find(words.begin(), words.end(), word) - words.begin());
}

}  // namespace tessera
