// The tensors of one quantised matrix: looked up by the ends of their names and checked.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/quantised_grid.h"

namespace tessera {

class QuantisedParts {
 public:
  // `stem`: "model.layers.0.mlp.up_proj". All must outlive this.
  QuantisedParts(const QuantisedScheme& scheme, const Checkpoint& checkpoint, std::string stem)
      : scheme_(scheme), checkpoint_(checkpoint), stem_(std::move(stem)) {}

  const QuantisedScheme& scheme() const { return scheme_; }
  const std::string& stem() const { return stem_; }
  std::string name(std::string_view leaf) const { return stem_ + "." + std::string(leaf); }
  std::string file(std::string_view leaf) const { return checkpoint_.file_of(name(leaf)); }
  bool has(std::string_view leaf) const { return checkpoint_.tensors().contains(name(leaf)); }

  // Notes the tensor as a part. Error for one that is missing, or of a type that is not among
  // `types`, which may be empty for any.
  ConstTensorView get(std::string_view leaf, std::span<const DType> types);
  // The same of two dimensions, each from 1 to 2^31 - 1.
  ConstTensorView matrix(std::string_view leaf, std::span<const DType> types);
  void want_shape(std::string_view leaf, const ConstTensorView& view, const Shape& shape) const;
  // Notes a tensor that is there and is not needed.
  void skip(std::string_view leaf);

  // Error kModel, E_QUANTISED_TENSOR.
  [[noreturn]] void refuse(std::string_view leaf, std::string expected, std::string found) const;

  // The matrix of a grid of these parts; the grid's file is set here.
  QuantisedWeight weight(QuantisedGrid grid) const;
  QuantisedWeight weight(Shape shape, std::function<void(float*)> read) const;

 private:
  const QuantisedScheme& scheme_;
  const Checkpoint& checkpoint_;
  std::string stem_;
  std::vector<std::string> parts_;
};

inline constexpr DType kScaleTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr DType kWordTypes[] = {DType::kI32};
inline constexpr DType kByteTypes[] = {DType::kI8};
inline constexpr DType kFloat8Types[] = {DType::kF8E4M3, DType::kF8E5M2};

// One a form; each reads no numbers.
QuantisedWeight read_packed(QuantisedParts& parts);      // AWQ and GPTQ
QuantisedWeight read_compressed(QuantisedParts& parts);  // FP8 and compressed-tensors
QuantisedWeight read_bytes_row(QuantisedParts& parts);   // bitsandbytes, 8 bits
QuantisedWeight read_blocks(QuantisedParts& parts);      // bitsandbytes, 4 bits

}  // namespace tessera
