// The `tessera` program.
#include <array>

#include "apps/cli/commands.h"
#include "apps/cli/program.h"

namespace {

constexpr std::array<std::string_view, 3> kOfTheLaboratory = {"bench", "eval", "scene"};

}  // namespace

int main(int argc, char** argv) {
  return tessera::run_program(
      {.name = "tessera",
       .about = "Tessera generates images and videos with autoregressive models.",
       .version = TESSERA_VERSION,
       .add_commands = tessera::add_commands,
       .moved = kOfTheLaboratory,
       .moved_to = "tessera-lab"},
      argc, argv);
}
