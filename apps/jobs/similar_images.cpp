// A linear search: a million images take half a millisecond each, a caption takes far more.
#include "apps/jobs/similar_images.h"

#include <nlohmann/json.hpp>

namespace tessera {

namespace {

constexpr const char* kSeenEvent = "seen";

}  // namespace

std::optional<RepeatedImage> SimilarImages::find(std::uint64_t at,
                                                 const ImageFingerprint& print) const {
  std::optional<RepeatedImage> found;
  std::uint64_t first = at;
  for (std::size_t i = 0; i < prints_.size(); ++i) {
    if (places_[i] >= first) continue;
    const std::optional<int> distance = distance_of(print, prints_[i]);
    if (!distance || *distance > most_) continue;
    first = places_[i];
    found = RepeatedImage{paths_[i], *distance};
  }
  return found;
}

std::optional<Json> SimilarImages::keep(std::uint64_t at, const std::string& path,
                                        const ImageFingerprint& print) {
  if (!known_.insert(at).second) return std::nullopt;
  prints_.push_back(print);
  places_.push_back(at);
  paths_.push_back(path);
  return Json{{"ev", kSeenEvent}, {"at", at}, {"path", path}, {"print", fingerprint_text(print)}};
}

void SimilarImages::replay(const Json& record) {
  if (record.value("ev", std::string()) != kSeenEvent) return;
  const auto print = parse_fingerprint(record.value("print", std::string()));
  if (!print) return;
  keep(record.value("at", std::uint64_t{0}), record.value("path", std::string()), *print);
}

}  // namespace tessera
