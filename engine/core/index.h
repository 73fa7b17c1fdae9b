// One signed index type and the ways between it, the unsigned sizes of the standard library and
// the other number types. What does not fit is a programmer's error, reported like expects() with
// the place of the call. Numbers that come from a file are checked first (checked.h).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "engine/core/error.h"

namespace tessera {

using Index = std::int64_t;

// Characters and bool are no numbers to convert: byte_of() and char_of() are their way.
template <typename T>
concept Whole = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                !std::same_as<T, char32_t>;

// The same number as a To.
template <Whole To, Whole From>
constexpr To narrow(From value, const char* file = __builtin_FILE(),
                    unsigned line = __builtin_LINE()) {
  if (!std::in_range<To>(value)) [[unlikely]] {
    fail_expectation("a number fits its type", file, line);
  }
  return static_cast<To>(value);
}

// A count or index as the standard library takes it. Expects value >= 0.
template <Whole From>
constexpr std::size_t to_size(From value, const char* file = __builtin_FILE(),
                              unsigned line = __builtin_LINE()) {
  return narrow<std::size_t>(value, file, line);
}

// A size of the standard library as an index.
template <Whole From>
constexpr Index to_index(From value, const char* file = __builtin_FILE(),
                         unsigned line = __builtin_LINE()) {
  return narrow<Index>(value, file, line);
}

// Modulo 2^n: for hashes and words of bits, where high bits are meant to go.
template <std::unsigned_integral To, Whole From>
constexpr To low_bits(From value) {
  return static_cast<To>(value);
}

// The nearest double or float.
template <typename From>
  requires Whole<From> || std::floating_point<From>
constexpr double to_double(From value) {
  return static_cast<double>(value);
}
template <typename From>
  requires Whole<From> || std::floating_point<From>
constexpr float to_float(From value) {
  return static_cast<float>(value);
}

// Rounded towards zero. Expects the result to fit; NaN never does.
template <Whole To, std::floating_point From>
constexpr To truncate(From value, const char* file = __builtin_FILE(),
                      unsigned line = __builtin_LINE()) {
  using Limits = std::numeric_limits<To>;
  // Powers of two, exact as From. low - 1 may round to low: then low itself is the last that fits.
  constexpr From low = static_cast<From>(Limits::min());
  constexpr From end = static_cast<From>(Limits::max() / 2 + 1) * From{2};
  if (!((value >= low || value > low - From{1}) && value < end)) [[unlikely]] {
    fail_expectation("a rounded number fits its type", file, line);
  }
  return static_cast<To>(value);
}

// The eight bits of a character as 0..255, and back.
constexpr std::uint8_t byte_of(char c) { return static_cast<std::uint8_t>(c); }
template <std::integral From>
constexpr char char_of(From value) {
  return static_cast<char>(value);
}

// values[i], checked in every build: i is a signed index or an enumerator.
template <typename Values, typename I>
  requires Whole<I> || std::is_enum_v<I>
constexpr decltype(auto) nth(Values&& values, I i, const char* file = __builtin_FILE(),
                             unsigned line = __builtin_LINE()) {
  const auto place = static_cast<std::size_t>(i);  // a negative index becomes larger than any size
  if (place >= std::size(values)) [[unlikely]] {
    fail_expectation("an index lies inside its list", file, line);
  }
  return values[place];
}

}  // namespace tessera
