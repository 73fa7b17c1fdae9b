// `tessera-lab selftest SCRIPT`: the viewer, driven by a script that checks what it shows.
#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/cli/view_flags.h"
#include "apps/lab/cli/commands.h"

namespace tessera {

void add_selftest(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("selftest", "drive the viewer by a script and check it");
  const auto flags = std::make_shared<ViewFlags>();
  const auto script = std::make_shared<std::string>();
  app->add_option("script", *script, "orders, one a line")->required()->type_name("SCRIPT");
  add_view_flags(*app, flags);
  add_common_flags(*app, session);
  app->callback([&session, flags, script] {
    session.run = [flags, script] { return run_view(*flags, "tessera-lab-view", script->c_str()); };
  });
}

}  // namespace tessera
