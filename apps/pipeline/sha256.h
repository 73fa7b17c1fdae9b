// SHA-256 (FIPS 180-4) of bytes, as 64 hexadecimal digits.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string sha256_hex(std::string_view data);

}  // namespace tessera
