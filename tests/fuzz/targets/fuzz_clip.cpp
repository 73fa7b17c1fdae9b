// Videos in memory. Oracles: frames keep the limits, have the size that was announced and times that
// grow; the same video gives the same frames again; a refusal has a known code and comes again; a
// moment shows the frame that the frames in order say. The mutator changes few bytes, most of them
// in tables and heads.
#include <array>
#include <optional>
#include <set>

#include "engine/core/error.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/video_file.h"

namespace tessera::fuzz {
namespace {

const VideoLimits kLimits = {
    .side = 64, .pixels = 64 * 48, .frames = 40, .rate = 1000, .decoded_pixels = 64 * 48 * 200};

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  const std::vector<std::int64_t> ticks = {0, 1, 2, 5};
  const auto add = [&](VideoContainer container, VideoCodec codec) {
    const auto there = codecs_for(container);
    if (std::find(there.begin(), there.end(), codec) == there.end()) return;
    const MemoryFile file = written_video(
        {.container = container, .codec = codec, .width = 16, .height = 16, .tick = {1, 25}}, ticks,
        6);
    if (file.bytes.size() <= 4096) out.emplace_back(file.bytes.begin(), file.bytes.end());
  };
  add(VideoContainer::kMp4, VideoCodec::kMpeg4);
  add(VideoContainer::kMp4, VideoCodec::kH264);
  add(VideoContainer::kWebm, VideoCodec::kVp9);
  add(VideoContainer::kMatroska, VideoCodec::kFfv1);
  add(VideoContainer::kMatroska, VideoCodec::kH264);
  require(out.size() >= 3, "seeds that fit");
  return out;
}

void check_error(const Error& error) {
  static const std::set<std::string> kCodes = {"E_VIDEO_FILE",  "E_VIDEO_FORMAT", "E_VIDEO_STREAM",
                                               "E_VIDEO_CODEC", "E_VIDEO_SIZE",   "E_VIDEO_RATE",
                                               "E_VIDEO_TIME",  "E_VIDEO_CUT",    "E_VIDEO_DATA"};
  require(kCodes.contains(error.info().code), "a known code");
  require(!error.info().expected.empty() && !error.info().found.empty(), "a full message");
}

void check_frame(const VideoFrame& frame, const VideoInfo& info, std::int64_t last) {
  require(frame.width == info.width && frame.height == info.height, "the announced size");
  require(frame.rgb.size() == static_cast<std::size_t>(frame.width * frame.height * 3), "bytes");
  require(frame.ticks > last, "times grow");
}

// The frames up to the end or an error, which comes again.
std::vector<VideoFrame> frames_of(VideoReader& reader, bool& whole) {
  std::vector<VideoFrame> out;
  whole = false;
  try {
    while (auto frame = reader.next()) {
      check_frame(*frame, reader.info(), out.empty() ? INT64_MIN : out.back().ticks);
      out.push_back(std::move(*frame));
      require(out.size() <= kLimits.frames, "no more frames than may be");
    }
    whole = true;
  } catch (const Error& error) {
    check_error(error);
    try {
      reader.next();
      require(false, "an error comes again");
    } catch (const Error& again) {
      require(again.info().code == error.info().code, "the same error");
    }
  }
  return out;
}

void check_moments(VideoReader& reader, const std::vector<VideoFrame>& frames) {
  const std::array<std::size_t, 2> some = {frames.size() - 1, frames.size() / 2};
  for (const std::size_t i : some) {
    const auto shown = reader.frame_at(frames[i].ticks);
    require(shown && shown->ticks == frames[i].ticks, "the frame of its moment");
    require(shown->rgb == frames[i].rgb, "the same pixels");
  }
}

void check_video(std::span<const std::uint8_t> bytes) {
  MemoryFile file;
  file.bytes.assign(bytes.begin(), bytes.end());
  try {
    VideoReader reader(file, kLimits);
    const VideoInfo& info = reader.info();
    require(info.width >= 1 && info.height >= 1 && info.width <= 64 && info.height <= 64, "sides");
    require(info.tick.num > 0 && info.tick.den > 0, "a unit of time");
    bool whole = false;
    const std::vector<VideoFrame> frames = frames_of(reader, whole);
    if (whole && !frames.empty()) check_moments(reader, frames);
  } catch (const Error& error) {
    check_error(error);
  } catch (const std::bad_alloc&) {  // the process tells E_VIDEO_MEMORY then
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::settle_video_codecs(std::size_t{64} << 20);
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera;
  fuzz::Choice choice(seed);
  if (size == 0 || choice.one_in(8)) return LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t left = 1 + choice.below(2); left > 0; --left) {
    std::uint8_t& byte = data[choice.below(size)];
    byte = static_cast<std::uint8_t>(fuzz::other_number(byte, choice));
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tessera::fuzz::check_video({data, size});
  return 0;
}
