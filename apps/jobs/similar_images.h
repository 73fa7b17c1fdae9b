// Which images of a job repeat an earlier one. An image is compared with those before it in the
// inputs that repeat none themselves, so the answer is the same whatever the batch size, and after
// an interruption: what was seen is in the journal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "apps/runtime/describe_options.h"
#include "engine/core/json.h"
#include "video/cuts/fingerprint.h"

namespace tessera {

class SimilarImages {
 public:
  // `most`: bits of the shape in which near-duplicates differ, at most.
  explicit SimilarImages(int most) : most_(most) {}

  // Of the image at place `at` of the inputs: the first one that it repeats; nullopt for none.
  std::optional<RepeatedImage> find(std::uint64_t at, const ImageFingerprint& print) const;
  // Keeps an image that repeats none. The record of it for the journal; nullopt when it is known.
  std::optional<Json> keep(std::uint64_t at, const std::string& path,
                           const ImageFingerprint& print);
  // A record of an earlier run; other records change nothing.
  void replay(const Json& record);
  int most() const { return most_; }

 private:
  int most_;
  std::vector<ImageFingerprint> prints_;  // apart from the rest, which is rarely looked at
  std::vector<std::uint64_t> places_;
  std::vector<std::string> paths_;
  std::unordered_set<std::uint64_t> known_;  // places
};

}  // namespace tessera
