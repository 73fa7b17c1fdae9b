// Weights that other tools quantised, as safetensors folders have them: which tensors together are
// one matrix, and its numbers in f32. A matrix has a code a number, and a scale and perhaps a zero
// for each cell of it: number = (code - zero) * scale, rounded once.
//
// Layouts: the packages that write them. GPTQ: AutoGPTQ 0.7 and gptqmodel 7.7; AWQ: AutoAWQ 0.2.9
// (its "gemm" version); compressed-tensors 0.20; bitsandbytes 0.50; FP8: transformers 5.24.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace tessera {

class Checkpoint;

enum class QuantisedForm : std::uint8_t { kFloat8, kAwq, kGptq, kCompressed, kBitsAndBytes };

// What a matrix may be like: bits of a code and extents of a cell; 0 = all of the matrix.
struct QuantisedKind {
  int bits = 0;
  bool floats = false;  // codes are floats
  std::int64_t cell_rows = 1, cell_columns = 0;
};

// What a folder's configuration says.
struct QuantisedScheme {
  QuantisedForm form = QuantisedForm::kFloat8;
  std::string name;                  // "gptq, 4 bits"
  std::string file, key;             // where it is said
  std::vector<QuantisedKind> kinds;  // a matrix is of one of them; empty = the tensors say it
  bool zeros_less_one = false;       // GPTQ's first format keeps zeros so
};

struct QuantisedWeight {
  std::string name;                // "model.layers.0.mlp.up_proj.weight"
  Shape shape;                     // [outputs, inputs]
  std::vector<std::string> parts;  // the tensors that it is made of
  // All numbers, row-major. Error kModel (E_QUANTISED_VALUE): a scale that is no finite number, a
  // zero scale of a whole matrix, a column of a group that does not exist.
  std::function<void(float* out)> read;
};

struct QuantisedTensors {
  std::vector<QuantisedWeight> weights;  // by name
  std::vector<std::string> unread;  // scales of inputs and caches, which are not quantised here
  std::vector<std::string> spare;   // biases of zeros, which some tools add to every layer
};

// Reads no numbers. The views of the checkpoint must outlive the result. Error kModel
// (E_QUANTISED_TENSOR) naming tensor, expected and found: parts that are missing, of another type
// or shape, or contradict one another or the scheme; nothing quantised at all.
QuantisedTensors find_quantised(const QuantisedScheme& scheme, const Checkpoint& checkpoint);

}  // namespace tessera
