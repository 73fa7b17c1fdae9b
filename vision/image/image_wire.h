// What the program and the reader process say to each other over one socket: fixed records in the
// machine's own byte order, each followed by as many bytes as it announces. The program trusts
// nothing that comes back: picture_reader.cpp checks every field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera::wire {

inline constexpr std::uint32_t kMagic = 0x31525054;  // "TPR1"
inline constexpr std::uint64_t kMaxTextBytes = 65536;

// Sent once by the reader process, before the first request.
struct Hello {
  std::uint32_t magic;
  std::uint32_t confined;  // bits below
};
inline constexpr std::uint32_t kResourceLimits = 1;
inline constexpr std::uint32_t kSystemCallFilter = 2;

// Followed by file_bytes bytes of an image file.
struct Request {
  std::uint32_t magic;
  std::uint32_t number;  // counts the requests to this process, from 1
  std::uint64_t file_bytes;
  std::uint64_t max_side;  // pixels
  std::uint64_t max_pixels;
};

enum class Status : std::uint32_t { kImage = 0, kError = 1 };

// Followed by text_bytes of text, then by pixel_bytes of pixels. The text is a list: of an image
// its format and notes, of an error code, place, expected, found.
struct Reply {
  std::uint32_t magic;
  Status status;
  std::uint64_t width, height;  // pixels
  std::uint32_t channels;       // 3 or 4
  std::uint32_t retires;        // 1: the process ends now, having used up its time
  std::uint64_t text_bytes, pixel_bytes;
  std::uint64_t number;  // of the request
};

static_assert(std::is_trivially_copyable_v<Hello> && sizeof(Hello) == 8);
static_assert(std::is_trivially_copyable_v<Request> && sizeof(Request) == 32);
static_assert(std::is_trivially_copyable_v<Reply> && sizeof(Reply) == 56);

// A list of texts, each ended by a zero byte.
inline std::string join_texts(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out.append(text.c_str()).push_back('\0');
  return out;
}

inline std::vector<std::string> split_texts(std::string_view joined) {
  std::vector<std::string> out;
  while (!joined.empty()) {
    const std::size_t end = joined.find('\0');
    out.emplace_back(joined.substr(0, end));
    joined.remove_prefix(end == std::string_view::npos ? joined.size() : end + 1);
  }
  return out;
}

}  // namespace tessera::wire
