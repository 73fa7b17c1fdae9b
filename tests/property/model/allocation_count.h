// Counts every allocation of the process: this test program's own malloc family and operator new
// sit in front of the C library's.
#pragma once

#include <cstdint>

namespace tessera {

// Calls of malloc, calloc, realloc, aligned_alloc, posix_memalign, memalign and every operator new
// so far, from all threads.
std::uint64_t allocation_count();

}  // namespace tessera
