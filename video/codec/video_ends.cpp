#include "video/codec/video_ends.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>

#include "engine/core/index.h"
#include "video/codec/video_reader.h"

namespace tessera {

namespace {

constexpr int kMaxBoxes = 200'000;  // two a second of a day of fragments, and a few

// An EBML number of 1 to 8 bytes with its length marker cleared; all ones is "unknown". 0 bytes
// taken where there is none (RFC 8794, section 4).
struct EbmlNumber {
  std::size_t taken = 0;
  std::uint64_t value = 0;
  bool unknown = false;
};
EbmlNumber ebml_number(std::span<const std::uint8_t> bytes) {
  if (bytes.empty() || bytes[0] == 0) return {};
  const auto length = to_size(std::countl_zero(bytes[0])) + 1;
  if (bytes.size() < length) return {};
  std::uint64_t value = bytes[0] & (0xffu >> length);
  for (std::size_t i = 1; i < length; ++i) value = value << 8 | bytes[i];
  return {length, value, value == (std::uint64_t{1} << (7 * length)) - 1};
}

std::uint64_t big_endian(const std::uint8_t* at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | at[i];
  return value;
}

std::uint64_t riff_end(std::span<const std::uint8_t> start) {
  if (start.size() < 8) return 0;
  return 8 + (std::uint64_t{start[4]} | std::uint64_t{start[5]} << 8 |
              std::uint64_t{start[6]} << 16 | std::uint64_t{start[7]} << 24);
}

std::uint64_t segment_end(std::span<const std::uint8_t> start) {
  if (start.size() < 5) return 0;
  const EbmlNumber header = ebml_number(start.subspan(4));
  const std::uint64_t at = 4 + header.taken + header.value;
  constexpr std::array<std::uint8_t, 4> kSegment = {0x18, 0x53, 0x80, 0x67};
  if (header.taken == 0 || header.value > start.size() || at + 4 > start.size() ||
      !std::equal(kSegment.begin(), kSegment.end(), start.begin() + to_index(at))) {
    return 0;
  }
  const EbmlNumber segment = ebml_number(start.subspan(at + 4));
  if (segment.taken == 0 || segment.unknown) return 0;
  return at + 4 + segment.taken + segment.value;
}

// Strange boxes after the video are no part of it: the walk ends at the first.
std::uint64_t boxes_end(FileBytes& bytes) {
  constexpr std::array<std::string_view, 12> kKnown = {"ftyp", "styp", "moov", "moof",
                                                       "mdat", "sidx", "free", "skip",
                                                       "wide", "mfra", "uuid", "pnot"};
  std::uint64_t at = 0;
  for (int box = 0; box < kMaxBoxes && at < bytes.size(); ++box) {
    std::uint8_t head[16] = {};
    const std::size_t got = bytes.read(at, head, sizeof head);
    const std::string_view kind(reinterpret_cast<const char*>(head) + 4, 4);
    if (got < 8 || std::find(kKnown.begin(), kKnown.end(), kind) == kKnown.end()) return at;
    std::uint64_t size = big_endian(head, 4);
    if (size == 0) return bytes.size();  // as long as the file
    if (size == 1) {
      if (got < 16) return at + 16;
      size = big_endian(head + 8, 8);
    }
    if (size < 8) return at;
    std::uint64_t end = 0;
    if (__builtin_add_overflow(at, size, &end)) end = std::numeric_limits<std::uint64_t>::max();
    // Padding and search tables that are cut lose nothing of the video.
    if (end > bytes.size()) return kind == "mdat" || kind == "moof" || kind == "moov" ? end : at;
    at = end;
  }
  return at;
}

}  // namespace

std::string_view sniff_video(std::span<const std::uint8_t> start) {
  const auto has = [&](std::size_t at, std::string_view text) {
    return start.size() >= at + text.size() &&
           std::memcmp(start.data() + at, text.data(), text.size()) == 0;
  };
  for (const char* box : {"ftyp", "moov", "mdat", "wide", "free", "skip", "pnot"}) {
    if (has(4, box)) return "mp4";
  }
  if (has(0, "\x1a\x45\xdf\xa3")) return "matroska";
  if (has(0, "RIFF") && has(8, "AVI ")) return "avi";
  return {};
}

std::uint64_t claimed_end(std::string_view container, FileBytes& bytes) {
  if (container == "mp4") return boxes_end(bytes);
  std::uint8_t start[256] = {};
  const std::size_t got = bytes.read(0, start, sizeof start);
  return container == "avi" ? riff_end({start, got}) : segment_end({start, got});
}

}  // namespace tessera
