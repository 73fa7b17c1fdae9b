// Blocks of threads as fibers of one host thread, and what the tests may set.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera::simt {

// Runs the kernel for every block of the grid, the blocks one after the other. Ends the program
// with a message at a barrier that not all threads reach.
void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& body);

// Order of threads and blocks in the launches from now on.
void set_seed(std::uint64_t seed);

}  // namespace tessera::simt
