#include "apps/studio/preview_wire.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

constexpr std::string_view kMagic = "TSV1";
enum class FrameType : std::uint8_t { kBegin = 1, kRows = 2, kEnd = 3 };

[[noreturn]] void refuse_frame(const char* where, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_PREVIEW_FRAME",
               .where = where,
               .expected = std::move(expected),
               .found = std::move(found)});
}

class Writer {
 public:
  template <typename Integer>
  void put(Integer value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
      bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff);
    }
  }
  void put(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(std::string_view text) { bytes_ += text; }
  std::string frame(FrameType type) const {
    expects(bytes_.size() <= kPreviewFrameBytes, "a message fits a frame");
    Writer head;
    head.put(kMagic);
    head.put(static_cast<std::uint8_t>(type));
    head.put(narrow<std::uint32_t>(bytes_.size()));
    return head.bytes_ + bytes_;
  }

 private:
  std::string bytes_;
};

// Reads what is there and refuses what is not.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer number(const char* what) {
    const std::string_view own = take(sizeof(Integer), what);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      value |= std::uint64_t{byte_of(own[i])} << (8 * i);
    }
    return static_cast<Integer>(value);
  }
  double real(const char* what) { return std::bit_cast<double>(number<std::uint64_t>(what)); }
  std::string text(std::size_t size, std::size_t most, const char* what) {
    if (size > most) {
      refuse_frame(what, "at most " + std::to_string(most) + " bytes", std::to_string(size));
    }
    std::string out(take(size, what));
    if (!is_valid_utf8(out)) refuse_frame(what, "UTF-8", "another byte");
    return out;
  }
  std::string_view rest() { return take(bytes_.size(), "rest"); }
  std::size_t left() const { return bytes_.size(); }
  void finish() const {
    if (!bytes_.empty())
      refuse_frame("frame", "its end", std::to_string(bytes_.size()) + " bytes more");
  }

 private:
  std::string_view take(std::size_t size, const char* what) {
    if (size > bytes_.size()) {
      refuse_frame(what, std::to_string(size) + " bytes", std::to_string(bytes_.size()));
    }
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return out;
  }
  std::string_view bytes_;
};

std::uint32_t within(Cursor& from, const char* what, std::uint32_t least, std::uint32_t most) {
  const auto value = from.number<std::uint32_t>(what);
  if (value < least || value > most) {
    refuse_frame(what, std::to_string(least) + " to " + std::to_string(most),
                 std::to_string(value));
  }
  return value;
}

PreviewBegin read_begin(Cursor from) {
  PreviewBegin out;
  out.image = from.number<std::uint64_t>("picture");
  out.seed = from.number<std::uint64_t>("seed");
  out.width = within(from, "width", 1, kPreviewSide);
  out.height = within(from, "height", 1, kPreviewSide);
  const std::uint64_t pixels = std::uint64_t{out.width} * out.height;
  if (pixels > kPreviewPixels) {
    refuse_frame("width x height", "at most 16 megapixels", std::to_string(pixels));
  }
  out.grid_rows = within(from, "rows", 1, kPreviewGridSide);
  out.grid_columns = within(from, "columns", 1, kPreviewGridSide);
  out.model = from.text(from.number<std::uint16_t>("model"), kPreviewNameBytes, "model");
  out.prompt = from.text(from.number<std::uint32_t>("prompt"), kPreviewTextBytes, "prompt");
  from.finish();
  return out;
}

PreviewRows read_rows(Cursor from) {
  PreviewRows out;
  out.image = from.number<std::uint64_t>("picture");
  out.first = within(from, "first row", 0, kPreviewSide);
  out.rows = within(from, "rows", 0, kPreviewSide);
  if (out.first + out.rows > kPreviewSide) {
    refuse_frame("rows", "at most 16384", std::to_string(out.first + out.rows));
  }
  const auto last = from.number<std::uint8_t>("last");
  if (last > 1) refuse_frame("last", "0 or 1", std::to_string(last));
  out.last = last == 1;
  out.rows_done = within(from, "rows done", 0, kPreviewGridSide);
  out.passes = from.number<std::uint32_t>("passes");
  out.tokens = from.number<std::uint32_t>("tokens");
  out.seconds = from.real("seconds");
  if (!std::isfinite(out.seconds) || out.seconds < 0) refuse_frame("seconds", "a time", "none");
  // Whose width it is only the image's beginning tells: whole pixels, as many in each row.
  const std::size_t bytes = from.left();
  const std::size_t row_bytes = std::size_t{out.rows} * 3;
  const bool whole = out.rows == 0 ? bytes == 0 : bytes > 0 && bytes % row_bytes == 0;
  if (!whole) {
    refuse_frame("pixels", "whole rows", std::to_string(bytes) + " bytes");
  }
  const std::string_view rgb = from.rest();
  out.rgb.assign(rgb.begin(), rgb.end());
  return out;
}

PreviewEnd read_end(Cursor from) {
  PreviewEnd out;
  out.image = from.number<std::uint64_t>("picture");
  const auto state = from.number<std::uint8_t>("state");
  if (state > static_cast<std::uint8_t>(PreviewState::kFailed)) {
    refuse_frame("state", "0, 1 or 2", std::to_string(state));
  }
  out.state = static_cast<PreviewState>(state);
  from.finish();
  return out;
}

PreviewMessage read_message(std::uint8_t type, std::string_view body) {
  switch (static_cast<FrameType>(type)) {
    case FrameType::kBegin:
      return read_begin(Cursor(body));
    case FrameType::kRows:
      return read_rows(Cursor(body));
    case FrameType::kEnd:
      return read_end(Cursor(body));
  }
  refuse_frame("frame", "begin, rows or end", "type " + std::to_string(type));
}

// Bytes after the head of the frame that begins here; none while the head is not whole.
std::optional<std::size_t> body_bytes(std::string_view frame) {
  if (frame.substr(0, kMagic.size()) != kMagic.substr(0, std::min(frame.size(), kMagic.size()))) {
    refuse_frame("frame", "TSV1", escape_for_terminal(frame.substr(0, kMagic.size())));
  }
  if (frame.size() < kPreviewHeadBytes) return std::nullopt;
  Cursor cursor(frame.substr(kMagic.size() + 1));
  const auto bytes = cursor.number<std::uint32_t>("length");
  if (bytes > kPreviewFrameBytes) {
    refuse_frame("length", "at most " + std::to_string(kPreviewFrameBytes), std::to_string(bytes));
  }
  return bytes;
}

struct Encoder {
  std::string operator()(const PreviewBegin& begin) const {
    expects(begin.model.size() <= kPreviewNameBytes && begin.prompt.size() <= kPreviewTextBytes,
            "texts fit their limits");
    Writer out;
    out.put(begin.image);
    out.put(begin.seed);
    for (const std::uint32_t side :
         {begin.width, begin.height, begin.grid_rows, begin.grid_columns}) {
      out.put(side);
    }
    out.put(narrow<std::uint16_t>(begin.model.size()));
    out.put(std::string_view(begin.model));
    out.put(narrow<std::uint32_t>(begin.prompt.size()));
    out.put(std::string_view(begin.prompt));
    return out.frame(FrameType::kBegin);
  }
  std::string operator()(const PreviewRows& rows) const {
    Writer out;
    out.put(rows.image);
    out.put(rows.first);
    out.put(rows.rows);
    out.put(narrow<std::uint8_t>(rows.last ? 1 : 0));
    out.put(rows.rows_done);
    out.put(rows.passes);
    out.put(rows.tokens);
    out.put(rows.seconds);
    out.put(std::string_view(reinterpret_cast<const char*>(rows.rgb.data()), rows.rgb.size()));
    return out.frame(FrameType::kRows);
  }
  std::string operator()(const PreviewEnd& end) const {
    Writer out;
    out.put(end.image);
    out.put(static_cast<std::uint8_t>(end.state));
    return out.frame(FrameType::kEnd);
  }
};

}  // namespace

std::string encode_preview(const PreviewMessage& message) { return std::visit(Encoder{}, message); }

void PreviewReader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    // Up to the end of the head, then up to the end of the frame: never a byte of the next one.
    std::optional<std::size_t> body = body_bytes(buffer_);
    const std::size_t want = body ? kPreviewHeadBytes + *body : kPreviewHeadBytes;
    const std::size_t count = std::min(want - buffer_.size(), bytes.size());
    buffer_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    body = body_bytes(buffer_);
    if (!body || buffer_.size() < kPreviewHeadBytes + *body) continue;
    const auto type = byte_of(buffer_[kMagic.size()]);
    ready_.push_back(read_message(type, std::string_view(buffer_).substr(kPreviewHeadBytes)));
    buffer_.clear();
  }
}

std::optional<PreviewMessage> PreviewReader::next() {
  if (given_ == ready_.size()) {
    ready_.clear();
    given_ = 0;
    return std::nullopt;
  }
  return std::move(ready_[given_++]);
}

}  // namespace tessera
