// The folders of assets/recipes/fixtures_chameleon.py, written out for a test, and what was
// recorded of them.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "engine/families/registry.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/model_runner.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

namespace tessera {

using NamedTensors = std::map<std::string, Tensor>;

inline std::filesystem::path chameleon_golden() {
  return source_folder() / "tests" / "golden" / "chameleon";
}

inline void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
  write_safetensors(path, views);
}

inline Json chameleon_config(const std::string& name) {
  const std::filesystem::path path = chameleon_golden() / name / "config.json";
  return parse_json(get_file(path), path.string());
}

// The image tokenizer under the names of a layout; its numbers are hashes of taming's names.
inline NamedTensors chameleon_tokenizer(const std::string& config, VqNames names,
                                        const std::string& prefix) {
  VqSpec spec = parse_family_config(config, "fixture").vq;
  spec.prefix.clear();
  const std::vector<TensorSpec> hashed = vq_tensors(spec);
  spec.names = names;
  spec.prefix = prefix;
  const std::vector<TensorSpec> named = vq_tensors(spec);
  NamedTensors out;
  for (std::size_t i = 0; i < named.size(); ++i) {
    out.emplace(named[i].name, hashed_weight(hashed[i].name, hashed[i].shape));
  }
  return out;
}

// The port's folder: no decoder but in the authors' file next to it.
inline void write_chameleon(const TempFolder& folder, const std::string& name, const Json& config) {
  NamedTensors all =
      copy_tensors(Checkpoint::open(chameleon_golden() / name / "language.safetensors"));
  for (auto& [tensor, values] :
       chameleon_tokenizer(config.dump(), VqNames::kTaming, "model.vqmodel.")) {
    if (tensor.find("decoder.") == std::string::npos) all.emplace(tensor, std::move(values));
  }
  write_tensors(folder / "model.safetensors", all);
  write_tensors(folder / "vqgan.safetensors",
                chameleon_tokenizer(config.dump(), VqNames::kTaming, ""));
  for (const std::filesystem::path& file : list_folder(chameleon_golden() / name)) {
    if (file.extension() == ".json") put_file(folder / file.filename().string(), get_file(file));
  }
  put_file(folder / "config.json", config.dump());
}

class ChameleonRecord {
 public:
  explicit ChameleonRecord(const std::string& name)
      : recorded_(Checkpoint::open(chameleon_golden() / name / "recorded.safetensors")) {}

  std::vector<std::int32_t> ints(const std::string& name) const {
    return ints_of(*recorded_.find(name));
  }
  std::vector<float> floats(const std::string& name) const {
    return floats_of(*recorded_.find(name));
  }

 private:
  Checkpoint recorded_;
};

}  // namespace tessera
