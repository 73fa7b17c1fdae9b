// SHA-256 (FIPS 180-4) of bytes, as 64 hexadecimal digits.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

std::string sha256_hex(std::string_view data);
// The first 128 bits, of the bytes of numbers; of several lists as of one.
std::array<std::uint64_t, 2> sha256_half(std::span<const float> values);
std::array<std::uint64_t, 2> sha256_half(std::span<const std::span<const float>> lists);
// Of a file of any length. Error kGeneral.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace tessera
