// Blocks of files put into panels of 16 columns, bit for bit: one row a type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::cpu {

struct BlockPlace {
  std::size_t block_bytes;  // of a column in a panel
  // See PanelStorage::place.
  void (*place)(std::span<const std::byte> blocks, std::int64_t first, int column, void* panel);
};

extern const BlockPlace kQ8Place, kQ4Place, kQ4_1Place, kQ5_0Place, kQ5_1Place, kQ2KPlace,
    kQ3KPlace, kQ4KPlace, kQ5KPlace, kQ6KPlace;

}  // namespace tessera::cpu
