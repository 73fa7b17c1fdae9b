// `tessera settings`: every setting with its range, its default and where it can be given.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/setting_groups.h"

namespace tessera {

namespace {

int run_settings(const Session& session, bool markdown) {
  if (markdown) {
    print_text(settings_markdown());
    return 0;
  }
  for (const SettingGroup& group : setting_groups()) {
    if (!session.json) {
      print_line(std::string(group.title) + (group.of.empty() ? "" : ": " + std::string(group.of)));
    }
    for (const Setting* row : group.rows) {
      const Json facts = setting_facts(group, *row);
      if (session.json) {
        print_json_line(facts);
        continue;
      }
      const bool number = row->kind <= SettingKind::kInteger;
      print_line("  " + std::string(row->name) + "  " +
                 (number ? range_text(*row) + ", " : std::string()) + "default " +
                 (facts["default"].is_string() ? facts["default"].get<std::string>()
                                               : facts["default"].dump()) +
                 ": " + std::string(row->help));
    }
  }
  return 0;
}

}  // namespace

void add_settings(CLI::App& root, Session& session) {
  CLI::App* app =
      root.add_subcommand("settings", "list every setting: range, default, where it is given");
  const auto markdown = std::make_shared<bool>(false);
  app->add_flag("--markdown", *markdown, "as the tables of docs/cli.md");
  add_common_flags(*app, session);
  app->callback([&session, markdown] {
    session.run = [&session, markdown] { return run_settings(session, *markdown); };
  });
}

}  // namespace tessera
