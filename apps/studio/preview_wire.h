// How one program shows another an image that it generates: frames over a local connection, numbers
// little-endian. Whoever writes them is a stranger: a frame is bounded and checked as a whole
// before anything is believed, and nothing is allocated because of a number that it names.
//
//   frame   "TSV1", u8 type, u32 bytes of what follows
//   begin   u64 image, u64 seed, u32 width, u32 height (pixels), u32 rows, u32 columns (tokens),
//           u16 n, model[n], u32 n, prompt[n]
//   rows    u64 image, u32 first row (pixels), u32 rows, u8 last of this image, u32 rows_done
//           (tokens), u32 passes, u32 tokens, f64 seconds, RGB[rows * width * 3]
//   end     u64 image, u8 state: 0 done, 1 stopped, 2 failed
//
// Once an HTTP server sends progress as events, a viewer can be its client, and these go: this wire,
// preview_sender, preview_listener, preview_receiver and preview_desk; apps/cli/preview_flags with
// --preview-to; the viewer's --listen; fuzz_preview and its mutants. Stays: what is shown inside a
// process and written by --preview FILE (rough_preview, preview_budget.h, --preview-interval).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

inline constexpr std::size_t kPreviewFrameBytes = std::size_t{1} << 20;  // after the frame's head
inline constexpr std::size_t kPreviewHeadBytes = 9;
inline constexpr std::uint64_t kPreviewPixels = std::uint64_t{16} << 20;
inline constexpr std::uint32_t kPreviewSide = 16384;     // pixels
inline constexpr std::uint32_t kPreviewGridSide = 4096;  // tokens
inline constexpr std::size_t kPreviewTextBytes = std::size_t{64} << 10;
inline constexpr std::size_t kPreviewNameBytes = 256;

struct PreviewBegin {
  std::uint64_t image = 0, seed = 0;
  std::uint32_t width = 0, height = 0, grid_rows = 0, grid_columns = 0;
  std::string model, prompt;  // UTF-8
  bool operator==(const PreviewBegin&) const = default;
};
// Pixels may be none: progress alone.
struct PreviewRows {
  std::uint64_t image = 0;
  std::uint32_t first = 0, rows = 0;
  bool last = true;
  std::uint32_t rows_done = 0, passes = 0, tokens = 0;
  double seconds = 0;
  std::vector<std::uint8_t> rgb;
  bool operator==(const PreviewRows&) const = default;
};
enum class PreviewState : std::uint8_t { kDone, kStopped, kFailed };
struct PreviewEnd {
  std::uint64_t image = 0;
  PreviewState state = PreviewState::kDone;
  bool operator==(const PreviewEnd&) const = default;
};
using PreviewMessage = std::variant<PreviewBegin, PreviewRows, PreviewEnd>;

// expects() that the message keeps to the limits.
std::string encode_preview(const PreviewMessage& message);

// Frames out of a stream of bytes, whatever pieces it comes in. Holds one frame at most.
class PreviewReader {
 public:
  // Error kGeneral (E_PREVIEW_FRAME) for what is no frame, too long, or holds what a message may
  // not; the stream cannot be read on.
  void feed(std::string_view bytes);
  // The next whole message.
  std::optional<PreviewMessage> next();
  // Whether a frame has begun that is not whole.
  bool midway() const { return !buffer_.empty(); }

 private:
  std::string buffer_;
  std::vector<PreviewMessage> ready_;
  std::size_t given_ = 0;
};

}  // namespace tessera
