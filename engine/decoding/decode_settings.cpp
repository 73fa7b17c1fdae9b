#include "engine/decoding/decode_settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/decoding/loop_settings.h"
#include "engine/decoding/trees/tree_growth.h"

namespace tessera {

namespace {

// A flag that would change nothing is a mistake.
void check_used(const SettingValues& given, const DecodeMethod& method) {
  const std::vector<const Setting*> read = settings_of(method);
  for (const SettingGroup& group : part_groups()) {
    for (const Setting* row : group.rows) {
      const SettingValue* value = given.find(*row);
      const bool off = row->kind == SettingKind::kSwitch && value != nullptr && value->number == 0;
      if (!row->refused_unused || value == nullptr || off) continue;
      if (std::ranges::find(read, row) != read.end()) continue;
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_DECODE_CONFLICT",
                   .where = "--" + std::string(row->name),
                   .expected = "--" + std::string(group.chosen_by->name) +
                               (group.of.empty() ? "" : " " + std::string(group.of)),
                   .found = "a method that does not read it"});
    }
  }
}

// The top key of a record that holds the row.
std::string_view top_key(const Setting& row) {
  const auto [place, key] = record_place(row);
  return place.empty() ? key : place;
}

template <typename Take>
void for_each_part_row(Take take) {
  for (const SettingGroup& group : part_groups()) {
    for (const Setting* row : group.rows) {
      if (!row->record.empty()) take(*row);
    }
  }
}

constexpr const Setting* kOfEveryMethod[] = {&setting::kRowLead, &setting::kRowWindow,
                                             &setting::kTvBudget, &setting::kCache,
                                             &setting::kPrecise, &setting::kBf16Inputs};
constexpr const Setting* kOfLoops[] = {&setting::kCache, &setting::kPrecise, &setting::kBf16Inputs};

}  // namespace

std::span<const SettingGroup> decode_groups() {
  static const auto groups = [] {
    static constexpr const Setting* kRows[] = {
        &setting::kDecode,   &setting::kWindow, &setting::kDrafter, &setting::kModelDraft,
        &setting::kRedraft,  &setting::kAccept, &setting::kTree,    &setting::kRowLead,
        &setting::kRowWindow, &setting::kTvBudget, &setting::kCache,  &setting::kPrecise,
        &setting::kBf16Inputs};
    std::vector<SettingGroup> out{{.title = "Decoding", .rows = kRows}};
    out.insert(out.end(), part_groups().begin(), part_groups().end());
    return out;
  }();
  return groups;
}

const SettingGroup& text_decode_group() {
  static constexpr const Setting* kRows[] = {&setting::kTextDecode, &setting::kTextWindow};
  static constexpr SettingGroup kGroup{.title = "Decoding of texts", .rows = kRows};
  return kGroup;
}

std::span<const Setting* const> loop_settings() { return kOfLoops; }

ProductInputs product_inputs(const DecodeMethod& method) {
  return {.precise = method.settings.number(setting::kPrecise) != 0,
          .bf16 = method.settings.number(setting::kBf16Inputs) != 0};
}

void set_loop(DecodeMethod& method, const SettingValues& given) {
  for (const Setting* row : kOfLoops) {
    if (const SettingValue* value = given.find(*row)) method.set(*row, *value);
  }
}

DecodeMethod method_of(const SettingValues& given, const DecodeMethod& fallback) {
  DecodeMethod method =
      given.has(setting::kDecode) ? decode_method(given.text(setting::kDecode)) : fallback;
  for (const auto& [row, value] : given.entries()) {
    if (row != &setting::kDecode && row != &setting::kModelDraft) method.set(*row, value);
  }
  const bool new_tree = given.has(setting::kTree) && method.branches();
  if (new_tree && !given.has(setting::kAccept)) method.rule = rule_of_tree(method.tree);
  check_used(given, method);
  return method;
}

SettingValues values_of(const DecodeMethod& method) {
  SettingValues out = method.settings;
  for (const BoundSetting<DecodeMethod>& bound : DecodeMethod::rows()) {
    out.set(*bound.row, value_of(method, bound));
  }
  // What comes with the name is said also where it was switched off.
  for (const NamedMethod& named : named_methods()) {
    if (named.name != method.name) continue;
    const DecodeMethod whole = decode_method(named.name);
    for (const auto& [row, value] : whole.settings.entries()) {
      out.set(*row, method.settings.get(*row));
    }
  }
  return out;
}

void write_method_names(Json& record, const DecodeMethod& method) {
  for (const Setting* row : {&setting::kDecode, &setting::kAccept}) {
    write_setting(record, *row, method.value(*row));
  }
}

void write_method(Json& record, const DecodeMethod& method, const std::string& draft_model) {
  const auto write = [&](const Setting& row) { write_setting(record, row, method.value(row)); };
  // What an adaptive method did depends on the machine's mood; the record does not.
  if (!method.adaptive) write(setting::kWindow);
  if (method.speculative()) {
    write(setting::kDrafter);
    write(setting::kRedraft);
    if (!draft_model.empty()) write_setting(record, setting::kModelDraft, {0, draft_model});
    if (method.branches()) {
      write(setting::kTree);
      for (const Setting* row : rows_of<TreeSettings>()) write(*row);
    }
  }
  for (const Setting* row : settings_of(method)) {
    const bool of_tree =
        std::ranges::find(rows_of<TreeSettings>(), row) != rows_of<TreeSettings>().end();
    if (!row->record.empty() && !of_tree) write(*row);
  }
  for (const Setting* row : kOfEveryMethod) {
    if (method.settings.has(*row)) write(*row);
  }
}

std::vector<std::string_view> method_record_keys() {
  std::vector<std::string_view> out;
  const auto add = [&](const Setting& row) {
    if (std::ranges::find(out, top_key(row)) == out.end()) out.push_back(top_key(row));
  };
  for (const BoundSetting<DecodeMethod>& bound : DecodeMethod::rows()) add(*bound.row);
  add(setting::kModelDraft);
  for_each_part_row(add);
  for (const Setting* row : kOfEveryMethod) add(*row);
  return out;
}

DecodeMethod read_method(const JsonReader& reader) {
  DecodeMethod method;
  for (const BoundSetting<DecodeMethod>& bound : DecodeMethod::rows()) {
    const auto [place, key] = record_place(*bound.row);
    const bool always = bound.row == &setting::kDecode || bound.row == &setting::kAccept;
    if (bound.row == &setting::kWindow) continue;
    if (!always && !reader.has(place.empty() ? key : place)) continue;
    assign(method, bound, read_setting(place.empty() ? reader : reader.object(place), *bound.row));
  }
  for (const NamedMethod& named : named_methods()) {
    if (named.name != method.name) continue;
    method.adaptive = named.adaptive;
    if (named.adaptive) method.window = named.window;
  }
  if (!method.adaptive) {
    method.window = truncate<std::int64_t>(read_setting(reader, setting::kWindow).number);
  }
  const auto read = [&](const Setting& row) {
    const auto [place, key] = record_place(row);
    if (place.empty()) {
      if (reader.has(key)) method.settings.settle(row, read_setting(reader, row));
    } else if (reader.has(place)) {
      const JsonReader within = reader.object(place);
      if (row.late && !within.has(key)) return;
      method.settings.settle(row, read_setting(within, row));
    }
  };
  for_each_part_row(read);
  for (const Setting* row : kOfEveryMethod) read(*row);
  return method;
}

Json method_report(const DecodeMethod& method) {
  Json out = Json::object();
  for (const BoundSetting<DecodeMethod>& bound : DecodeMethod::rows()) {
    out[std::string(top_key(*bound.row))] = setting_json(*bound.row, value_of(method, bound));
  }
  out["adaptive"] = method.adaptive;
  out["promise"] = guarantee_name(guarantee_of(method));
  return out;
}

}  // namespace tessera
