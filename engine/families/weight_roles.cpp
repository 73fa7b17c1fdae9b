#include "engine/families/weight_roles.h"

#include "engine/core/block_types.h"
#include "engine/core/storage.h"
#include "engine/families/family.h"

namespace tessera {

namespace {

class Collector {
 public:
  explicit Collector(const Checkpoint& weights) : weights_(weights) {}

  void add(const std::string& name, WeightRole role) {
    const auto found = weights_.tensors().find(name);
    if (found == weights_.tensors().end() || found->second.shape.rank() != 2) return;
    const auto [at, fresh] = out_.emplace(name, role);
    const bool table = at->second == WeightRole::kTable || role == WeightRole::kTable;
    if (!fresh && table && at->second != role) at->second = WeightRole::kTiedTable;
  }
  WeightRoles take() { return std::move(out_); }

 private:
  const Checkpoint& weights_;
  WeightRoles out_;
};

bool of_layers(WeightRole role) {
  return role == WeightRole::kAttention || role == WeightRole::kFeedForward;
}

}  // namespace

std::string_view weight_role_name(WeightRole role) {
  switch (role) {
    case WeightRole::kTable:
    case WeightRole::kTiedTable:
      return "table";
    case WeightRole::kHead:
      return "head";
    case WeightRole::kAttention:
      return "attention";
    case WeightRole::kFeedForward:
      break;
  }
  return "feed-forward";
}

WeightRoles weight_roles(const ModelSpec& spec, const Checkpoint& weights) {
  const WeightNames& names = spec.names;
  Collector out(weights);
  out.add(names.prompt_table, WeightRole::kTable);
  out.add(names.code_table, WeightRole::kTable);
  if (spec.model.vocab > 0) {
    out.add(spec.model.tied_head ? names.prompt_table : names.text_head, WeightRole::kHead);
  }
  out.add(names.head_out + ".weight", WeightRole::kHead);
  const std::int64_t layers = spec.blocks ? spec.blocks->layers : spec.model.transformer.layers;
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string prefix = layer_name(names.layer_prefix, i);
    for (const std::string& name : names.qkv) out.add(prefix + name, WeightRole::kAttention);
    out.add(prefix + names.out, WeightRole::kAttention);
    if (names.cross) {
      out.add(prefix + names.cross->q, WeightRole::kAttention);
      for (const std::string& name : names.cross->kv) {
        out.add(prefix + name, WeightRole::kAttention);
      }
      out.add(prefix + names.cross->out, WeightRole::kAttention);
    }
    for (const std::string& name : names.gate_up) out.add(prefix + name, WeightRole::kFeedForward);
    out.add(prefix + names.down, WeightRole::kFeedForward);
  }
  return out.take();
}

std::optional<DType> stored_in_blocks(const ModelSpec& spec, const Checkpoint& weights) {
  const StorageType& four = storage_of(DType::kQ4);
  bool blocks = false, all_four = true;
  for (const auto& [name, role] : weight_roles(spec, weights)) {
    if (!of_layers(role)) continue;
    const BlockType* const type = weights.blocks_of(name);
    blocks = blocks || type != nullptr;
    // Rows of no whole blocks could not be kept so in the file.
    const Shape& shape = weights.tensors().find(name)->second.shape;
    if (type == nullptr && shape[1] % four.block != 0) continue;
    all_four = all_four && type != nullptr && type->numbers == four.block &&
               type->bytes == four.block_bytes;
  }
  if (!blocks) return std::nullopt;
  return all_four ? DType::kQ4 : DType::kQ8;
}

}  // namespace tessera
