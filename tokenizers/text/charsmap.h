// SentencePiece's table of characters and what they become ("precompiled_charsmap"): a double-array
// trie (Aoe 1989, in the form of darts-clone) over UTF-8 and the texts that its values point to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Charsmap {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

  // The little-endian size of the trie in bytes, the trie, the texts, each ended by a zero byte.
  // Empty if `bytes` is none, `why` then says what was expected and found.
  struct Fault {
    std::string expected, found;
  };
  static std::optional<Charsmap> parse(std::string_view bytes, Fault& why);

  // The text that takes the place of the whole of `chunk`, if an entry is its beginning. As the
  // reference does, the shortest such entry is taken, and the rest of the chunk is dropped.
  std::optional<std::string_view> replacement(std::string_view chunk) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;
};

// Every character, and every short grapheme cluster, of `text` through the map, as the reference
// does. Nothing if the result would exceed `max_bytes`.
std::optional<std::string> map_characters(const Charsmap& map, std::string_view text,
                                          std::size_t max_bytes);

// Nothing unless `text` is base64 (RFC 4648, padded) without white space.
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace tessera
