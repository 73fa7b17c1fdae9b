#include "video/frame_reader.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "engine/core/file_stream.h"
#include "engine/core/io.h"
#include "vision/image/picture_wire.h"

namespace tessera {

namespace vw = video_wire;
using vw::Kind;

namespace {

constexpr std::size_t kMostNotes = 16;

}  // namespace

struct FrameReader::State {
  InputFile file;
  FrameReaderOptions options;
  ClipProcess process;
  VideoInfo info;
  std::string piece;

  State(const std::filesystem::path& path, FrameReaderOptions given)
      : file(path, ErrorKind::kGeneral),
        options(std::move(given)),
        process(options.process, path.string()) {
    const VideoLimits& limits = options.limits;
    const vw::Open open = {file.size(),   limits.side,           limits.pixels,
                           limits.frames, limits.decoded_pixels, limits.rate};
    process.send(Kind::kOpen, 0, &open, sizeof open);
    take_info(answer());
  }

  // The answer to a request; what the process needs of the file until then is given to it.
  vw::Message answer() {
    while (true) {
      const vw::Message message = process.receive();
      if (message.kind != Kind::kNeed) return message;
      if (message.bytes != 0 || message.b == 0 || message.b > vw::kMostPiece) {
        process.fail_nonsense("request");
      }
      file.check_unchanged();
      piece.resize(message.b);
      std::size_t got = 0;
      if (message.a < file.size()) {
        file.seek(message.a);
        got = file.read(piece.data(), piece.size());
      }
      process.send(Kind::kBytes, 0, piece.data(), got);
    }
  }

  void take_info(const vw::Message& message) {
    vw::Info fixed = {};
    if (message.kind != Kind::kInfo || message.bytes < sizeof fixed ||
        message.bytes > sizeof fixed + vw::kMostText) {
      process.fail_nonsense("description");
    }
    process.receive_payload(&fixed, sizeof fixed);
    std::string text(message.bytes - sizeof fixed, '\0');
    process.receive_payload(text.data(), text.size());
    const std::vector<std::string> texts = wire::split_texts(text);
    const bool sound = texts.size() >= 2 && fits(fixed.width, fixed.height) && fixed.tick_num > 0 &&
                       fixed.tick_den > 0 && fixed.rate_num >= 0 && fixed.rate_den > 0 &&
                       fixed.turned % 90 == 0 && fixed.turned >= 0 && fixed.turned < 360;
    if (!sound) process.fail_nonsense("description");
    info = {.container = escape_for_terminal(texts[0], 16),
            .codec = escape_for_terminal(texts[1], 32),
            .width = fixed.width,
            .height = fixed.height,
            .turned = static_cast<int>(fixed.turned),
            .tick = {fixed.tick_num, fixed.tick_den},
            .rate = {fixed.rate_num, fixed.rate_den}};
    for (std::size_t i = 2; i < texts.size() && i < 2 + kMostNotes; ++i) {
      info.notes.push_back(escape_for_terminal(texts[i], 256));
    }
  }

  bool fits(std::int64_t width, std::int64_t height) const {
    const auto side = static_cast<std::int64_t>(options.limits.side);
    return width >= 1 && height >= 1 && width <= side && height <= side &&
           static_cast<std::uint64_t>(width * height) <= options.limits.pixels;
  }

  std::optional<VideoFrame> frame() {
    const vw::Message message = answer();
    if (message.kind == Kind::kEnd && message.bytes == 0) return std::nullopt;
    VideoFrame out{static_cast<std::int64_t>(message.a),
                   static_cast<std::int64_t>(message.b >> 32),
                   static_cast<std::int64_t>(message.b & 0xffffffff),
                   {}};
    if (message.kind != Kind::kFrame || !fits(out.width, out.height) ||
        message.bytes != static_cast<std::uint64_t>(out.width * out.height * 3)) {
      process.fail_nonsense("frame");
    }
    out.rgb.resize(message.bytes);
    process.receive_payload(out.rgb.data(), out.rgb.size());
    return out;
  }
};

FrameReader::FrameReader(const std::filesystem::path& file, FrameReaderOptions options) {
  expects(options.limits.side <= (1u << 20) && options.limits.pixels <= (std::uint64_t{1} << 40) &&
              options.limits.frames <= (std::uint64_t{1} << 32) && options.limits.rate > 0,
          "limits whose products fit 64 bits");
  state_ = std::make_unique<State>(file, std::move(options));
}
FrameReader::~FrameReader() = default;
FrameReader::FrameReader(FrameReader&&) noexcept = default;
FrameReader& FrameReader::operator=(FrameReader&&) noexcept = default;

const VideoInfo& FrameReader::info() const { return state_->info; }
std::string FrameReader::confinement() const { return state_->process.confinement(); }

std::optional<VideoFrame> FrameReader::next() {
  state_->process.send(Kind::kNext, 0, nullptr, 0);
  return state_->frame();
}

std::optional<VideoFrame> FrameReader::frame_at(std::int64_t ticks) {
  state_->process.send(Kind::kFrameAt, static_cast<std::uint64_t>(ticks), nullptr, 0);
  return state_->frame();
}

std::vector<std::int64_t> FrameReader::scan() {
  state_->process.send(Kind::kScan, 0, nullptr, 0);
  const vw::Message message = state_->answer();
  if (message.kind != Kind::kTimes || message.bytes % sizeof(std::int64_t) != 0 ||
      message.bytes / sizeof(std::int64_t) > state_->options.limits.frames) {
    state_->process.fail_nonsense("list of times");
  }
  std::vector<std::int64_t> times(message.bytes / sizeof(std::int64_t));
  state_->process.receive_payload(times.data(), message.bytes);
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (times[i] <= times[i - 1]) state_->process.fail_nonsense("list of times");
  }
  return times;
}

}  // namespace tessera
