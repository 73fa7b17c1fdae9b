// Bytes of a tar archive: ustar headers that depend on name and size alone (mode 0644, no owner, no
// time), a pax header before names that ustar cannot hold, the end marker.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Header, contents and padding of one regular file. The name is relative and printable.
std::string tar_member(std::string_view name, std::string_view bytes);

// The end of an archive of `size` bytes: two blocks of zeros, padded to a record of 10,240 bytes.
std::string tar_end(std::uint64_t size);

}  // namespace tessera
