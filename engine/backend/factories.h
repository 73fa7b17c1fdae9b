// What each device folder that was linked in offers to the registry.
#pragma once

#include <memory>
#include <string>

#include "engine/backend/backend.h"

namespace tessera {

// Error kUsage if the processor lacks the instruction set that was asked for by name.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);
// "AVX2+FMA, 2 threads": what make_cpu_backend with default options would run.
std::string describe_cpu();

}  // namespace tessera
