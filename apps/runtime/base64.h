// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

std::string to_base64(std::string_view bytes);
// None for other text. White space counts as nothing.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tessera
