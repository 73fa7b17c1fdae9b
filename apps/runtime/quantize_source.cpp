#include "apps/runtime/quantize_source.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/runtime/facts.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/core/error.h"
#include "engine/core/file_stamp.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSource = "source";

Json stamped(const fs::path& path) {
  const FileStamp stamp = file_stamp(path).value_or(FileStamp{});
  return {fs::weakly_canonical(path).string(), stamp.mtime_ns, stamp.bytes};
}

// The file, or those of the folder.
std::set<fs::path> files_of(const fs::path& path) {
  if (!is_folder(path)) return {path};
  const auto all = list_folder(path);
  return {all.begin(), all.end()};
}

InputSquares read_inputs(const fs::path& path, const std::string& source) {
  if (!file_exists(path)) return {};
  try {
    const Checkpoint file = Checkpoint::open(path);
    const auto said = file.metadata().find(kSource);
    if (said == file.metadata().end() || said->second != source) return {};
    InputSquares out;
    for (const auto& [name, view] : file.tensors()) {
      if (view.dtype != DType::kF32) return {};
      std::vector<float>& squares = out[name];
      squares.resize(to_size(view.shape.elements()));
      std::memcpy(squares.data(), file.find(name)->raw(), view.bytes());
    }
    return out;
  } catch (const Error&) {
    return {};  // a damaged one is as none
  }
}

void write_inputs(const fs::path& path, const InputSquares& inputs, const std::string& source) {
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, squares] : inputs) {
    views.emplace(name,
                  ConstTensorView{DType::kF32, {std::ssize(squares)}, squares.data(), Device{}});
  }
  write_safetensors(path, views, {{kSource, source}});
}

}  // namespace

std::string source_of(const QuantizeOptions& options, const std::set<fs::path>& files) {
  Json out = {{"version", program_version()}, {"type", options.type},
              {"keep", options.keep},         {"requantize", options.requantize},
              {"files", Json::array()},       {"calibrate", Json::array()}};
  for (const fs::path& file : files) out["files"].push_back(stamped(file));
  if (!options.calibrate.empty()) {
    for (const fs::path& file : files_of(options.calibrate)) {
      out["calibrate"].push_back(stamped(file));
    }
  }
  return out.dump();
}

fs::path output_path(const QuantizeOptions& options) {
  const fs::path& output = options.output;
  return output.has_filename() ? output : output.parent_path();
}

fs::path kept_inputs_path(const QuantizeOptions& options) {
  return output_path(options).string() + ".inputs.safetensors";
}

InputSquares kept_inputs(const fs::path& model, const QuantizeOptions& options,
                         const std::function<bool()>& keep_going) {
  const fs::path kept = kept_inputs_path(options);
  const std::string source = source_of(options, files_of(model));
  InputSquares inputs = read_inputs(kept, source);
  if (!inputs.empty()) return inputs;
  inputs = measure_inputs(model, options.calibrate, keep_going);
  if (keep_going()) write_inputs(kept, inputs, source);
  return inputs;
}

}  // namespace tessera
