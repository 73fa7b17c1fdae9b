// A GGUF file from its parts, whole or wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Little-endian.
inline std::string gguf_number(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 255u);
  return out;
}

inline std::string gguf_text(std::string_view text) {
  return gguf_number(text.size(), 8) + std::string(text);
}

// `type` 0 to 12 as in files; `body`: the value's bytes.
inline std::string gguf_key(std::string_view key, std::uint64_t type, std::string_view body) {
  return gguf_text(key) + gguf_number(type, 4) + std::string(body);
}

// Extents begin with the innermost, as in files.
inline std::string gguf_tensor(std::string_view name, std::initializer_list<std::uint64_t> extents,
                               std::uint64_t type, std::uint64_t offset) {
  std::string out = gguf_text(name) + gguf_number(extents.size(), 4);
  for (const std::uint64_t extent : extents) out += gguf_number(extent, 8);
  return out + gguf_number(type, 4) + gguf_number(offset, 8);
}

struct GgufParts {
  std::string magic = "GGUF";
  std::uint64_t version = 3, keys = 0, tensors = 0;
  std::string lists;           // keys, then tensors
  std::size_t alignment = 32;  // where data begins
  std::size_t data = 0;        // bytes of it
};

inline std::string gguf_file(const GgufParts& parts) {
  std::string out = parts.magic + gguf_number(parts.version, 4) + gguf_number(parts.tensors, 8) +
                    gguf_number(parts.keys, 8) + parts.lists;
  if (parts.data > 0) {
    out.resize((out.size() + parts.alignment - 1) / parts.alignment * parts.alignment);
    out.append(parts.data, '\1');
  }
  return out;
}

}  // namespace tessera
