// The task "quantize": a model's weights in another format, in a copy that is opened like the
// model. A text model (a folder or a GGUF file) becomes one GGUF file, which other programs read
// too; a model of images or videos becomes a folder like its own. What is not a matrix of the
// transformer keeps every bit. Memory: one row block of a tensor.
#pragma once

#include <cmath>
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
  // Texts, prompts or images that the model runs over first (calibration.h); empty = none.
  std::filesystem::path calibrate;
  bool force = false;       // an output that is there is replaced
  bool requantize = false;  // weights that are in blocks already are rounded once more
  double mark_seconds = 5;  // a run that goes on after a kill does no more than so much again
};

class QuantizeListener {
 public:
  virtual ~QuantizeListener() = default;
  // A tensor was written; bytes of the output so far and in the end. False: stop.
  virtual bool on_tensor(std::string_view /*name*/, std::uint64_t /*written*/,
                         std::uint64_t /*all*/) {
    return true;
  }
  // Asked now and then before tensors are written. False: stop.
  virtual bool keep_going() { return true; }
  // What became otherwise than asked for, or than the model has it.
  virtual void on_notice(std::string_view /*text*/) {}
};

struct QuantizeReport {
  bool finished = false;  // false: stopped; the same call goes on from there
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of the files with weights
  struct Share {
    std::uint64_t tensors = 0, bytes = 0;
  };
  std::map<std::string, Share> types;  // of the output, by the formats' names
  // Of the matrices: bytes that a token reads, before and after. A tied table is one of them.
  std::uint64_t read_before = 0, read_after = 0;
  // Sums over the matrices that were rounded, each number with the mean square of its input, or 1:
  // the error's squares, and the numbers'.
  double error = 0, size = 0;
  // Root mean square error of what they give, relative to it, if inputs are independent.
  double relative_error() const { return size > 0 ? std::sqrt(error / size) : 0.0; }
};

// Error kModel as opening the model has it; E_WEIGHT_NOT_FINITE naming the tensor. kUsage:
// E_QUANTIZE_TYPE, E_QUANTIZE_ROLE; E_CALIBRATE of measure_inputs(), and where no type is one
// that it changes; E_QUANTIZE_OUTPUT for an output that is there, is the model
// itself or has a name of another kind; E_QUANTIZE_BLOCKS for weights in blocks without
// `requantize`; E_QUANTIZE_MODEL for a model that is no folder. kStorage: nothing is left then. A
// run that was stopped or killed left a part next to the output, which the same call goes on with;
// E_IO_LOCKED while another run writes it.
QuantizeReport quantize(const QuantizeOptions& options, QuantizeListener& listener);

}  // namespace tessera
