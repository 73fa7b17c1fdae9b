// Compares what a checkpoint holds after a tower's prefixes with what the tower must have.
#include <filesystem>
#include <string_view>

#include "engine/towers/compare_tensors.h"
#include "engine/towers/vision_tower.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// Of the encoder: by its prefix, or without one by the folder that it has for itself.
bool is_of_encoder(const VisionTower& tower, const Checkpoint& checkpoint,
                   const std::string& name) {
  const std::string& prefix = tower.vit.names.prefix;
  if (!prefix.empty() || tower.folder.empty()) return name.starts_with(prefix);
  const fs::path file = checkpoint.file_of(name);
  return file == tower.folder || file.parent_path() == tower.folder;
}

// Of another part of the model, or a name that the encoder ignores.
bool is_foreign(const VisionTower& tower, const Checkpoint& checkpoint, const std::string& name) {
  if (!is_of_encoder(tower, checkpoint, name)) {
    return tower.codes || !name.starts_with(tower.projector.prefix);
  }
  return matches_any(tower.ignored,
                     std::string_view(name).substr(tower.vit.names.prefix.size()));
}

// The file that has the encoder, or the first of the model's.
std::string file_of(const VisionTower& tower, const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  if (tensors.empty()) return "";
  const auto own = tensors.lower_bound(tower.vit.names.prefix);
  const bool found = own != tensors.end() && own->first.starts_with(tower.vit.names.prefix);
  return checkpoint.file_of(found ? own->first : tensors.begin()->first);
}

// The way from pixels to codes.
std::vector<TensorSpec> encoder_tensors(const CodeTower& codes) {
  std::vector<TensorSpec> out = codes.movq ? movq_tensors(*codes.movq) : vq_tensors(codes.vq);
  std::erase_if(out, [&](const TensorSpec& tensor) {
    const std::string_view own = std::string_view(tensor.name).substr(codes.vq.prefix.size());
    return own.starts_with("decoder.") || own.starts_with("post_quant_conv.");
  });
  return out;
}

}  // namespace

std::vector<TensorSpec> tower_tensors(const VisionTower& tower) {
  if (tower.codes) return encoder_tensors(*tower.codes);
  std::vector<TensorSpec> out = vit_tensors(tower.vit);
  for (TensorSpec& tensor : projector_tensors(tower.projector)) out.push_back(std::move(tensor));
  return out;
}

void check_tower_tensors(const VisionTower& tower, const Checkpoint& checkpoint) {
  const std::vector<TensorSpec> expected = tower_tensors(tower);
  compare_tensors({.tensors = expected,
                   .of = "its image encoder and projector",
                   .optional = {},
                   .foreign =
                       [&](const std::string& name) {
                         return is_foreign(tower, checkpoint, name);
                       },
                   .file = file_of(tower, checkpoint)},
                  checkpoint);
}

}  // namespace tessera
