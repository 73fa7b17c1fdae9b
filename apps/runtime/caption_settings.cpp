#include "apps/runtime/caption_settings.h"

namespace tessera {

const SettingGroup& caption_group() {
  static constexpr const Setting* kRows[] = {&setting::kMaxTokens, &setting::kPruneRate,
                                             &setting::kVideoFrames, &setting::kShownRate,
                                             &setting::kSceneCut};
  static constexpr SettingGroup kGroup{.title = "Describing", .rows = kRows};
  return kGroup;
}

}  // namespace tessera
