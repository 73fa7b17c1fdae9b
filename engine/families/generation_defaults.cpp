#include "engine/families/generation_defaults.h"

#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/families/folder_files.h"
#include "engine/sampling/processors.h"

namespace tessera {

namespace {

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

SettingValue read_value(const JsonReader& config, const LogitProcessor& key, std::int64_t codes) {
  const Setting& row = *key.setting;
  if (row.kind == SettingKind::kIds) {
    const std::string text = ids_text(read_ids(config, key, codes));
    if (!parse_setting(row, text)) config.fail(key.config_key, expected_of(row), text);
    return {0, text};
  }
  if (row.kind == SettingKind::kNumber) return {config.number(key.config_key, row.low, row.high)};
  return {to_double(config.integer(key.config_key, truncate<std::int64_t>(row.low),
                                   truncate<std::int64_t>(row.high)))};
}

// What would change texts and is done nowhere here.
void refuse_others(const JsonReader& config) {
  for (const KnownKey& row : known_generation_keys()) {
    if (row.use != KeyUse::kRefused || !config.has(row.path)) continue;
    const Json& value = config.raw(row.path);
    if (is_neutral(row, value)) continue;
    config.fail(row.path,
                "no such key, or " + std::string(row.neutral) + ": " + std::string(row.why),
                value.dump());
  }
}

}  // namespace

SettingValues read_processors(const JsonReader& config, std::int64_t codes) {
  refuse_others(config);
  SettingValues out;
  for (const LogitProcessor& key : logit_processors()) {
    if (key.config_key.empty() || !config.has(key.config_key)) continue;
    out.settle(*key.setting, read_value(config, key, codes));
  }
  return out;
}

}  // namespace tessera
