// The image half of a published captioning model as plain data: encoder, projector, and the names
// under which its files keep them. Family files (engine/families) fill it from config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/movq_spec.h"
#include "engine/nn/vq_spec.h"
#include "engine/towers/projector_spec.h"
#include "engine/towers/vit_spec.h"

namespace tessera {

// One way of naming the same tensors. Files written by different releases differ.
struct TowerLayout {
  VitNames vit;
  std::string projector_prefix;
  std::vector<std::string> projector_layers;  // stems; empty: those of the projector's spec
};

// An image tokenizer in the place of encoder and projector: a visual token is the row of the language
// model's table that belongs to a code.
struct CodeTower {
  VqSpec vq;                      // of Emu3 the frames of `movq`
  std::optional<MovqSpec> movq;
  std::vector<std::int32_t> ids;  // of each code: its id in the vocabulary
  std::int32_t row_end = -1;      // the id after each row of codes; -1 = none
};

struct VisionTower {
  std::string family;  // model_type of the file
  // Where it is there, `vit` has the side of a code as its patch, the projector the width of the
  // table, and a layout the prefix of the tokenizer's tensors.
  std::optional<CodeTower> codes;
  VitSpec vit;
  ProjectorSpec projector;
  std::vector<TowerLayout> layouts;  // the first is the one that vit and projector carry
  // A folder or file with the encoder, read where the model's own files have none; empty = none.
  std::filesystem::path folder;
  // Names after the encoder's prefix that the file may have and nobody reads; '*' at the end.
  std::vector<std::string> ignored;
};

// What follows from what a family file read: the widths between the two and the names of the first
// layout. Error kModel (E_VIT_SPEC) for an encoder that cannot be run; `file` is its place.
void finish_tower(VisionTower& tower, const std::string& type, const std::string& file);

// Takes the names of the first layout of which the checkpoint has the first layer. Error kModel
// (E_TOWER_LAYOUT) listing the names that were looked for.
void locate_tower(VisionTower& tower, const Checkpoint& checkpoint);

// Whether the checkpoint has the first layer of one of the layouts.
bool has_tower(const VisionTower& tower, const Checkpoint& checkpoint);

// Every tensor of encoder and projector, or of an image tokenizer's way from pixels to codes.
std::vector<TensorSpec> tower_tensors(const VisionTower& tower);

// Names, shapes and types after the tower's two prefixes against tower_tensors; tensors elsewhere
// are other parts' business. Error kModel (E_TENSORS) listing missing, wrong and surplus tensors,
// the first 10 of each and how many there are.
void check_tower_tensors(const VisionTower& tower, const Checkpoint& checkpoint);

}  // namespace tessera
