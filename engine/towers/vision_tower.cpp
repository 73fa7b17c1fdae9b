// Where the tensors of a tower are found.
#include "engine/towers/vision_tower.h"

#include <algorithm>

#include "engine/checkpoint/tensor_kinds.h"

namespace tessera {

namespace {

void use_layout(VisionTower& tower, const TowerLayout& layout) {
  if (tower.codes) {
    tower.codes->vq.prefix = layout.vit.prefix;
    if (tower.codes->movq) tower.codes->movq->frame.prefix = layout.vit.prefix;
  }
  tower.vit.names = layout.vit;
  tower.projector.prefix = layout.projector_prefix;
  if (!layout.projector_layers.empty()) tower.projector.layers = layout.projector_layers;
}

// The first layer's weight, by which a layout is known.
std::string first_name(const VisionTower& tower, const TowerLayout& layout) {
  return layout.vit.prefix + (tower.codes ? "encoder.conv_in" : layout.vit.patch) + ".weight";
}

}  // namespace

bool has_tower(const VisionTower& tower, const Checkpoint& checkpoint) {
  return std::any_of(tower.layouts.begin(), tower.layouts.end(), [&](const TowerLayout& layout) {
    return checkpoint.tensors().contains(first_name(tower, layout));
  });
}

void finish_tower(VisionTower& tower, const std::string& type, const std::string& file) {
  tower.family = type;
  use_layout(tower, tower.layouts.front());
  if (tower.codes) return;
  tower.projector.in_width = tower.vit.feature_width();
  check_vit_spec(tower.vit, file);
}

void locate_tower(VisionTower& tower, const Checkpoint& checkpoint) {
  std::string wanted;
  for (const TowerLayout& layout : tower.layouts) {
    const std::string first = first_name(tower, layout);
    wanted += (wanted.empty() ? "" : " or ") + first;
    if (!checkpoint.tensors().contains(first)) continue;
    use_layout(tower, layout);
    return;
  }
  throw Error{{.kind = ErrorKind::kModel,
               .code = "E_TOWER_LAYOUT",
               .file = checkpoint.tensors().empty()
                           ? std::string()
                           : checkpoint.file_of(checkpoint.tensors().begin()->first),
               .where = "image encoder",
               .expected = wanted,
               .found = explained(checkpoint, "none of them")}};
}

}  // namespace tessera
