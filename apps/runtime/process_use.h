// What the running process holds, so that a long job can be watched.
#pragma once

#include <cstdint>

namespace tessera {

struct ProcessUse {
  std::uint64_t resident_bytes = 0;
  std::uint64_t descriptors = 0;  // open ones
};
// 0 where the system does not tell (proc(5)).
ProcessUse process_use();

}  // namespace tessera
