// The seam for methods that guess the next tokens of a picture. A drafter knows tokens only:
// neither the target's cache nor how its guesses are judged. Guesses can cost time, never change a
// picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Writes up to out.size() guesses for the tokens after `committed` of one item; returns how many.
  virtual std::size_t propose(std::size_t item, std::span<const std::int32_t> committed,
                              std::span<std::int32_t> out) = 0;
  // How many of the last guesses of this item were right.
  virtual void observe(std::size_t item, std::size_t accepted) = 0;
};

}  // namespace tessera
