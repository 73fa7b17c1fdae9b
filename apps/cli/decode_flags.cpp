#include "apps/cli/decode_flags.h"

#include <CLI/CLI.hpp>

#include "apps/cli/setting_flags.h"

namespace tessera {

void add_decode_flags(CLI::App& app, Door door, SettingValues& values) {
  constexpr std::string_view kGroup = "Decoding";
  for (const SettingGroup& group : decode_groups()) {
    add_setting_flags(app, group, door, values, kGroup);
  }
  if (!setting::kDecode.doors.has(door)) return;
  std::string methods(setting::kDecode.help);
  for (const NamedMethod& method : named_methods()) {
    methods += (&method == named_methods().data() ? ": " : "; ") + std::string(method.name) + ", " +
               std::string(method.does);
  }
  app.get_option("--" + std::string(setting::kDecode.name))->description(methods);
}

void choose_method(GenerateOptions& options, const SettingValues& values,
                   const DecodeMethod& fallback) {
  options.method = method_of(values, fallback);
  options.draft_model = values.text(setting::kModelDraft);
}

}  // namespace tessera
