// A scene or a video as a JSON value, for the readers and writers of the worlds. Includers need
// <nlohmann/json.hpp>.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// No two of the list at `key` touch; each is `one`, "a solid".
template <typename T, typename Apart>
void refuse_touching(const JsonReader& reader, const std::string& key, const std::string& one,
                     const std::vector<T>& list, Apart apart) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (std::size_t j = i + 1; j < list.size(); ++j) {
      if (apart(list[i], list[j])) continue;
      reader.fail(key + "[" + std::to_string(j) + "]", "a place of its own on the table",
                  one + " that touches " + key + "[" + std::to_string(i) + "]");
    }
  }
}

}  // namespace tessera
