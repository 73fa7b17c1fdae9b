// The task "quantize": a model's weights in another format, in a copy that is opened like the
// model. A text model (a folder or a GGUF file) becomes one GGUF file, which other programs read
// too; a model of images or videos becomes a folder like its own. What is not a matrix of the
// transformer keeps every bit. Memory: one row block of a tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

struct QuantizeOptions {
  std::string model;             // as resolve_model() takes it
  std::filesystem::path output;  // NAME.gguf, or a folder
  std::string type;              // quantize_types.h
  std::vector<std::string> keep;
  bool force = false;       // an output that is there is replaced
  bool requantize = false;  // weights that are in blocks already are rounded once more
};

class QuantizeListener {
 public:
  virtual ~QuantizeListener() = default;
  // A tensor was written; bytes of the output so far and in the end. False: stop.
  virtual bool on_tensor(std::string_view /*name*/, std::uint64_t /*written*/,
                         std::uint64_t /*all*/) {
    return true;
  }
  // What became otherwise than asked for, or than the model has it.
  virtual void on_notice(std::string_view /*text*/) {}
};

struct QuantizeReport {
  bool finished = false;                            // false: stopped, and nothing was written
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of the files with weights
  struct Share {
    std::uint64_t tensors = 0, bytes = 0;
  };
  std::map<std::string, Share> types;  // of the output, by the formats' names
};

// Error kModel as opening the model has it; E_WEIGHT_NOT_FINITE naming the tensor. kUsage:
// E_QUANTIZE_TYPE, E_QUANTIZE_ROLE; E_QUANTIZE_OUTPUT for an output that is there, is the model
// itself or has a name of another kind; E_QUANTIZE_BLOCKS for weights in blocks without
// `requantize`; E_QUANTIZE_MODEL for a model that is no folder. kStorage: nothing is left then.
QuantizeReport quantize(const QuantizeOptions& options, QuantizeListener& listener);

}  // namespace tessera
