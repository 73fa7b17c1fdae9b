// Reader of the zip archives that torch.save writes: stored entries only, so nothing is ever
// decompressed, and every byte range is proven to lie in the file and to overlap no other.
// Follows PKWARE's APPNOTE 6.3 (central directory, zip64 records, data descriptors).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace tessera {

struct ZipEntry {
  std::uint64_t begin = 0;  // of the contents, from the first byte of the file
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;  // as the central directory has it; not checked against the contents
  bool stored = true;       // false: compressed, and the contents are of no use here
};

// Entries by name; compressed ones are listed too, for whoever knows what they mean.
// Errors (kModel): E_ZIP_END (no end record, or not at the very end), E_ZIP64,
// E_ZIP_DIRECTORY, E_ZIP_COUNT, E_ZIP_NAME, E_ZIP_DUPLICATE, E_ZIP_FLAGS, E_ZIP_LOCAL (central and
// local header disagree), E_ZIP_RANGE, E_ZIP_OVERLAP.
std::map<std::string, ZipEntry, std::less<>> read_zip(std::span<const std::byte> bytes,
                                                      const std::string& file);

// CRC-32 of zip (polynomial 0xEDB88320).
std::uint32_t crc32(std::span<const std::byte> data);

}  // namespace tessera
