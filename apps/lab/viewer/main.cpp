// `tessera-lab-view OPTIONS SCRIPT`: the viewer, driven by a script that checks what it shows, as
// `tessera-lab selftest` starts it. Exit codes: 0 every expectation held, 1 one did not or the
// window was closed; else as tessera's.
#include "apps/lab/viewer/selftest.h"
#include "apps/viewer/program.h"
#include "engine/core/io.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxScript = std::size_t{1} << 20;

int run(int argc, char** argv) {
  if (argc != 3) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_USAGE",
                 .where = "command line",
                 .expected = "options and a script, as 'tessera-lab selftest' hands them over",
                 .found = std::to_string(argc - 1) + " arguments"});
  }
  const ViewerOptions options = parse_viewer_options(argv[1]);
  const bool held = run_viewer(options, [&](Viewer& viewer, Window& window, Poster post) {
    auto script = parse_script(read_file(argv[2], kMaxScript, ErrorKind::kUsage), argv[2]);
    window.ignore_mouse();
    return std::make_unique<SelfTest>(std::move(script), viewer, std::move(post));
  });
  return held ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::viewer_main("tessera-lab-view", [&] { return tessera::run(argc, argv); });
}
