// SentencePiece models from their parts, whole or wrong: protobuf's wire form.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

namespace tessera {

inline std::string wire_varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

inline std::string wire_number(std::uint64_t field, std::uint64_t value) {
  return wire_varint(field << 3) + wire_varint(value);
}

inline std::string wire_bytes(std::uint64_t field, const std::string& value) {
  return wire_varint(field << 3 | 2) + wire_varint(value.size()) + value;
}

// A piece of ModelProto: its text, score and type.
inline std::string wire_piece(const std::string& text, float score, std::uint64_t type = 1) {
  std::string out = wire_bytes(1, text) + wire_varint(2 << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(score);
  for (unsigned shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(bits >> shift));
  return wire_bytes(1, out + wire_number(3, type));
}

}  // namespace tessera
