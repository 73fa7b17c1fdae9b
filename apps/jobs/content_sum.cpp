// Sums of files.
#include "apps/jobs/content_sum.h"

#include <xxhash.h>
#include <cinttypes>

#include <cstdio>

#include "apps/runtime/sha256.h"

namespace tessera {

std::string xxh3_hex(std::string_view bytes) {
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, XXH3_64bits(bytes.data(), bytes.size()));
  return digits;
}

RecordedFile recorded_file(const std::string& name, std::string_view bytes) {
  return {name, bytes.size(), sha256_hex(bytes), xxh3_hex(bytes)};
}

bool is_recorded(const RecordedFile& file, std::string_view bytes) {
  if (bytes.size() != file.bytes) return false;
  return file.xxh3.empty() ? sha256_hex(bytes) == file.sha256 : xxh3_hex(bytes) == file.xxh3;
}

}  // namespace tessera
