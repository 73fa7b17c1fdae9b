#include "video/png_sequence.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "vision/image/png.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSide = 16384;
constexpr std::size_t kMaxDigits = 9;

// "name-%04d.png" without folder.
bool parse_pattern(const std::string& text, SequenceName& out) {
  const std::size_t begin = text.find('%');
  const std::size_t end = text.find('d', begin == std::string::npos ? text.size() : begin);
  if (!text.ends_with(".png") || end == std::string::npos) return false;
  if (text.find('%', begin + 1) != std::string::npos) return false;
  const std::string width = text.substr(begin + 1, end - begin - 1);
  const bool padded = width.size() == 2 && width[0] == '0' && width[1] >= '1' && width[1] <= '9';
  if (!width.empty() && !padded) return false;
  static_assert(kMaxDigits == 9);
  out.before = text.substr(0, begin);
  out.after = text.substr(end + 1);
  out.digits = padded ? to_size(width[1] - '0') : 1;
  return true;
}

}  // namespace

std::string SequenceName::of(std::uint64_t number) const {
  std::string text = std::to_string(number);
  if (text.size() < digits) text.insert(0, digits - text.size(), '0');
  return before + text + after;
}

std::optional<SequenceName> sequence_name(const fs::path& path) {
  if (!path.has_filename() || is_folder(path)) {
    const fs::path folder = path.has_filename() ? path : path.parent_path();
    if (folder.empty()) return std::nullopt;
    return SequenceName{folder, "", ".png", 4, true};
  }
  SequenceName out;
  if (!parse_pattern(path.filename().string(), out)) return std::nullopt;
  out.folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return out;
}

PngSequence::PngSequence(const fs::path& path, SequenceName name, const VideoFormat& format)
    : path_(path),
      name_(std::move(name)),
      format_(format),
      draft_(name_.own_folder ? name_.folder : path) {
  const auto is_side = [](std::int64_t side) { return side >= 1 && side <= kMaxSide; };
  if (!is_side(format.width) || !is_side(format.height)) {
    fail("E_VIDEO_SIZE", "sides of 1 to 16384 pixels",
         std::to_string(format.width) + "x" + std::to_string(format.height));
  }
  expects(format.tick.num > 0 && format.tick.den > 0, "a tick of the video's time");
}

void PngSequence::fail(const char* code, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .file = path_.string(),
               .where = "frame " + std::to_string(frames()),
               .expected = std::move(expected),
               .found = std::move(found)});
}

// Since the first frame, as an exact fraction of seconds in lowest terms.
std::string PngSequence::time_of(std::int64_t ticks) const {
  std::int64_t since = 0, num = 0;
  std::int64_t den = format_.tick.den;
  if (__builtin_sub_overflow(ticks, *first_, &since)) return "unknown";
  const std::int64_t common = std::gcd(since, den);
  den /= common;
  if (__builtin_mul_overflow(since / common, format_.tick.num, &num)) return "unknown";
  const std::int64_t more = std::gcd(num, den);
  return std::to_string(num / more) + "/" + std::to_string(den / more) + " s";
}

void PngSequence::put(std::span<const std::uint8_t> rgb, std::int64_t ticks) {
  expects(rgb.size() == to_size(format_.width * format_.height * 3), "a frame of the video's size");
  expects(!ended_, "a video that is not finished");
  if (failure_) throw Error(*failure_);
  try {
    if (last_ && ticks <= *last_) {
      fail("E_VIDEO_TIME", "a time after tick " + std::to_string(*last_),
           "tick " + std::to_string(ticks));
    }
    if (!first_) first_ = ticks;
    last_ = ticks;
    std::vector<PngText> texts = {{"Time", time_of(ticks)}};
    if (!format_.comment.empty()) texts.push_back({"Comment", format_.comment});
    const Image image(format_.width, format_.height, {rgb.begin(), rgb.end()});
    draft_.write(name_.of(frames() + 1), encode_png(image, texts, ""));
  } catch (const Error& error) {
    failure_ = error.info();
    throw;
  }
}

bool PngSequence::finish(std::int64_t end_ticks, Publish publish, Sync sync) {
  if (failure_) {
    ErrorInfo info = *failure_;
    info.code = "E_VIDEO_UNFINISHED";
    info.file = path_.string();
    info.where = "frame " + std::to_string(frames());
    info.expected = "a sequence whose frames were all taken";
    info.found = failure_->code;
    throw Error(std::move(info));
  }
  return finish_whole_frames(end_ticks, publish, sync);
}

bool PngSequence::finish_whole_frames(std::int64_t, Publish publish, Sync sync) {
  expects(!ended_, "a video that is not finished");
  if (frames() == 0) fail("E_VIDEO_EMPTY", "at least one frame", "none");
  ended_ = true;
  if (name_.own_folder) {
    if (draft_.publish_as(name_.folder, sync)) return true;
    const bool taken = !is_folder(name_.folder) || !list_folder(name_.folder).empty();
    if (publish == Publish::kNew && taken) return false;
  }
  return draft_.publish_into(name_.folder, publish, sync);
}

}  // namespace tessera
