// See charsmap.h. The trie comes from a file: every step is checked against its size.
#include "tokenizers/text/charsmap.h"

#include <array>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/character_classes.h"

namespace tessera {

namespace {

// A unit of darts-clone: a label, whether a value follows, and the distance to the children.
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t label(std::uint32_t unit) { return unit & 0x800000ffU; }
std::uint32_t distance(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200U) >> 6); }

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Clusters of this many bytes and more are mapped character by character (the reference's
// constant).
constexpr std::size_t kLongCluster = 6;

}  // namespace

std::optional<Charsmap> Charsmap::parse(std::string_view bytes, Fault& why) {
  const auto unit_at = [&](std::size_t at) {
    std::uint32_t out = 0;
    for (unsigned i = 0; i < 4; ++i) out |= std::uint32_t{byte_of(bytes[at + i])} << 8 * i;
    return out;
  };
  why = {"a trie of at most " + std::to_string(kMaxBytes) + " bytes after its size",
         std::to_string(bytes.size()) + " bytes"};
  if (bytes.size() < 4 || bytes.size() > kMaxBytes) return std::nullopt;
  const std::size_t size = unit_at(0);
  if (size % 4 != 0 || size > bytes.size() - 4) {
    why.found += ", of which the trie takes " + std::to_string(size);
    return std::nullopt;
  }
  Charsmap out;
  out.texts_ = std::string(bytes.substr(4 + size));
  if (!is_valid_utf8(out.texts_)) {
    why = {"texts in UTF-8 after the trie", "a byte that is not"};
    return std::nullopt;
  }
  out.units_.reserve(size / 4);
  for (std::size_t at = 4; at < 4 + size; at += 4) out.units_.push_back(unit_at(at));
  return out;
}

std::optional<std::string_view> Charsmap::replacement(std::string_view chunk) const {
  if (units_.empty()) return std::nullopt;
  std::size_t node = distance(units_[0]);
  for (const char c : chunk) {
    const auto byte = byte_of(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) return std::nullopt;
    const std::uint32_t unit = units_[node];
    node ^= distance(unit);
    if (node >= units_.size()) return std::nullopt;
    if (!has_value(unit)) continue;
    const std::size_t begin = units_[node] & 0x7fffffffU;
    const bool inside = begin < texts_.size() && (byte_of(texts_[begin]) & 0xc0) != 0x80;
    if (!inside) return std::nullopt;
    const std::size_t end = std::min(texts_.find('\0', begin), texts_.size());
    return std::string_view(texts_).substr(begin, end - begin);
  }
  return std::nullopt;
}

std::optional<std::string> map_characters(const Charsmap& map, std::string_view text,
                                          std::size_t max_bytes) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = grapheme_length(text, at);
    const std::string_view cluster = text.substr(at, length);
    at += length;
    if (length < kLongCluster) {
      if (const auto whole = map.replacement(cluster)) {
        out += *whole;
        if (out.size() > max_bytes) return std::nullopt;
        continue;
      }
    }
    for (std::size_t inner = 0; inner < cluster.size();) {
      const std::string_view one = cluster.substr(inner, decode_utf8(cluster, inner).length);
      out += map.replacement(one).value_or(one);
      inner += one.size();
      if (out.size() > max_bytes) return std::nullopt;
    }
  }
  return out;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pad = i >= text.size() - padding;
    const std::size_t value = pad ? 0 : kAlphabet.find(text[i]);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | narrow<std::uint32_t>(value);
    if (i % 4 != 3) continue;
    for (const unsigned shift : {16U, 8U, 0U}) out.push_back(char_of(bits >> shift & 0xff));
    bits = 0;
  }
  out.resize(out.size() - padding);
  return out;
}

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < count ? byte_of(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      out.push_back(i <= count ? kAlphabet[bits >> (18 - 6 * i) & 63U] : '=');
  }
  return out;
}

}  // namespace tessera
