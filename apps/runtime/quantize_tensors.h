// Tensors on their way from a model's files to a GGUF file; shared by the kinds of models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/runtime/calibration.h"
#include "apps/runtime/quantize.h"
#include "apps/runtime/quantize_types.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf_write.h"

namespace tessera {

struct TensorOnItsWay {
  std::string name;  // in the output
  std::string file;  // where it is from
  Shape shape;
  const BlockType* type = nullptr;  // in the output
  // Bytes as the output has them, where the tensor stays as it is.
  std::span<const std::byte> as_it_is;
  // Else numbers first, ... as f32. Calls ask for whole rows, from front to back.
  std::function<void(std::int64_t first, std::int64_t count, float* out)> read;
  std::function<void()> done;     // its pages will not be read again; may be empty
  std::uint64_t read_before = 0;  // of a matrix: its bytes in the model; 0 for others
  // Mean square of each column's input; empty = not known.
  std::vector<float> inputs = {};
};

// The format of a matrix in the output. Tells the listener where it is another one than asked for.
// Error kUsage, E_QUANTIZE_BLOCKS, for one in blocks that would be rounded again.
const BlockType& settled_type(const QuantizeTypes& types, bool requantize, WeightRole role,
                              const Shape& shape, const BlockType* source, const std::string& name,
                              const std::string& file, QuantizeListener& listener);

// Keys that say in which format a file's matrices are.
void put_file_type(const QuantizeTypes& types, std::span<const TensorOnItsWay> tensors,
                   GgufKeys& keys);

// The files with these weights, and their bytes together.
std::set<std::filesystem::path> weight_files(const Checkpoint& weights);
std::uint64_t bytes_of_files(const std::set<std::filesystem::path>& files);

struct QuantizeJob {
  const QuantizeOptions& options;
  const QuantizeTypes& types;
  QuantizeListener& listener;
  InputSquares inputs;  // of the matrices' columns; empty without calibration
};
// Writes `path`, whose tensors are from `files`, and adds to the report. Goes on with the part that
// an earlier run left. False: stopped, and such a part is there.
bool write_tensors(const std::filesystem::path& path, const GgufKeys& keys,
                   std::span<const TensorOnItsWay> tensors,
                   const std::set<std::filesystem::path>& files, const QuantizeJob& job,
                   QuantizeReport& report);
// Marks a tensor as a matrix that a token reads, and gives it the inputs of its columns.
void set_matrix(TensorOnItsWay& tensor, WeightRole role, const BlockType* source,
                const InputSquares& inputs, const std::string& name);
// Of a text model at `path`, a folder or a GGUF file. True if stopped early: see QuantizeReport.
QuantizeReport quantize_text(const std::filesystem::path& path, const QuantizeJob& job);
// Of a folder of another model.
QuantizeReport quantize_folder(const std::filesystem::path& path, const QuantizeJob& job);

}  // namespace tessera
