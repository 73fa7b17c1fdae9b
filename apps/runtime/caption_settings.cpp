#include "apps/runtime/caption_settings.h"

#include "vision/pruning/registry.h"

namespace tessera {

std::span<const std::string_view> setting::prune_choices() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> out = {kNoPruner};
    for (const PrunerRow& row : pruner_table()) out.push_back(row.name);
    return out;
  }();
  return kNames;
}

const SettingGroup& caption_group() {
  static constexpr SettingGroup kGroup{.title = "Describing", .rows = setting::kCaptionRows};
  return kGroup;
}

}  // namespace tessera
