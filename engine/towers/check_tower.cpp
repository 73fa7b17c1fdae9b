// Compares what a checkpoint holds after a tower's prefixes with what the tower must have.
#include <string_view>

#include "engine/towers/compare_tensors.h"
#include "engine/towers/vision_tower.h"

namespace tessera {

namespace {

// Of another part of the model, or a name that the encoder ignores.
bool is_foreign(const VisionTower& tower, std::string_view name) {
  const std::string& prefix = tower.vit.names.prefix;
  if (name.starts_with(prefix) && matches_any(tower.ignored, name.substr(prefix.size()))) {
    return true;
  }
  return !name.starts_with(prefix) && !name.starts_with(tower.projector.prefix);
}

// The file that has the encoder, or the first of the model's.
std::string file_of(const VisionTower& tower, const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  if (tensors.empty()) return "";
  const auto own = tensors.lower_bound(tower.vit.names.prefix);
  const bool found = own != tensors.end() && own->first.starts_with(tower.vit.names.prefix);
  return checkpoint.file_of(found ? own->first : tensors.begin()->first);
}

}  // namespace

std::vector<TensorSpec> tower_tensors(const VisionTower& tower) {
  std::vector<TensorSpec> out = vit_tensors(tower.vit);
  for (TensorSpec& tensor : projector_tensors(tower.projector)) out.push_back(std::move(tensor));
  return out;
}

void check_tower_tensors(const VisionTower& tower, const Checkpoint& checkpoint) {
  const std::vector<TensorSpec> expected = tower_tensors(tower);
  compare_tensors({.tensors = expected,
                   .of = "its image encoder and projector",
                   .optional = {},
                   .foreign = [&](const std::string& name) { return is_foreign(tower, name); },
                   .file = file_of(tower, checkpoint)},
                  checkpoint);
}

}  // namespace tessera
