// The formats in which `quantize` writes weights, by name, and which tensor gets which.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/core/block_types.h"
#include "engine/core/dtype.h"
#include "engine/core/tensor.h"
#include "engine/families/weight_roles.h"

namespace tessera {

struct ChosenType {
  const BlockType* type = nullptr;
  std::string why;  // another one than asked for; empty = as asked for, or as it is by default
};

class QuantizeTypes {
 public:
  // `type`: a name of quantize_type_names(); `keep`: "head=f16", a role and a name. Error kUsage:
  // E_QUANTIZE_TYPE, E_QUANTIZE_ROLE, naming what there is.
  QuantizeTypes(const std::string& type, std::span<const std::string> keep);

  const BlockType& matrices() const { return *matrices_; }
  // The format of a matrix that a file has as `source` (null: f64). Tables are kept as they are in
  // a model that is loaded with --dtype of the same type, output layers too; a table that is both,
  // and whatever of the two is in blocks already, stays as it is.
  ChosenType choose(WeightRole role, const Shape& shape, const BlockType* source) const;
  std::uint32_t file_type() const;  // general.file_type of GGUF files

 private:
  const BlockType& wanted(WeightRole role) const;

  const BlockType* matrices_;
  std::map<WeightRole, const BlockType*> keep_;
};

// "f32, f16, bf16, q8, q4 ..." and the formats' own names that have a writer.
std::vector<std::string> quantize_type_names();
// The format of numbers of a type; null for f64.
const BlockType* block_type_of(DType dtype);

}  // namespace tessera
