// What a record says of a file's bytes, and whether bytes are those: xxh3 where the record has it,
// which is read at the disk's speed, sha256 otherwise.
#pragma once

#include <string>
#include <string_view>

#include "apps/jobs/records.h"

namespace tessera {

// XXH3_64bits with its default secret and no seed, as 16 hexadecimal digits.
std::string xxh3_hex(std::string_view bytes);

RecordedFile recorded_file(const std::string& name, std::string_view bytes);
bool is_recorded(const RecordedFile& file, std::string_view bytes);

}  // namespace tessera
