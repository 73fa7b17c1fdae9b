#include "apps/runtime/caption_settings.h"

namespace tessera {

const SettingGroup& caption_group() {
  static constexpr SettingGroup kGroup{.title = "Describing", .rows = setting::kCaptionRows};
  return kGroup;
}

}  // namespace tessera
