// Random tensors, comparison by a tolerance made from rounding and norms, and the instruction sets
// that this machine can run, for the tests of the ops.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/cached_type.h"
#include "engine/core/philox.h"

namespace tessera::testing {

using Isa = CpuOptions::Isa;

inline std::unique_ptr<Backend> backend_of(Isa isa, int threads = 2) {
  return make_backend("cpu", {.threads = threads, .isa = isa});
}

inline bool runs_here(Isa isa) {
  try {
    backend_of(isa, 1);
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline std::vector<Isa> isas_here() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kReference, Isa::kAvx2, Isa::kAvx512}) {
    if (runs_here(isa)) isas.push_back(isa);
  }
  return isas;
}

inline std::string isa_name(Isa isa) {
  return isa == Isa::kReference ? "reference" : isa == Isa::kAvx2 ? "avx2" : "avx512";
}

// Standard normal numbers, the same for the same (stream, count prefix).
inline std::vector<float> normal(std::size_t count, std::uint64_t stream, float scale = 1.0f) {
  std::vector<float> out(count);
  const auto key = philox_key(stream, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const PhiloxBlock block = philox4x32(
        {static_cast<std::uint32_t>(i), 0, static_cast<std::uint32_t>(Purpose::kTest), 0}, key);
    const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(uniform_open(block[0]))));
    const double angle = 6.283185307179586 * static_cast<double>(uniform_open(block[1]));
    out[i] = scale * static_cast<float>(radius * std::cos(angle));
  }
  return out;
}

inline ConstTensorView view_of(const std::vector<float>& data, Shape shape) {
  expects(static_cast<std::size_t>(shape.elements()) == data.size(), "shape fits the data");
  return {DType::kF32, shape, data.data(), {}};
}
inline TensorView view_of(std::vector<float>& data, Shape shape) {
  expects(static_cast<std::size_t>(shape.elements()) == data.size(), "shape fits the data");
  return {DType::kF32, shape, data.data(), {}};
}
inline ConstTensorView view_of(const std::vector<std::uint16_t>& data, Shape shape) {
  return {DType::kBF16, shape, data.data(), {}};
}
inline TensorView view_of(std::vector<std::uint16_t>& data, Shape shape) {
  return {DType::kBF16, shape, data.data(), {}};
}

inline std::vector<float> rounded_to(DType storage, std::vector<float> values) {
  if (storage == DType::kBF16) {
    for (float& value : values) value = bf16_to_float(float_to_bf16(value));
  }
  return values;
}
// Rows of k numbers as weights of this type are kept.
inline std::vector<float> rounded_rows(DType storage, std::vector<float> values, std::int64_t k) {
  const StorageType& type = kept_storage(storage);
  std::vector<std::byte> kept(type.bytes(k));
  for (std::size_t at = 0; at < values.size(); at += static_cast<std::size_t>(k)) {
    type.write(values.data() + at, k, kept.data());
    type.read(kept.data(), 0, 1, k, values.data() + at);
  }
  return values;
}
// Rows of k numbers as products of integers read them: in blocks of 32 whose largest one is 127.
inline std::vector<float> rounded_to_8_bits(std::vector<float> values, std::int64_t k) {
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(values.size()); row += k) {
    for (std::int64_t block = 0; block < k; block += 32) {
      float* const from = values.data() + row + block;
      float* const end = values.data() + row + std::min(block + 32, k);
      float most = 0;
      for (const float* x = from; x < end; ++x) most = std::max(most, std::abs(*x));
      if (most == 0.0f) continue;
      for (float* x = from; x < end; ++x) {
        *x = std::nearbyint(*x * (127.0f / most)) * (most / 127.0f);
      }
    }
  }
  return values;
}
// Rows of heads of `dim` numbers as a table of a cache, [rows, heads, stored].
inline Tensor cache_table(DType type, const std::vector<float>& values, const Shape& shape) {
  const CachedType& row = cached_type(type);
  Tensor out = Tensor::host(row.element, {shape[0], shape[1], row.stored(shape[2])});
  const std::int64_t width = shape[1] * shape[2];
  for (std::int64_t at = 0; at < shape[0]; ++at) {
    write_cached(values.data() + at * width, out.view(), at);
  }
  return out;
}
// The numbers of a table in the host's memory.
inline std::vector<float> cached_numbers(const ConstTensorView& table) {
  const std::int64_t width = cached_width(table);
  std::vector<float> out(static_cast<std::size_t>(table.shape[0] * width));
  for (std::int64_t at = 0; at < table.shape[0]; ++at) {
    read_cached(table, at, out.data() + at * width);
  }
  return out;
}
inline std::vector<std::uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> out;
  for (const float value : values) out.push_back(float_to_bf16(value));
  return out;
}

inline constexpr double kEpsilon = 5.9604644775390625e-08;  // half the gap of floats at 1

// Index of the first element with |got - want| > tolerance (NaN counts as different), or -1.
inline std::int64_t first_difference(const std::vector<float>& got, const std::vector<double>& want,
                                     const std::vector<double>& tolerance) {
  if (got.size() != want.size()) return 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(static_cast<double>(got[i]) - want[i]) <= tolerance[i])) {
      return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

inline ::testing::AssertionResult close(const std::vector<float>& got,
                                        const std::vector<double>& want,
                                        const std::vector<double>& tolerance) {
  const std::int64_t at = first_difference(got, want, tolerance);
  if (at < 0) return ::testing::AssertionSuccess();
  if (got.size() != want.size()) return ::testing::AssertionFailure() << "sizes differ";
  const auto i = static_cast<std::size_t>(at);
  return ::testing::AssertionFailure() << "element " << at << ": got " << got[i] << ", want "
                                       << want[i] << ", tolerance " << tolerance[i];
}

inline ::testing::AssertionResult same_bits(const float* a, const float* b, std::size_t count) {
  if (std::memcmp(a, b, count * sizeof(float)) == 0) return ::testing::AssertionSuccess();
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}
inline ::testing::AssertionResult same_bits(const std::vector<float>& a,
                                            const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ";
  return same_bits(a.data(), b.data(), a.size());
}

}  // namespace tessera::testing
