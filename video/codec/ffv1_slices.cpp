// RFC 9043, section 4.8: after each slice stand its length (3 bytes), a status and a CRC-32 (4),
// which makes that of the whole slice 0.
#include "video/codec/ffv1_slices.h"

extern "C" {
#include <libavutil/crc.h>
}

namespace tessera {

bool slices_are_whole(std::span<const std::uint8_t> packet) {
  constexpr std::size_t kAfter = 8;
  const AVCRC* table = av_crc_get_table(AV_CRC_32_IEEE);
  for (bool last = true; !packet.empty(); last = false) {
    if (packet.size() < kAfter) return last;
    const std::uint8_t* end = packet.data() + packet.size() - kAfter;
    const std::size_t length =
        kAfter + (std::size_t{end[0]} << 16 | std::size_t{end[1]} << 8 | std::size_t{end[2]});
    if (length > packet.size()) return last;
    const std::span<const std::uint8_t> slice = packet.last(length);
    if (av_crc(table, 0, slice.data(), slice.size()) != 0) return last;
    packet = packet.first(packet.size() - length);
  }
  return true;
}

}  // namespace tessera
