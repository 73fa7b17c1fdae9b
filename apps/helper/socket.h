// Whole reads and writes on the one socket that a confined process has, its standard input.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::socket {

// False when the other side has closed.
bool read_all(void* to, std::size_t count);
bool write_all(const void* from, std::size_t count);
bool skip(std::uint64_t count);

}  // namespace tessera::socket
