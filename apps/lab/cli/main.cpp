// The `tessera-lab` program: every command of `tessera`, and what makers measure and check with.
#include "apps/cli/commands.h"
#include "apps/cli/program.h"
#include "apps/lab/cli/commands.h"

namespace {

void add_all(CLI::App& root, tessera::Session& session) {
  tessera::add_commands(root, session);
  tessera::add_bench(root, session);
  tessera::add_eval(root, session);
  tessera::add_gpu_check(root, session);
  tessera::add_scene(root, session);
  tessera::add_selftest(root, session);
}

}  // namespace

int main(int argc, char** argv) {
  return tessera::run_program(
      {.name = "tessera-lab",
       .about = "Tessera with its laboratory: measures and checks models, ops and methods.",
       .version = TESSERA_VERSION,
       .add_commands = add_all,
       .moved = {}},
      argc, argv);
}
