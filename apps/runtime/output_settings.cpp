#include "apps/runtime/output_settings.h"

namespace tessera {

std::span<const std::string_view> continue_choices() {
  static constexpr std::string_view kChoices[] = {"recompute", "sinks"};
  return kChoices;
}

std::span<const std::string_view> container_choices() {
  static constexpr std::string_view kChoices[] = {"mkv", "mp4", "webm", "webp", "gif"};
  return kChoices;
}

std::span<const SettingGroup> output_groups() {
  static constexpr const Setting* kSize[] = {&setting::kWidth, &setting::kHeight};
  static constexpr const Setting* kVideo[] = {&setting::kFrames, &setting::kFps,
                                              &setting::kContinue, &setting::kContainer,
                                              &setting::kQuality};
  static constexpr const Setting* kOutput[] = {&setting::kBatchSize, &setting::kBatchCount,
                                               &setting::kPreviewInterval};
  static constexpr SettingGroup kGroups[] = {{.title = "Size", .rows = kSize},
                                             {.title = "Video", .rows = kVideo},
                                             {.title = "Output", .rows = kOutput}};
  return kGroups;
}

}  // namespace tessera
