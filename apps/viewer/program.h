// The viewer as a program: its window, its workers, the loop between them.
#pragma once

#include <functional>
#include <memory>

#include "apps/studio/viewer_options.h"
#include "apps/viewer/viewer.h"
#include "apps/viewer/window.h"

namespace tessera {

// Something that drives the window in a person's stead, frame by frame. The loop asks it at each
// look at the workers.
class WindowDriver {
 public:
  virtual ~WindowDriver() = default;
  // Whether a frame is drawn now.
  virtual bool wants_frame(const Snapshot& snapshot) const = 0;
  virtual void before_frame(const Snapshot& snapshot, Window& window) = 0;
  // The frame is rendered and not yet shown.
  virtual void after_frame(const Snapshot& snapshot, const Window& window) = 0;
  // The loop ends.
  virtual bool finished() const = 0;
  // Called once, after a loop that ended by finished(): says what was found, and whether all is
  // well.
  virtual bool report() const = 0;
};
using MakeDriver = std::function<std::unique_ptr<WindowDriver>(Viewer&, Window&, Poster)>;

// Until the window is closed, a signal comes or the driver has finished; true without a driver,
// else what it reports (false where it did not finish). Error kGeneral: no display.
bool run_viewer(const ViewerOptions& options, const MakeDriver& make_driver = nullptr);

// The whole of main() around `run`, whose value is the exit code. An Error is one line on stderr
// after `name`, and its exit code.
int viewer_main(const char* name, const std::function<int()>& run);

}  // namespace tessera
