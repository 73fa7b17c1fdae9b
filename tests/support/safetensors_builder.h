// A safetensors file from its parts, whole or wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

inline std::string safetensors_file(std::string_view header, std::size_t data_bytes,
                                    std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i));
  out += header;
  out.append(data_bytes, '\1');
  return out;
}

inline std::string safetensors_file(std::string_view header, std::size_t data_bytes) {
  return safetensors_file(header, data_bytes, header.size());
}

// `"name":{"dtype":...,"shape":...,"data_offsets":...}`
inline std::string header_entry(std::string_view name, std::string_view dtype,
                                std::string_view shape, std::string_view offsets) {
  return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) +
         "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":" + std::string(offsets) + "}";
}

}  // namespace tessera
