// Sizes that come from a file are computed with these only: a sum or product that does not fit
// gives nullopt, never a wrapped number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/core/index.h"

namespace tessera {

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Product of all extents; 1 for an empty list.
inline std::optional<std::uint64_t> checked_product(std::span<const std::int64_t> extents) {
  std::uint64_t out = 1;
  for (std::int64_t extent : extents) {
    if (extent < 0) return std::nullopt;
    const auto next = checked_mul(out, narrow<std::uint64_t>(extent));
    if (!next) return std::nullopt;
    out = *next;
  }
  return out;
}

}  // namespace tessera
