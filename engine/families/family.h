// What the registry and the family files share: the opened folder a family looks at, and the checks
// that several families need.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/json.h"
#include "engine/families/family_spec.h"
#include "engine/families/registry.h"

namespace tessera {

// Picture codes of any model.
inline constexpr std::int64_t kMaxCodes = std::int64_t{1} << 20;

// A model as found on disk, before anyone knows its family.
struct ModelSource {
  std::filesystem::path folder;  // of config and weights; may be empty
  std::filesystem::path file;    // the weight file when one was named, else empty
  const Json* config = nullptr;  // config.json, if there is one
  std::string config_file;       // its name in messages
  bool config_only = false;      // parse_family_config: there are no weights to look at
  FamilyOptions options;
};

struct Family {
  std::string_view name;
  bool (*detect)(const ModelSource& source);
  FamilySpec (*parse)(const ModelSource& source);
};

// The rows of the table in registry.cpp.
bool detect_cosmos(const ModelSource& source);
FamilySpec parse_cosmos(const ModelSource& source);
bool detect_emu3(const ModelSource& source);
FamilySpec parse_emu3(const ModelSource& source);
bool detect_janus(const ModelSource& source);
FamilySpec parse_janus(const ModelSource& source);
bool detect_llamagen(const ModelSource& source);
FamilySpec parse_llamagen(const ModelSource& source);
bool detect_nbp(const ModelSource& source);
FamilySpec parse_nbp(const ModelSource& source);

// Collects the expected tensors of a model.
class TensorList {
 public:
  void add(std::string name, std::initializer_list<std::int64_t> shape) {
    tensors_.push_back({std::move(name), Shape(shape)});
  }
  // name.weight [out, in] and name.bias [out]
  void linear(const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  }
  void norm(const std::string& name, std::int64_t width) {
    add(name + ".weight", {width});
    add(name + ".bias", {width});
  }
  void append(std::vector<TensorSpec> more) {
    for (TensorSpec& tensor : more) tensors_.push_back(std::move(tensor));
  }
  std::vector<TensorSpec> take() { return std::move(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
};

// The learned positions of a model of blocks, [1, positions, D].
inline constexpr const char* kNbpPositions = "transformer.pos_emb";

// One more than the highest layer that a tensor "PREFIXn..." names, so that a tensor missing from a
// layer is found missing rather than counted as a shorter model.
std::int64_t layer_count(const Checkpoint& weights, std::string_view prefix);

// One layer's name: `{}` of the prefix replaced by the number.
std::string layer_name(const std::string& prefix, std::int64_t layer);

// The spec of a VQGAN under LlamaGen names, read off the shapes of its tensors. Error kModel naming
// the tensor that is missing or impossible.
VqSpec infer_vq_spec(const Checkpoint& checkpoint, const std::string& prefix);

// Emu3's clip tokenizer by its configuration, in the port's or the authors' keys; its names follow
// `layout`. Batch norms' counters, which hold no weights, in movq_counters().
MovqSpec parse_movq(const JsonReader& config, MovqNames layout);
std::vector<std::string> movq_counters(const MovqSpec& spec);

// Cosmos' clip tokenizer by the authors' keys (channels, channels_mult, levels ...).
FsqClipSpec parse_fsq_clip(const JsonReader& config);

// One more than the highest number behind `prefix` ("layers.") in any name, so that a tensor
// missing from a layer is found missing rather than counted as a shorter model.
std::int64_t layer_count(const Checkpoint& weights, std::string_view prefix);

// guidance_scale, temperature, top_k, top_p and draft_model of generation_config.json, where given.
void read_sampling(const ModelSource& source, const SamplingDefaults& defaults, FamilySpec& spec);

// "24x2048": layers x width, for models that are no published size.
std::string size_label(const ModelConfig& config);

}  // namespace tessera
