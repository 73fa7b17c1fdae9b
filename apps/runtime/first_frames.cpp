#include "apps/runtime/first_frames.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>

#include "engine/core/index.h"
#include "video/frame_reader.h"
#include "vision/image/image_reader.h"
#include "vision/image/resample.h"

namespace tessera {

namespace {

bool is_image(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 6> kEndings = {".png",  ".jpg", ".jpeg",
                                                        ".webp", ".gif", ".bmp"};
  std::string ending = file.extension().string();
  for (char& c : ending) {
    if (c >= 'A' && c <= 'Z') c = char_of(c - 'A' + 'a');
  }
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

// Scaled to cover the size, cut to its middle.
Image fitted(const Image& image, const FirstFrames& wanted) {
  if (image.width == wanted.width && image.height == wanted.height) return image;
  const double scale = std::max(to_double(wanted.width) / to_double(image.width),
                                to_double(wanted.height) / to_double(image.height));
  const auto scaled = [&](std::int64_t side, std::int64_t least) {
    return std::max(least, truncate<std::int64_t>(to_double(side) * scale + 0.5));
  };
  const Image large = resize(image, scaled(image.width, wanted.width),
                             scaled(image.height, wanted.height), ResampleFilter::kBicubic);
  const std::int64_t left = (large.width - wanted.width) / 2;
  const std::int64_t top = (large.height - wanted.height) / 2;
  Image out(wanted.width, wanted.height);
  for (std::int64_t y = 0; y < wanted.height; ++y) {
    const std::uint8_t* row = large.at(left, top + y);
    std::copy(row, row + wanted.width * 3, out.at(0, y));
  }
  return out;
}

Image opaque(const DecodedImage& decoded_image) {
  Image out(decoded_image.width, decoded_image.height);
  const auto channels = to_size(decoded_image.channels);
  for (std::size_t i = 0; i < out.rgb.size() / 3; ++i) {
    const std::uint8_t* pixel = decoded_image.pixels.data() + i * channels;
    const int alpha = channels == 4 ? pixel[3] : 255;
    for (std::size_t c = 0; c < 3; ++c) {  // on white
      out.rgb[i * 3 + c] =
          low_bits<std::uint8_t>((pixel[c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
  }
  return out;
}

// The frame on the screen at each multiple of 1 / rate, the last ones of them.
class Ticker {
 public:
  Ticker(const FirstFrames& wanted, Rational tick) : wanted_(wanted), tick_(tick) {}

  void add(VideoFrame frame) {
    if (shown_) {
      stay_ = std::max<std::int64_t>(1, frame.ticks - shown_->ticks);
      keep_until(frame.ticks);
    }
    shown_ = std::move(frame);
  }
  std::vector<Image> take() {
    if (shown_) keep_until(shown_->ticks + stay_);
    return {kept_.begin(), kept_.end()};
  }

 private:
  void keep_until(std::int64_t ticks) {
    const auto due = [&](std::int64_t at) {
      return to_double(count_) / to_double(wanted_.rate) < to_double(at) * tick_.value() - 1e-9;
    };
    std::int64_t repeats = 0;
    for (; due(ticks) && repeats < wanted_.most; ++repeats) ++count_;
    while (due(ticks)) ++count_;
    if (repeats == 0) return;
    const Image image = fitted({shown_->width, shown_->height, std::move(shown_->rgb)}, wanted_);
    for (; repeats > 0; --repeats) {
      kept_.push_back(image);
      if (std::ssize(kept_) > wanted_.most) kept_.pop_front();
    }
  }

  const FirstFrames& wanted_;
  Rational tick_;
  std::optional<VideoFrame> shown_;
  std::int64_t stay_ = 1;   // ticks of the last whole frame; the last one stays as long
  std::int64_t count_ = 0;  // frames taken at the wanted rate
  std::deque<Image> kept_;
};

}  // namespace

std::vector<Image> read_first_frames(const std::filesystem::path& file, const FirstFrames& wanted) {
  expects(wanted.most > 0 && wanted.rate > 0, "frames are wanted");
  if (is_image(file)) {
    const DecodedImage decoded_image = ImageReader().read(file);
    // Its last frames are what a video would go on from, and they are not read.
    if (std::ranges::find(decoded_image.notes, "first frame of an animation") != decoded_image.notes.end()) {
      throw Error({.kind = ErrorKind::kGeneral,
                   .code = "E_VIDEO_FIRST",
                   .file = file.string(),
                   .expected = "a video (mp4, mov, mkv, webm, avi) or an image of one frame",
                   .found = "an animated image"});
    }
    return {fitted(opaque(decoded_image), wanted)};
  }
  FrameReader reader(file);
  Ticker ticker(wanted, reader.info().tick);
  while (std::optional<VideoFrame> frame = reader.next()) ticker.add(std::move(*frame));
  return ticker.take();
}

Image first_frame_of(const std::filesystem::path& file) {
  if (is_image(file)) return opaque(ImageReader().read(file));
  std::optional<VideoFrame> frame = FrameReader(file).next();
  if (frame) return {frame->width, frame->height, std::move(frame->rgb)};
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_VIDEO_FRAMES",
               .file = file.string(),
               .where = "video stream",
               .expected = "a video with frames",
               .found = "none"});
}

}  // namespace tessera
