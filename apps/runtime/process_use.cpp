// Kernel interface files are made on reading and are no storage: they are read directly.
#include "apps/runtime/process_use.h"

#include <unistd.h>

#include <fstream>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

ProcessUse process_use() {
  ProcessUse use;
  std::uint64_t whole_pages = 0, resident_pages = 0;
  if (std::ifstream("/proc/self/statm") >> whole_pages >> resident_pages) {
    use.resident_bytes = resident_pages * narrow<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  if (is_folder("/proc/self/fd")) {
    use.descriptors = list_folder("/proc/self/fd").size() - 1;  // without that of the listing
  }
  return use;
}

}  // namespace tessera
