#include "engine/sampling/sampling_settings.h"

namespace tessera {

std::span<const BoundSetting<DistributionSettings>> DistributionSettings::rows() {
  static constexpr BoundSetting<DistributionSettings> kRows[] = {
      {&setting::kTemperature, &DistributionSettings::temperature},
      {&setting::kTopK, &DistributionSettings::top_k},
      {&setting::kTopP, &DistributionSettings::top_p},
      {&setting::kMinP, &DistributionSettings::min_p},
      {&setting::kTypical, &DistributionSettings::typical},
      {&setting::kGuidance, &DistributionSettings::guidance}};
  return kRows;
}

const SettingGroup& sampling_group() {
  static const SettingGroup kGroup{.title = "Sampling", .rows = rows_of<DistributionSettings>()};
  return kGroup;
}

std::span<const Setting* const> preset_rows() {
  static constexpr const Setting* kRows[] = {&setting::kTemperature, &setting::kTopK,
                                             &setting::kTopP, &setting::kGuidance};
  return kRows;
}

SettingValues without_cuts() {
  SettingValues out;
  out.set(setting::kTopK, 0);
  out.set(setting::kTopP, 1);
  return out;
}

DistributionSettings settle_dist(DistributionSettings preset, const SettingValues& chosen) {
  for (const BoundSetting<DistributionSettings>& bound : DistributionSettings::rows()) {
    if (const SettingValue* value = chosen.find(*bound.row)) assign(preset, bound, *value);
  }
  return preset;
}

SettingValues values_of(const DistributionSettings& dist) {
  SettingValues out;
  for (const BoundSetting<DistributionSettings>& bound : DistributionSettings::rows()) {
    out.set(*bound.row, value_of(dist, bound));
  }
  return out;
}

}  // namespace tessera
