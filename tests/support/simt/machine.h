// Blocks of threads as fibers of one host thread, and what the tests may set.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera::simt {

// A kernel to be run for every block of its grid, the blocks one after the other.
struct Grid;
Grid* make_grid(const cudaLaunchConfig_t& config, bool overlaps, const std::function<void()>& body);

// Runs one block, random, until its threads wait for the kernel in front (await_previous):
// that one has not run yet, so what they read of its results is stale. Shared memory that a kernel
// declares is the same for all its blocks and kernels: it must not be used before the wait.
void begin_grid(Grid& grid);

// Runs the rest, or all of it, and lets go of the grid. Ends the program with a message at a
// barrier that not all threads reach, and where a grid that overlaps has a thread that never waits.
void finish_grid(Grid& grid);

// Order of threads and blocks in the launches from now on.
void set_seed(std::uint64_t seed);

}  // namespace tessera::simt
