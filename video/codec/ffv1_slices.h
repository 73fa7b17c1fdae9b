// The checksums of FFV1's slices, looked at before a packet is decoded: the decoder goes on without
// a word where one slice hides the next. Internal to video/codec.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// False where the last slice of the packet has a sound checksum and one before it has none, or the
// slices do not fill the packet. Packets without checksums are not verified.
bool slices_are_whole(std::span<const std::uint8_t> packet);

}  // namespace tessera
