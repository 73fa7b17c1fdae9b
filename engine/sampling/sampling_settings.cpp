#include "engine/sampling/sampling_settings.h"

namespace tessera {

std::span<const BoundSetting<LawSettings>> LawSettings::rows() {
  static constexpr BoundSetting<LawSettings> kRows[] = {
      {&setting::kTemperature, &LawSettings::temperature},
      {&setting::kTopK, &LawSettings::top_k},
      {&setting::kTopP, &LawSettings::top_p},
      {&setting::kMinP, &LawSettings::min_p},
      {&setting::kTypical, &LawSettings::typical},
      {&setting::kGuidance, &LawSettings::guidance}};
  return kRows;
}

const SettingGroup& sampling_group() {
  static const SettingGroup kGroup{.title = "Sampling", .rows = rows_of<LawSettings>()};
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

LawSettings settle_law(LawSettings preset, const SettingValues& chosen) {
  for (const BoundSetting<LawSettings>& bound : LawSettings::rows()) {
    if (const SettingValue* value = chosen.find(*bound.row)) assign(preset, bound, *value);
  }
  return preset;
}

SettingValues values_of(const LawSettings& law) {
  SettingValues out;
  for (const BoundSetting<LawSettings>& bound : LawSettings::rows()) {
    out.set(*bound.row, value_of(law, bound));
  }
  return out;
}

}  // namespace tessera
