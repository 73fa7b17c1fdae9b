// The image half of a published captioning model as plain data: encoder, projector, and the names
// under which its files keep them. Family files (engine/families) fill it from config.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/towers/projector_spec.h"
#include "engine/towers/vit_spec.h"

namespace tessera {

// One way of naming the same tensors. Files written by different releases differ.
struct TowerLayout {
  VitNames vit;
  std::string projector_prefix;
  std::vector<std::string> projector_layers;  // stems; empty: those of the projector's spec
};

struct VisionTower {
  std::string family;  // model_type of the file
  VitSpec vit;
  ProjectorSpec projector;
  std::vector<TowerLayout> layouts;  // the first is the one that vit and projector carry
  // A folder with the encoder, read where the model's own files have none; empty = none.
  std::filesystem::path folder;
  // Names after the encoder's prefix that the file may have and nobody reads; '*' at the end.
  std::vector<std::string> ignored;
};

// What follows from what a family file read: the widths between the two and the names of the first
// layout. Error kModel (E_VIT_SPEC) for an encoder that cannot be run; `file` is its place.
void finish_tower(VisionTower& tower, const std::string& type, const std::string& file);

// Takes the names of the first layout of which the checkpoint has the patch embedding. Error kModel
// (E_TOWER_LAYOUT) listing the names that were looked for.
void locate_tower(VisionTower& tower, const Checkpoint& checkpoint);

// Whether the checkpoint has the patch embedding of one of the layouts.
bool has_tower(const VisionTower& tower, const Checkpoint& checkpoint);

// Every tensor of encoder and projector.
std::vector<TensorSpec> tower_tensors(const VisionTower& tower);

// Names, shapes and types after the tower's two prefixes against tower_tensors; tensors elsewhere
// are other parts' business. Error kModel (E_TENSORS) listing missing, wrong and surplus tensors,
// the first 10 of each and how many there are.
void check_tower_tensors(const VisionTower& tower, const Checkpoint& checkpoint);

}  // namespace tessera
