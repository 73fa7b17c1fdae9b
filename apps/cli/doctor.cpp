// `tessera doctor`: what this build has, what this machine offers, and what is missing with the
// fix.
#include <CLI/CLI.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "engine/backend/backend.h"

namespace tessera {

namespace {

int run_doctor() {
  for (const DeviceInfo& device : list_devices()) {
    print_line(device.name + ": " + device.description +
               (device.usable ? "" : " (not usable: " + device.why_not + ")"));
  }
  return 0;
}

}  // namespace

void add_doctor(CLI::App& root, Session& session) {
  CLI::App* app = root.add_subcommand("doctor", "what the build has and what is missing");
  add_common_flags(*app, session);
  app->callback([&session] { session.run = [] { return run_doctor(); }; });
}

}  // namespace tessera
