#include "apps/cli/setting_flags.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <set>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_row(const Setting& row, const std::string& text) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_VALUE",
               .where = "--" + std::string(row.name),
               .expected = expected_of(row),
               .found = "'" + text + "'"});
}

SettingValue read(const Setting& row, const std::string& text) {
  if (const std::optional<SettingValue> value = parse_setting(row, text)) return *value;
  refuse_row(row, text);
}

std::string choices_with(const Setting& row, const char* between) {
  std::string out;
  for (const std::string_view choice : row.choices()) {
    out += (out.empty() ? "" : between) + std::string(choice);
  }
  return out;
}

// With the names that there are, or the range.
std::string help_of(const Setting& row, const FlagText& text) {
  const std::string help(text.help.empty() ? row.help : text.help);
  if (row.kind == SettingKind::kName) return help + ": " + choices_with(row, ", ");
  return row.kind <= SettingKind::kInteger ? help + " (" + range_text(row) + ")" : help;
}

std::string type_of(const Setting& row) {
  if (row.kind == SettingKind::kChoice) return choices_with(row, "|");
  if (row.kind == SettingKind::kInteger) return "N";
  if (row.kind == SettingKind::kIds) return "IDS";
  if (row.kind == SettingKind::kBiases) return "IDS:X";
  return row.kind == SettingKind::kNumber ? "X" : "TEXT";
}

template <typename Take>
CLI::Option* add(CLI::App& app, const Setting& row, const FlagText& text, Take take) {
  const std::string names = flag_names(row, text.short_name);
  CLI::Option* option = nullptr;
  if (row.kind == SettingKind::kSwitch) {
    option = app.add_flag_function(
        names, [take](std::int64_t count) { take(SettingValue{count > 0 ? 1.0 : 0.0}); },
        help_of(row, text));
  } else if (!text.bare.empty()) {
    const std::string bare(text.bare);
    const auto given = std::make_shared<std::string>();
    option = app.add_flag(names + "{" + bare + "}", *given,
                          help_of(row, text) + "; " + bare + " without =N");
    option->each([take, &row, given](const std::string& value) { take(read(row, value)); });
  } else {
    option = app.add_option_function<std::string>(
                    names, [take, &row](const std::string& given) { take(read(row, given)); },
                    help_of(row, text))
                 ->type_name(type_of(row));
  }
  if (!text.group.empty()) option->group(std::string(text.group));
  return option;
}

// Hidden spellings of all rows that became flags.
std::set<std::string>& hidden() {
  static std::set<std::string> names;
  return names;
}

class Formatter final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return CLI::Formatter::make_option_name(option, is_positional);
    std::string out;
    const auto name = [&](const std::string& text) { out += (out.empty() ? "" : ",") + text; };
    for (const std::string& one : option->get_snames()) name("-" + one);
    for (const std::string& one : option->get_lnames()) {
      if (!hidden().contains(one)) name("--" + one);
    }
    return out;
  }
};

}  // namespace

std::string flag_names(const Setting& row, std::string_view short_name) {
  std::string out(short_name);
  if (!out.empty()) out += ",";
  out += "--" + std::string(row.name);
  if (!row.alias.empty()) {
    out += ",--" + std::string(row.alias);
    hidden().insert(std::string(row.alias));
  }
  return out;
}

void hide_aliases(CLI::App& app) { app.formatter(std::make_shared<Formatter>()); }

CLI::Option* setting_flag(CLI::App& app, const Setting& row, SettingValues& values,
                          const FlagText& text) {
  return add(app, row, text, [&](SettingValue value) { values.set(row, std::move(value)); });
}

CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::int64_t& target,
                          const FlagText& text) {
  return add(app, row, text,
             [&target](const SettingValue& value) {
               target = truncate<std::int64_t>(value.number);
             })
      ->default_str(std::to_string(target));
}

CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::optional<std::int64_t>& target,
                          const FlagText& text) {
  return add(app, row, text, [&target](const SettingValue& value) {
    target = truncate<std::int64_t>(value.number);
  });
}

CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::optional<double>& target,
                          const FlagText& text) {
  return add(app, row, text, [&target](const SettingValue& value) { target = value.number; });
}

CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::string& target,
                          const FlagText& text) {
  return add(app, row, text, [&target](const SettingValue& value) { target = value.text; })
      ->default_str(target);
}

CLI::Option* setting_list_flag(CLI::App& app, const std::string& names, const Setting& row,
                               std::vector<double>& target, const FlagText& text) {
  CLI::Option* option = app.add_option(names, target, help_of(row, text))
                            ->delimiter(',')
                            ->check([&row](const std::string& given) {
                              return parse_setting(row, given) ? std::string() : expected_of(row);
                            });
  if (!text.group.empty()) option->group(std::string(text.group));
  return option;
}

void add_setting_flags(CLI::App& app, const SettingGroup& group, Door door, SettingValues& values,
                       std::string_view title) {
  for (const Setting* row : group.rows) {
    if (!row->doors.has(door)) continue;
    // What one part alone reads says whose it is.
    const std::string help =
        (group.of.empty() ? "" : std::string(group.of) + ": ") + std::string(row->help);
    CLI::Option* option = setting_flag(
        app, *row, values, {.group = title.empty() ? group.title : title, .help = help});
    if (row->fallback && row->kind <= SettingKind::kInteger) {
      option->default_str(setting_text(*row, fallback_of(*row)));
    }
  }
}

}  // namespace tessera
