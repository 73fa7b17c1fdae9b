#include "apps/runtime/base64.h"

#include <nettle/base64.h>

#include <cstdint>

namespace tessera {

std::string to_base64(std::string_view bytes) {
  std::string out(BASE64_ENCODE_RAW_LENGTH(bytes.size()), '\0');
  base64_encode_raw(out.data(), bytes.size(), reinterpret_cast<const std::uint8_t*>(bytes.data()));
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  base64_decode_ctx state;
  base64_decode_init(&state);
  std::string out(BASE64_DECODE_LENGTH(text.size()), '\0');
  std::size_t length = out.size();
  const bool good =
      base64_decode_update(&state, &length, reinterpret_cast<std::uint8_t*>(out.data()),
                           text.size(), text.data()) == 1 &&
      base64_decode_final(&state) == 1;
  if (!good) return std::nullopt;
  out.resize(length);
  return out;
}

}  // namespace tessera
