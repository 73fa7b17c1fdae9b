// `tessera-view OPTIONS`: the desktop viewer. OPTIONS is one JSON object, as `tessera view` hands
// it over. Exit codes: 0 closed; 1 and up as tessera's.
#include "apps/viewer/program.h"
#include "engine/core/error.h"

int main(int argc, char** argv) {
  return tessera::viewer_main("tessera-view", [&] {
    if (argc > 2) {
      throw tessera::Error({.kind = tessera::ErrorKind::kUsage,
                            .code = "E_USAGE",
                            .where = "command line",
                            .expected = "one JSON object, as 'tessera view' hands it over",
                            .found = std::to_string(argc - 1) + " arguments"});
    }
    tessera::run_viewer(argc == 2 ? tessera::parse_viewer_options(argv[1])
                                  : tessera::ViewerOptions{});
    return 0;
  });
}
