// The one EXIF tag that changes pixels: orientation, 0x0112 of the first image file directory
// (TIFF 6.0, section 2; EXIF 2.32, 4.6.5). Offsets to other directories are not followed, so no
// loop can be built.
#include <optional>

#include "engine/core/index.h"
#include "vision/codec/readers.h"

namespace tessera::codec {

namespace {

constexpr std::size_t kMaxExifBytes = 65536;
constexpr std::size_t kEntryBytes = 12;
constexpr unsigned kOrientationTag = 0x0112;
constexpr unsigned kShort = 3;

// Numbers at an offset in either byte order; nullopt past the end.
class TiffView {
 public:
  explicit TiffView(Bytes data) : data_(data) {}
  bool starts() {
    if (data_.size() < 8) return false;
    big_ = data_[0] == 'M' && data_[1] == 'M';
    return (big_ || (data_[0] == 'I' && data_[1] == 'I')) && number(2, 2) == 42u;
  }
  std::optional<std::uint32_t> number(std::size_t at, std::size_t bytes) const {
    if (at > data_.size() || data_.size() - at < bytes) return std::nullopt;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value = value << 8 | data_.data()[at + (big_ ? i : bytes - 1 - i)];
    }
    return value;
  }

 private:
  Bytes data_;
  bool big_ = false;
};

// Where a pixel of the upright image lies in the stored one.
struct Turn {
  bool swap, mirror_x, mirror_y;  // of the stored image, after the swap of axes
};

Turn turn_of(int orientation) {
  switch (orientation) {
    case 2:
      return {false, true, false};
    case 3:
      return {false, true, true};
    case 4:
      return {false, false, true};
    case 5:
      return {true, false, false};
    case 6:
      return {true, false, true};
    case 7:
      return {true, true, true};
    case 8:
      return {true, true, false};
    default:
      return {false, false, false};
  }
}

}  // namespace

int exif_orientation(Bytes tiff, std::vector<std::string>& notes) {
  const auto broken = [&](const char* why) {
    notes.push_back(std::string("EXIF left out: ") + why);
    return 0;
  };
  if (tiff.size() > kMaxExifBytes) return broken("over 64 KiB");
  TiffView view(tiff);
  if (!view.starts()) return broken("no TIFF header");
  const auto first = view.number(4, 4);
  if (!first) return broken("no directory");
  const auto count = view.number(*first, 2);
  if (!count) return broken("the directory lies outside");
  for (std::size_t i = 0; i < *count; ++i) {
    const std::size_t entry = std::size_t{*first} + 2 + i * kEntryBytes;
    const auto tag = view.number(entry, 2), type = view.number(entry + 2, 2);
    const auto values = view.number(entry + 4, 4), value = view.number(entry + 8, 2);
    if (!tag || !type || !values || !value) return broken("the directory is cut");
    if (*tag != kOrientationTag) continue;
    if (*type != kShort || *values != 1) return broken("the orientation is no single number");
    if (*value < 1 || *value > 8) return broken("the orientation is none of 1-8");
    return narrow<int>(*value);
  }
  return 0;
}

DecodedImage upright(DecodedImage image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const Turn turn = turn_of(orientation);
  DecodedImage out(turn.swap ? image.height : image.width,
              turn.swap ? image.width : image.height, image.channels, "");
  out.format = image.format;
  out.notes = std::move(image.notes);
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      std::int64_t from_x = turn.swap ? y : x, from_y = turn.swap ? x : y;
      if (turn.mirror_x) from_x = image.width - 1 - from_x;
      if (turn.mirror_y) from_y = image.height - 1 - from_y;
      const std::uint8_t* from = image.at(from_x, from_y);
      std::uint8_t* to = out.at(x, y);
      for (std::int64_t c = 0; c < image.channels; ++c) to[c] = from[c];
    }
  }
  return out;
}

}  // namespace tessera::codec
