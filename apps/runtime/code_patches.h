// Rough images of codes that were not decoded yet: a small patch of colours for every code, the
// mean of what decoded images showed where it stood. An image that grows can be drawn from them
// after every pass for next to nothing, where decoding costs seconds. The patches of a model lie
// next to its weights (patches.safetensors, `patches` [V, P, P, 3] U8), or are learned as images
// are generated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "vision/image/image.h"

namespace tessera {

// Places of a grid whose token does not stand yet.
inline constexpr std::int32_t kNoCode = -1;

class CodePatches {
 public:
  static constexpr std::int64_t kMaxSide = 4;  // colours a side of a patch

  // `factor`: pixels a side of a place. Nothing is known yet.
  CodePatches(std::int64_t codes, std::int64_t factor);

  // Those next to a model; nothing when the folder has none. Error kModel naming the tensor for
  // another shape or type.
  static std::optional<CodePatches> load(const std::filesystem::path& folder, std::int64_t codes,
                                         std::int64_t factor);

  // Takes a decoded image of rows x columns places in. Patches that came from a file stay.
  void learn(std::span<const std::int32_t> codes, std::int64_t rows, std::int64_t columns,
             const Image& image);

  bool knows(std::int32_t code) const;
  // Share of the places with a code whose patch is known, 0..1; 0 when none has a code.
  double known_share(std::span<const std::int32_t> codes) const;

  // The image of rows x columns places; what has no code or no patch in the mean colour of the
  // rest.
  Image draw(std::span<const std::int32_t> codes, std::int64_t rows, std::int64_t columns) const;

 private:
  std::size_t patch_size() const { return to_size(side_ * side_ * 3); }

  std::int64_t codes_, factor_, side_;  // side: colours a side of a patch, divides factor
  bool fixed_ = false;                  // from a file
  std::vector<std::uint8_t> colours_;   // [codes, side, side, 3]
  std::vector<std::uint32_t> seen_;     // [codes] places that were learned from
  std::vector<float> sums_;             // as colours_; empty when fixed
};

}  // namespace tessera
