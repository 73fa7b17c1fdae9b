// SHA-256 (FIPS 180-4) of bytes, as 64 hexadecimal digits.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

std::string sha256_hex(std::string_view data);
// Of a file of any length. Error kGeneral.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace tessera
