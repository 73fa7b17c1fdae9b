// What the program and the process that reads or writes a video say to each other over one socket:
// fixed records in the machine's own byte order, each followed by as many bytes as it announces.
// The program asks, the process answers; while it works on an answer it may ask for bytes of the
// file, or hand over bytes of it. The program trusts nothing that comes back.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tessera::video_wire {

inline constexpr std::uint32_t kMagic = 0x31565054;  // "TPV1"
inline constexpr std::uint64_t kMaxText = 65536;
inline constexpr std::uint64_t kMaxPiece = std::uint64_t{1} << 20;  // of a file, at a time

enum class Kind : std::uint32_t {
  // To the process.
  kOpen = 1,  // payload Open; answers kInfo
  kNext,      // answers kFrame or kEnd
  kFrameAt,   // a: ticks; answers kFrame or kEnd
  kScan,      // answers kTimes
  kBytes,     // payload: the bytes asked for by kNeed, fewer at the end of the file
  kCreate,    // payload Create, then the comment; answers kDone with a: the codec
  kPut,       // a: ticks; payload RGB; answers kDone
  kFinish,    // a: ticks; answers kDone
  kCodecs,    // a: a container; answers kDone with a: bits of codecs
  // From the process.
  kHello = 64,  // a: what confines it
  kNeed,        // a: offset, b: count
  kInfo,        // payload Info, then texts: container, codec, notes
  kFrame,       // a: ticks, b: width << 32 | height; payload RGB
  kEnd,
  kTimes,  // payload: 64-bit ticks
  kWrite,  // a: offset; payload
  kDone,
  kError,  // payload texts: code, place, expected, found
};

struct Message {
  std::uint32_t magic;
  Kind kind;
  std::uint64_t a, b;
  std::uint64_t bytes;  // that follow
};

struct Open {
  std::uint64_t file_bytes;
  std::uint64_t side, pixels, frames, decoded_pixels;
  double rate;
};

struct Info {
  std::int64_t width, height;
  std::int64_t turned;
  std::int64_t tick_num, tick_den, rate_num, rate_den;
};

struct Create {
  std::uint32_t container, codec;
  std::int64_t width, height;
  std::int64_t tick_num, tick_den;
  std::int64_t quality;
};

static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) == 32);
static_assert(std::is_trivially_copyable_v<Open> && sizeof(Open) == 48);
static_assert(std::is_trivially_copyable_v<Info> && sizeof(Info) == 56);
static_assert(std::is_trivially_copyable_v<Create> && sizeof(Create) == 48);

}  // namespace tessera::video_wire
