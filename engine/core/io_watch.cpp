// Where a watcher is installed.
#include "engine/core/io_watch.h"

namespace tessera {

std::atomic<IoWatcher*>& installed_watcher() {
  static std::atomic<IoWatcher*> watcher{nullptr};
  return watcher;
}

}  // namespace tessera
