// The table of captioning families and where their tensors are found.
#include "vision/encoder/vision_tower.h"

#include <array>
#include <nlohmann/json.hpp>

#include "vision/encoder/tower_configs.h"

namespace tessera {

namespace {

struct Row {
  std::string_view model_type;
  VisionTower (*parse)(const JsonReader& config);
};
constexpr std::array<Row, 11> kFamilies = {{{"llava", &parse_llava},
                                            {"llava_llama", &parse_llava},
                                            {"llava_mistral", &parse_llava},
                                            {"llava_next", &parse_llava},
                                            {"llava_onevision", &parse_llava_onevision},
                                            {"janus", &parse_janus_port},
                                            {"multi_modality", &parse_janus_original},
                                            {"qwen2_vl", &parse_qwen2},
                                            {"qwen2_5_vl", &parse_qwen2_5},
                                            {"idefics3", &parse_idefics},
                                            {"smolvlm", &parse_idefics}}};

void use_layout(VisionTower& tower, const TowerLayout& layout) {
  tower.vit.names = layout.vit;
  tower.projector.prefix = layout.projector_prefix;
  if (!layout.projector_layers.empty()) tower.projector.layers = layout.projector_layers;
}

}  // namespace

VisionTower parse_vision_tower(const Json& config, const std::string& file) {
  const JsonReader reader(config, file);
  const std::string type = reader.string("model_type");
  std::string known;
  for (const Row& row : kFamilies) {
    known += (known.empty() ? "" : ", ") + std::string(row.model_type);
    if (row.model_type != type) continue;
    VisionTower tower = row.parse(reader);
    tower.family = type;
    tower.projector.in_width = tower.vit.feature_width();
    use_layout(tower, tower.layouts.front());
    check_vit_spec(tower.vit, file);
    return tower;
  }
  reader.fail("model_type", "one of " + known, type);
}

void locate_tower(VisionTower& tower, const Checkpoint& checkpoint) {
  std::string wanted;
  for (const TowerLayout& layout : tower.layouts) {
    const std::string patch = layout.vit.prefix + layout.vit.patch + ".weight";
    wanted += (wanted.empty() ? "" : " or ") + patch;
    if (checkpoint.find(patch) == nullptr) continue;
    use_layout(tower, layout);
    return;
  }
  throw Error{{.kind = ErrorKind::kModel,
               .code = "E_TOWER_LAYOUT",
               .file = checkpoint.tensors().empty()
                           ? std::string()
                           : checkpoint.file_of(checkpoint.tensors().begin()->first),
               .where = "picture encoder",
               .expected = wanted,
               .found = "none of them"}};
}

}  // namespace tessera
