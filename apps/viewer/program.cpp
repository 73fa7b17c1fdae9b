// The loop of the window and what its programs share.
#include "apps/viewer/program.h"

#include <malloc.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <optional>

#include "apps/studio/studio.h"
#include "engine/core/io.h"

namespace tessera {
namespace {

constexpr double kPlayingWait = 1.0 / 120, kGenerationWait = 1.0 / 30, kIdleWait = 0.1,
                 kDriverWait = 1.0 / 100;  // seconds between looks at the workers
constexpr double kBlink = 0.4;             // redraws a field's cursor

std::atomic<bool> ended{false};
static_assert(std::atomic<bool>::is_always_lock_free);
extern "C" void on_signal(int) { ended = true; }

std::optional<DType> storage_of(const ViewerOptions& options) {
  return studio_options(options).storage;
}

class Program {
 public:
  Program(const ViewerOptions& options, const MakeDriver& make_driver)
      : window_({.scale = options.scale,
                 .theme = options.theme == "light" ? ThemeName::kLight : ThemeName::kDark}),
        studio_(studio_options(options)),
        post_([this](Command command) { return studio_.post(std::move(command)); }),
        viewer_(first_state(options.model, storage_of(options)), window_.textures(), post_) {
    viewer_.state().theme = options.theme == "light" ? ThemeName::kLight : ThemeName::kDark;
    if (make_driver) driver_ = make_driver(viewer_, window_, post_);
    viewer_.drop({options.files.begin(), options.files.end()});
  }

  bool run() {
    while (!over()) {
      const bool soon = at_work(studio_.snapshot()) || viewer_.unsettled();
      const double pace = plays(studio_.snapshot()) ? kPlayingWait : kGenerationWait;
      const double patience = soon ? pace : kIdleWait;
      const bool lively = window_.wait(driver_ ? kDriverWait : patience);
      viewer_.drop(window_.take_dropped());
      const Snapshot& snapshot = studio_.update();
      const double now = monotonic_seconds();
      const bool blink = ImGui::GetIO().WantTextInput && now - drawn_ > kBlink;
      const bool news = snapshot.revision != seen_;
      const bool hovers = viewer_.unsettled();
      if (!lively && !news && !blink && !hovers && !driver_) continue;
      if (driver_ && !driver_->wants_frame(snapshot)) continue;
      // While images are generated, the processors are the generator's.
      if (!lively && !driver_ && now - drawn_ < pace) continue;
      seen_ = snapshot.revision;
      drawn_ = now;
      frame(snapshot);
    }
    return !driver_ || (driver_->finished() && driver_->report());
  }

 private:
  bool over() {
    return window_.closed() || viewer_.state().quit || ended || (driver_ && driver_->finished());
  }

  void frame(const Snapshot& snapshot) {
    if (driver_) driver_->before_frame(snapshot, window_);
    window_.begin_frame(viewer_.state().theme);
    viewer_.draw(snapshot);
    window_.end_frame();
    if (driver_) driver_->after_frame(snapshot, window_);
    window_.show();
  }

  Window window_;
  Studio studio_;
  Poster post_;
  Viewer viewer_;
  std::unique_ptr<WindowDriver> driver_;
  std::uint64_t seen_ = 0;
  double drawn_ = 0;
};

// As the program that generates without a window does: memory that is freed goes back.
void keep_memory_predictable() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

}  // namespace

bool run_viewer(const ViewerOptions& options, const MakeDriver& make_driver) {
  return Program(options, make_driver).run();
}

int viewer_main(const char* name, const std::function<int()>& run) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  keep_memory_predictable();
  try {
    return run();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", name, format_error(error.info()).c_str());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, escape_for_terminal(error.what()).c_str());
    return 1;
  }
}

}  // namespace tessera
