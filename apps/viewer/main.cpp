// `tessera-view OPTIONS`: the desktop viewer. OPTIONS is one JSON object, as `tessera view` hands
// it over. Exit codes: 0 closed, or every expectation of the self-test held; 1 and up as tessera's.
#include <malloc.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <optional>

#include "apps/studio/studio.h"
#include "apps/studio/viewer_options.h"
#include "apps/viewer/selftest.h"
#include "apps/viewer/viewer.h"
#include "apps/viewer/window.h"
#include "engine/core/io.h"

namespace tessera {
namespace {

constexpr double kPlayingWait = 1.0 / 120, kGenerationWait = 1.0 / 30, kIdleWait = 0.1,
                 kTestWait = 1.0 / 100;  // seconds between looks at the workers
constexpr double kBlink = 0.4;           // redraws a field's cursor
constexpr std::size_t kMaxScript = std::size_t{1} << 20;

std::atomic<bool> ended{false};
static_assert(std::atomic<bool>::is_always_lock_free);
extern "C" void on_signal(int) { ended = true; }

std::optional<DType> storage_of(const ViewerOptions& options) {
  return studio_options(options).storage;
}

class Program {
 public:
  explicit Program(const ViewerOptions& options)
      : window_({.scale = options.scale,
                 .theme = options.theme == "light" ? ThemeName::kLight : ThemeName::kDark}),
        studio_(studio_options(options)),
        post_([this](Command command) { return studio_.post(std::move(command)); }),
        viewer_(first_state(options.model, storage_of(options)), window_.textures(), post_) {
    viewer_.state().theme = options.theme == "light" ? ThemeName::kLight : ThemeName::kDark;
    if (!options.selftest.empty()) {
      const std::string text = read_file(options.selftest, kMaxScript, ErrorKind::kUsage);
      window_.ignore_mouse();
      test_.emplace(parse_script(text, options.selftest), viewer_, post_);
    }
    viewer_.drop({options.files.begin(), options.files.end()});
  }

  // True when the window was closed, or the self-test passed.
  bool run() {
    while (!over()) {
      const bool soon = at_work(studio_.snapshot()) || viewer_.unsettled();
      const double pace = plays(studio_.snapshot()) ? kPlayingWait : kGenerationWait;
      const double patience = soon ? pace : kIdleWait;
      const bool lively = window_.wait(test_ ? kTestWait : patience);
      viewer_.drop(window_.take_dropped());
      const Snapshot& snapshot = studio_.update();
      const double now = monotonic_seconds();
      const bool blink = ImGui::GetIO().WantTextInput && now - drawn_ > kBlink;
      const bool news = snapshot.revision != seen_;
      const bool hovers = viewer_.unsettled();
      if (!lively && !news && !blink && !hovers && !test_) continue;
      if (test_ && !test_->wants_frame(snapshot)) continue;
      // While images are generated, the processors are the generator's.
      if (!lively && !test_ && now - drawn_ < pace) continue;
      seen_ = snapshot.revision;
      drawn_ = now;
      frame(snapshot);
    }
    return !test_ || (test_->finished() && test_->report());
  }

 private:
  bool over() {
    return window_.closed() || viewer_.state().quit || ended || (test_ && test_->finished());
  }

  void frame(const Snapshot& snapshot) {
    if (test_) test_->before_frame(snapshot, window_);
    window_.begin_frame(viewer_.state().theme);
    viewer_.draw(snapshot);
    window_.end_frame();
    if (test_) test_->after_frame(snapshot, window_);
    window_.show();
  }

  Window window_;
  Studio studio_;
  Poster post_;
  Viewer viewer_;
  std::optional<SelfTest> test_;
  std::uint64_t seen_ = 0;
  double drawn_ = 0;
};

// As the program that generates without a window does: memory that is freed goes back.
void keep_memory_predictable() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

int run(int argc, char** argv) {
  if (argc > 2) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_USAGE",
                 .where = "command line",
                 .expected = "one JSON object, as 'tessera view' hands it over",
                 .found = std::to_string(argc - 1) + " arguments"});
  }
  const ViewerOptions options = argc == 2 ? parse_viewer_options(argv[1]) : ViewerOptions{};
  return Program(options).run() ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using tessera::Error;
  struct sigaction action = {};
  action.sa_handler = tessera::on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  tessera::keep_memory_predictable();
  try {
    return tessera::run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "tessera-view: %s\n", format_error(error.info()).c_str());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera-view: %s\n", tessera::escape_for_terminal(error.what()).c_str());
    return 1;
  }
}
