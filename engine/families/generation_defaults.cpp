#include "engine/families/generation_defaults.h"

#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/sampling/processor_settings.h"
#include "engine/sampling/processors.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

constexpr std::string_view kTopH = "top_h";

std::int32_t read_id(const JsonReader& config, const LogitProcessor& key, const Json& id) {
  const bool whole = id.is_number_integer() && id >= 0 && id < std::int64_t{1} << 30;
  if (!whole) config.fail(key.config_key, expected_of(*key.setting), id.dump());
  return id.get<std::int32_t>();
}

// One id, a list of ids, or a list of sequences.
IdLists read_ids(const JsonReader& config, const LogitProcessor& key, std::int64_t codes) {
  const Json& value = config.raw(key.config_key);
  IdLists out;
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    std::vector<std::int32_t>& ids = out.emplace_back();
    const bool sequence = key.setting->high > 1;
    if (sequence && (!one.is_array() || one.empty())) {
      config.fail(key.config_key, "lists of token ids", one.dump());
    }
    for (const Json& id : sequence ? one : Json::array({one})) {
      ids.push_back(read_id(config, key, id));
      if (sequence && ids.back() >= codes) {
        config.fail(key.config_key, "ids below " + std::to_string(codes), id.dump());
      }
    }
  }
  return out;
}

// [[[5], 2.5], [[6, 7], -1.0]]
BiasedIds read_biases(const JsonReader& config, const LogitProcessor& key, std::int64_t codes) {
  const Json& value = config.raw(key.config_key);
  BiasedIds out;
  if (!value.is_array()) config.fail(key.config_key, "a list of [ids, bias]", value.dump());
  for (const Json& one : value) {
    const bool pair = one.is_array() && one.size() == 2 && one[0].is_array() && !one[0].empty() &&
                      one[1].is_number();
    if (!pair) config.fail(key.config_key, "a list of [ids, bias]", one.dump());
    std::vector<std::int32_t>& ids = out.ids.emplace_back();
    for (const Json& id : one[0]) {
      ids.push_back(read_id(config, key, id));
      if (ids.back() >= codes) {
        config.fail(key.config_key, "ids below " + std::to_string(codes), id.dump());
      }
    }
    out.biases.push_back(one[1].get<double>());
  }
  return out;
}

// [tokens that are spared, factor]
SettingValues read_decay(const JsonReader& config, const LogitProcessor& key) {
  const Json& value = config.raw(key.config_key);
  const bool pair =
      value.is_array() && value.size() == 2 && value[0].is_number_integer() && value[1].is_number();
  const Setting &start = setting::kLengthDecayStart, &factor = setting::kLengthDecay;
  if (!pair || !in_range(start, value[0].get<double>()) ||
      !in_range(factor, value[1].get<double>())) {
    config.fail(key.config_key, "[" + expected_of(start) + ", " + expected_of(factor) + "]",
                value.dump());
  }
  SettingValues out;
  out.settle(start, value[0].get<double>());
  out.settle(factor, value[1].get<double>());
  return out;
}

SettingValue read_value(const JsonReader& config, const LogitProcessor& key, std::int64_t codes) {
  const Setting& row = *key.setting;
  if (row.kind == SettingKind::kBiases) {
    const std::string text = biases_text(read_biases(config, key, codes));
    if (!parse_setting(row, text)) config.fail(key.config_key, expected_of(row), text);
    return {0, text};
  }
  if (row.kind == SettingKind::kIds) {
    const std::string text = ids_text(read_ids(config, key, codes));
    if (!parse_setting(row, text)) config.fail(key.config_key, expected_of(row), text);
    return {0, text};
  }
  if (row.kind == SettingKind::kNumber) return {config.number(key.config_key, row.low, row.high)};
  return {to_double(config.integer(key.config_key, truncate<std::int64_t>(row.low),
                                   truncate<std::int64_t>(row.high)))};
}

}  // namespace

SettingValues read_processors(const JsonReader& config, std::int64_t codes) {
  SettingValues out;
  for (const LogitProcessor& key : logit_processors()) {
    if (key.config_key.empty() || !config.has(key.config_key)) continue;
    if (key.setting == &setting::kLengthDecay) {
      out.fill(read_decay(config, key));
    } else {
      out.settle(*key.setting, read_value(config, key, codes));
    }
  }
  return out;
}

SettingValues read_text_processors(const JsonReader& config, std::int64_t codes) {
  SettingValues out = read_processors(config, codes);
  if (config.has("min_new_tokens")) out.clear(setting::kMinLength);
  return out;
}

SettingValues read_cuts(const JsonReader& config) {
  SettingValues out;
  if (config.has("top_k")) {
    out.set(setting::kTopK, to_double(config.integer("top_k", 0, std::int64_t{1} << 20)));
  }
  // Masses of 1 and more cut nothing; one below the smallest keeps the likeliest id, as that does.
  const std::pair<const char*, const Setting*> masses[] = {{"top_p", &setting::kTopP},
                                                           {"typical_p", &setting::kTypical}};
  for (const auto& [key, row] : masses) {
    if (config.has(key)) out.set(*row, clamped(*row, config.number(key, 0, 1e9)));
  }
  if (config.has("min_p")) out.set(setting::kMinP, config.number("min_p", 0, 1));
  // Cuts that are not among the stages of a distribution; outside (0, 1) the last two are off.
  for (const std::string_view key :
       {kTopH, std::string_view("epsilon_cutoff"), std::string_view("eta_cutoff")}) {
    if (!config.has(key)) continue;
    const Json& value = config.raw(key);
    if (value.is_number() && (value <= 0 || value >= 1) && key != kTopH) continue;
    config.fail(key, "null: texts are not drawn under it; or no --temp", value.dump());
  }
  return out;
}

}  // namespace tessera
