#include "engine/sampling/sampling_settings.h"

#include "engine/sampling/processor_settings.h"

namespace tessera {

namespace {

// A logits processor that is off: neither records nor choices say it.
bool is_idle(const Setting& row, const SettingValue& value) {
  return (row.late || !row.doors.has(Door::kRecord)) && value == fallback_of(row);
}

}  // namespace

std::span<const BoundSetting<DistributionSettings>> DistributionSettings::rows() {
  static constexpr BoundSetting<DistributionSettings> kRows[] = {
      {&setting::kTemperature, &DistributionSettings::temperature},
      {&setting::kTopK, &DistributionSettings::top_k},
      {&setting::kTopP, &DistributionSettings::top_p},
      {&setting::kMinP, &DistributionSettings::min_p},
      {&setting::kTypical, &DistributionSettings::typical},
      {&setting::kGuidance, &DistributionSettings::guidance},
      {&setting::kSequenceBias, &DistributionSettings::sequence_bias},
      {&setting::kPromptPenalty, &DistributionSettings::prompt_penalty},
      {&setting::kRepetitionPenalty, &DistributionSettings::repetition_penalty},
      {&setting::kFrequencyPenalty, &DistributionSettings::frequency_penalty},
      {&setting::kPresencePenalty, &DistributionSettings::presence_penalty},
      {&setting::kNoRepeatNgram, &DistributionSettings::no_repeat_ngram},
      {&setting::kPromptNgram, &DistributionSettings::prompt_ngram},
      {&setting::kBadWords, &DistributionSettings::bad_words},
      {&setting::kMinLength, &DistributionSettings::min_length},
      {&setting::kMinNewTokens, &DistributionSettings::min_new_tokens},
      {&setting::kForcedTokens, &DistributionSettings::forced_tokens},
      {&setting::kForcedBos, &DistributionSettings::forced_bos},
      {&setting::kForcedEos, &DistributionSettings::forced_eos},
      {&setting::kLengthDecayStart, &DistributionSettings::length_decay_start},
      {&setting::kLengthDecay, &DistributionSettings::length_decay},
      {&setting::kSuppressTokens, &DistributionSettings::suppress_tokens},
      {&setting::kBeginSuppress, &DistributionSettings::begin_suppress}};
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

void write_dist(Json& object, const DistributionSettings& dist) {
  for (const BoundSetting<DistributionSettings>& bound : DistributionSettings::rows()) {
    const SettingValue value = value_of(dist, bound);
    if (bound.row->doors.has(Door::kRecord) && !is_idle(*bound.row, value))
      write_setting(object, *bound.row, value);
  }
}

DistributionSettings read_dist(const JsonReader& reader) {
  DistributionSettings out;
  for (const BoundSetting<DistributionSettings>& bound : DistributionSettings::rows()) {
    if (!bound.row->doors.has(Door::kRecord)) continue;
    if (bound.row->late && !reader.has(bound.row->record)) continue;
    assign(out, bound, read_setting(reader, *bound.row));
  }
  return out;
}

SettingValues values_of(const DistributionSettings& dist) {
  SettingValues out;
  for (const BoundSetting<DistributionSettings>& bound : DistributionSettings::rows()) {
    const SettingValue value = value_of(dist, bound);
    if (!is_idle(*bound.row, value)) out.set(*bound.row, value);
  }
  return out;
}

}  // namespace tessera
