// The walls around the decoders: resource limits, and a filter that leaves the process a handful of
// system calls. What gets out of a decoder's hands can neither open, connect, start nor signal
// anything.
#pragma once

#include <cstdint>

namespace tessera {

struct SandboxLimits {
  std::uint64_t address_space = std::uint64_t{2} << 30;  // bytes
  std::uint64_t cpu_seconds = 60;                        // of the whole life of the process
};

// Confines this process for good. Returns wire::kResourceLimits and wire::kSystemCallFilter for
// what the kernel granted. Builds with sanitizers stay free: their runtime needs more than that.
std::uint32_t enter_sandbox(const SandboxLimits& limits);

}  // namespace tessera
