// Weights that are a hash of their tensor's name and their place, so that a reference in another
// language (assets/recipes/hashed_weights.py) has the same ones and no file holds them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/tensor.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

// Uniform in [-1, 1) with 24 bits: SplitMix64 of FNV-1a of the name.
inline std::vector<float> hashed_values(std::string_view name, std::int64_t count) {
  std::uint64_t key = 14695981039346656037ull;
  for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  std::vector<float> out;
  for (std::int64_t i = 1; i <= count; ++i) {
    std::uint64_t z = key + static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    out.push_back(static_cast<float>(static_cast<std::int64_t>(z >> 40) - (1 << 23)) *
                  (1.0f / static_cast<float>(1 << 23)));
  }
  return out;
}

// Vectors near 1 (norms, variances) or 0 (biases, means), tables of size 1, matrices by their
// inputs. Factors are powers of two: nothing is rounded twice.
inline Tensor hashed_weight(std::string_view name, const Shape& shape) {
  std::vector<float> values = hashed_values(name, shape.elements());
  float mean = 0.0f, scale = 1.0f;
  if (shape.rank() == 1) {
    const bool norm = name.ends_with(".weight"), variance = name.ends_with("running_var");
    mean = norm || variance ? 1.0f : 0.0f;
    scale = variance ? 0.5f : norm ? 0.25f : 0.125f;
  } else if (name.find("embed") == std::string_view::npos) {
    scale = 2.0f;
    for (std::int64_t inputs = shape.elements() / shape[0]; inputs >= 4; inputs /= 4) scale /= 2;
  }
  Tensor out = Tensor::host(DType::kF32, shape);
  for (std::size_t i = 0; i < values.size(); ++i) out.f32()[i] = mean + scale * values[i];
  return out;
}

inline std::map<std::string, Tensor> hashed_weights(const std::vector<TensorSpec>& list) {
  std::map<std::string, Tensor> out;
  for (const TensorSpec& tensor : list) {
    out.emplace(tensor.name, hashed_weight(tensor.name, tensor.shape));
  }
  return out;
}

}  // namespace tessera
