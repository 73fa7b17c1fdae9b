// Flag helpers, and the filling of open flags from the environment and the config file.
#include "apps/cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr auto kMaxSide = truncate<std::int64_t>(setting::kWidth.high);
constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

std::string first_long_name(const std::string& names) {
  for (const std::string& name : CLI::detail::split_names(names)) {
    if (name.rfind("--", 0) == 0) return name;
  }
  return names;
}

[[noreturn]] void refuse_option(const std::string& flag, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_FLAG_VALUE",
               .where = flag,
               .expected = std::move(expected),
               .found = std::move(found)});
}

// A flag whose value is one of a few words, each with what it means.
template <typename Value>
CLI::Option* word_flag(CLI::App& app, const std::string& name, Value& out, const std::string& help,
                       std::vector<std::pair<std::string, Value>> words) {
  std::string all;
  for (const auto& [word, value] : words) all += (all.empty() ? "" : "|") + word;
  const auto read = [&out, name, all, words](const std::string& text) {
    const auto found = std::find_if(words.begin(), words.end(),
                                    [&](const auto& entry) { return entry.first == text; });
    if (found == words.end()) refuse_option(name, all, "'" + text + "'");
    out = found->second;
  };
  return app.add_option_function<std::string>(name, read, help)->type_name(all);
}

std::string shortest(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

std::int64_t read_integer(const std::string& flag, const std::string& text, std::int64_t low,
                          std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || rest != end || value < low || value > high) {
    refuse_option(flag, "an integer from " + std::to_string(low) + " to " + std::to_string(high),
                  "'" + text + "'");
  }
  return value;
}

double read_number(const std::string& flag, const std::string& text, double low, double high) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || rest != end || !std::isfinite(value) || value < low ||
      value > high) {
    refuse_option(flag, "a number from " + shortest(low) + " to " + shortest(high),
                  "'" + text + "'");
  }
  return value;
}

// Where a value that was not on the command line came from, for messages.
void add_value(CLI::Option& option, const std::vector<std::string>& values,
               const std::string& source) {
  try {
    if (option.get_expected_max() == 0) {
      for (const std::string& value : values) {
        option.add_result(option.get_flag_value(option.get_lnames().front(), value));
      }
    } else {
      for (const std::string& value : values) option.add_result(value);
    }
    option.run_callback();
  } catch (const CLI::Error& error) {
    refuse_option(source, "a value that --" + option.get_lnames().front() + " takes", error.what());
  } catch (const Error& error) {
    ErrorInfo info = error.info();
    info.where = source + ": " + info.where;
    throw Error(info);
  }
}

std::optional<std::filesystem::path> config_path(CLI::App& command) {
  const CLI::Option* option = command.get_option_no_throw("--config");
  if (option != nullptr && option->count() > 0) return option->as<std::string>();
  if (const char* path = std::getenv("TESSERA_CONFIG"); path != nullptr && *path != '\0') {
    return path;
  }
  std::filesystem::path folder;
  if (const char* xdg = std::getenv("XDG_CONFIG_HOME"); xdg != nullptr && *xdg != '\0') {
    folder = xdg;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".config";
  } else {
    return std::nullopt;
  }
  const std::filesystem::path path = folder / "tessera" / "config.toml";
  if (!file_exists(path)) return std::nullopt;
  return path;
}

std::vector<CLI::ConfigItem> read_config(const std::filesystem::path& path) {
  std::istringstream text(read_file(path, kMaxConfigBytes, ErrorKind::kUsage));
  try {
    return CLI::ConfigTOML().from_config(text);
  } catch (const CLI::Error& error) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_CONFIG_FILE",
                 .file = path.string(),
                 .expected = "lines 'flag = value' and [sub-command] sections",
                 .found = error.what()});
  }
}

// The option of `app` with this long name; --help, --config and positionals cannot be preset.
CLI::Option* preset_option(CLI::App& app, const std::string& name) {
  if (name == "help" || name == "config") return nullptr;
  return app.get_option_no_throw("--" + name);
}

[[noreturn]] void unknown_config_key(const std::filesystem::path& path, const std::string& key,
                                     const std::string& section) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_CONFIG_KEY",
               .file = path.string(),
               .where = key,
               .expected = section.empty() ? "the long name of a flag of some sub-command"
                                           : "a flag of 'tessera " + section + "'",
               .found = "an unknown key"});
}

void apply_config(CLI::App& root, CLI::App& command, const std::filesystem::path& path,
                  std::span<const std::string_view> elsewhere) {
  // Sections first: a key under [generate] beats the same key outside any section.
  std::vector<CLI::ConfigItem> items = read_config(path);
  std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
    return a.parents.size() > b.parents.size();
  });
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // section marks of the reader
    CLI::Option* option = nullptr;
    if (item.parents.empty()) {
      bool known = false;
      for (CLI::App* sub : root.get_subcommands({})) {
        known = known || preset_option(*sub, item.name) != nullptr;
      }
      if (!known) unknown_config_key(path, item.name, "");
      option = preset_option(command, item.name);
    } else {
      if (std::ranges::find(elsewhere, item.parents.front()) != elsewhere.end()) continue;
      CLI::App* section = nullptr;
      for (CLI::App* sub : root.get_subcommands({})) {
        if (sub->get_name() == item.parents.front()) section = sub;
      }
      if (section == nullptr || item.parents.size() > 1) {
        unknown_config_key(path, item.fullname(), "");
      }
      option = preset_option(*section, item.name);
      if (option == nullptr) unknown_config_key(path, item.fullname(), item.parents.front());
      if (section != &command) continue;
    }
    if (option == nullptr || option->count() > 0) continue;
    add_value(*option, item.inputs, path.string() + ": " + item.fullname());
  }
}

}  // namespace

CLI::Option* integer_flag(CLI::App& app, const std::string& names, std::int64_t& target,
                          std::int64_t low, std::int64_t high, const std::string& help) {
  const std::string flag = first_long_name(names);
  return app
      .add_option_function<std::string>(
          names,
          [&target, flag, low, high](const std::string& text) {
            target = read_integer(flag, text, low, high);
          },
          help)
      ->type_name("N")
      ->default_str(std::to_string(target));
}

CLI::Option* integer_flag(CLI::App& app, const std::string& names,
                          std::optional<std::int64_t>& target, std::int64_t low, std::int64_t high,
                          const std::string& help) {
  const std::string flag = first_long_name(names);
  return app
      .add_option_function<std::string>(
          names,
          [&target, flag, low, high](const std::string& text) {
            target = read_integer(flag, text, low, high);
          },
          help)
      ->type_name("N");
}

CLI::Option* number_flag(CLI::App& app, const std::string& names, std::optional<double>& target,
                         double low, double high, const std::string& help) {
  const std::string flag = first_long_name(names);
  return app
      .add_option_function<std::string>(
          names,
          [&target, flag, low, high](const std::string& text) {
            target = read_number(flag, text, low, high);
          },
          help)
      ->type_name("X");
}

CLI::Option* text_flag(CLI::App& app, const std::string& names, std::string& target,
                       const std::string& help) {
  return app
      .add_option_function<std::string>(
          names, [&target](const std::string& text) { target = text; }, help)
      ->type_name("TEXT")
      ->default_str(target);
}

CLI::Option* text_flag(CLI::App& app, const std::string& names, std::optional<std::string>& target,
                       const std::string& help) {
  return app
      .add_option_function<std::string>(
          names, [&target](const std::string& text) { target = text; }, help)
      ->type_name("TEXT");
}

CLI::Option* choice_flag(CLI::App& app, const std::string& names, std::string& target,
                         const std::vector<std::string>& choices, const std::string& help,
                         const std::vector<std::string>& old_choices) {
  const std::string flag = first_long_name(names);
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "" : "|") + choice;
  std::vector<std::string> known = choices;
  known.insert(known.end(), old_choices.begin(), old_choices.end());
  return app
      .add_option_function<std::string>(
          names,
          [&target, flag, known, list](const std::string& text) {
            if (std::find(known.begin(), known.end(), text) == known.end()) {
              refuse_option(flag, list, "'" + text + "'");
            }
            target = text;
          },
          help)
      ->type_name(list)
      ->default_str(target);
}

void add_common_flags(CLI::App& app, Session& session) {
  app.add_flag("--json", session.json, "results as JSON lines on stdout");
  app.add_flag("-v,--verbose", session.verbosity, "say more on stderr (twice: still more)");
  const std::string group = "Reports";
  app.get_option("--json")->group(group);
  app.get_option("--verbose")->group(group);
  word_flag(
      app, "--progress", session.progress, "progress on stderr",
      {{"auto", ProgressMode::kAuto}, {"json", ProgressMode::kJson}, {"none", ProgressMode::kNone}})
      ->group(group);
  word_flag(
      app, "--color", session.color, "colours on stderr; NO_COLOR is obeyed",
      {{"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}})
      ->group(group);
  app.add_option("--config", "file with flags, TOML style")->type_name("FILE")->group(group);
}

void add_device_flags(CLI::App& app, DeviceFlags& flags) {
  text_flag(app, "--device", flags.device, "cpu, cuda[:i] or auto")->group("Device");
  integer_flag(app, "-t,--threads", flags.threads, 0, 1024, "threads; 0 = one per core")
      ->group("Device");
  std::vector<std::string> types = {"auto"};
  types.insert(types.end(), kKeptNames.begin(), kKeptNames.end());
  choice_flag(app, "--dtype", flags.dtype, types,
              "how weights are kept; auto: as the checkpoint has them; f16, q8, q4: CPU")
      ->group("Device");
  app.add_flag("--deterministic", flags.deterministic,
               "cuda: one order of sums for every number of rows; the CPU has no other")
      ->group("Device");
  app.add_flag("--tf32", flags.tf32,
               "cuda: products, convolutions and attention of f32 may round to tf32")
      ->group("Device");
}

void add_size_flags(CLI::App& app, SizeFlags& flags) {
  setting_flag(app, setting::kWidth, flags.width, {.short_name = "-W"});
  setting_flag(app, setting::kHeight, flags.height, {.short_name = "-H"});
  text_flag(app, "--size", flags.size, "WIDTHxHEIGHT");
}

void settle_size(SizeFlags& flags) {
  if (!flags.size) return;
  const std::string& text = *flags.size;
  const auto side = [&](const std::string& part) {
    std::int64_t value = 0;
    const char* end = part.data() + part.size();
    const auto [rest, status] = std::from_chars(part.data(), end, value);
    if (status != std::errc{} || rest != end || value < 1 || value > kMaxSide) {
      refuse_option("--size", "WIDTHxHEIGHT with sides from 1 to 16384", "'" + text + "'");
    }
    return value;
  };
  const std::size_t cross = std::min(text.find('x'), text.size());
  const std::int64_t width = side(text.substr(0, cross));
  const std::int64_t height = side(text.substr(std::min(cross + 1, text.size())));
  if ((flags.width && *flags.width != width) || (flags.height && *flags.height != height)) {
    refuse_option("--size", "one size", "another --width or --height");
  }
  flags.width = width;
  flags.height = height;
}

std::string environment_name(const std::string& long_name) {
  std::string out = "TESSERA_";
  for (const char c : long_name) {
    out += c == '-' ? '_' : char_of(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return out;
}

void settle_flags(CLI::App& root, CLI::App& command, std::span<const std::string_view> elsewhere) {
  for (CLI::Option* option : command.get_options()) {
    if (option->count() > 0 || option->get_lnames().empty()) continue;
    for (const std::string& name : option->get_lnames()) {
      if (preset_option(command, name) == nullptr || option->count() > 0) continue;
      const std::string variable = environment_name(name);
      const char* value = std::getenv(variable.c_str());
      if (value != nullptr && *value != '\0') add_value(*option, {value}, variable);
    }
  }
  if (const auto path = config_path(command)) apply_config(root, command, *path, elsewhere);
}

}  // namespace tessera
