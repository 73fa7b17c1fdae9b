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
  static constexpr SettingGroup kGroups[] = {{.title = "Size", .rows = setting::kSizeRows},
                                             {.title = "Video", .rows = setting::kVideoRows},
                                             {.title = "Output", .rows = setting::kOutputRows}};
  return kGroups;
}

}  // namespace tessera
