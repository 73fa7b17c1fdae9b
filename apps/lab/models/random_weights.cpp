// Values by counter-based Philox: one block gives four elements, each the centred sum of the four
// bytes of one word (Irwin-Hall, variance 4 * (256^2 - 1) / 12).
#include "apps/lab/models/random_weights.h"

#include <cmath>
#include <cstddef>

#include "engine/core/index.h"
#include "engine/core/philox.h"

namespace tessera {

namespace {

// 64-bit FNV-1a: gives every tensor name a stream of its own.
std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : name) {
    hash = (hash ^ byte_of(c)) * 1099511628211ull;
  }
  return hash;
}

float nearly_normal(std::uint32_t word) {
  const auto sum = narrow<std::int32_t>((word & 0xffu) + ((word >> 8) & 0xffu) +
                                        ((word >> 16) & 0xffu) + (word >> 24));
  return to_float(sum - 510) * (1.0f / 147.8005f);
}

}  // namespace

Tensor random_weight(std::string_view name, const Shape& shape, const RandomWeightRule& rule) {
  Tensor out = Tensor::host(DType::kF32, shape);
  float mean = 0.0f;
  float scale = rule.matrix_std;
  if (shape.rank() <= 1) {
    scale = 0.02f;
    if (name.ends_with(".weight") || name.ends_with(".running_var")) mean = 1.0f;
  } else if (rule.matrix_std == 0.0f) {
    const bool is_table = name.find("embed") != std::string_view::npos ||
                          name.ends_with("tok_emb.weight") || name.ends_with("pos_emb");
    const auto inputs = to_float(shape.elements() / shape[0]);
    scale = is_table ? 1.0f : 1.0f / std::sqrt(inputs);
  }
  const auto key = philox_key(rule.seed, hash_name(name));
  const std::int64_t total = shape.elements();
  float* values = out.f32();
  for (std::int64_t begin = 0; begin < total; begin += 4) {
    const auto at = narrow<std::uint64_t>(begin / 4);
    const PhiloxBlock block =
        philox4x32({low_bits<std::uint32_t>(at), low_bits<std::uint32_t>(at >> 32),
                    static_cast<std::uint32_t>(Purpose::kWeights), 0},
                   key);
    for (std::int64_t lane = 0; lane < 4 && begin + lane < total; ++lane) {
      values[begin + lane] = mean + scale * nearly_normal(nth(block, lane));
    }
  }
  return out;
}

}  // namespace tessera
