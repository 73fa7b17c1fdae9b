#include "video/frame_reader.h"

#include <algorithm>
#include <utility>

#include "engine/core/file_stream.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "vision/image/image_wire.h"

namespace tessera {

namespace vw = video_wire;
using vw::Kind;

namespace {

constexpr std::size_t kMaxNotes = 16;
constexpr double kSlowestBytes = 16 << 20;  // a second, of a file that is gone through

bool is_container(const std::string& name) {
  return name == "mp4" || name == "matroska" || name == "avi";
}

bool is_unit(std::int64_t num, std::int64_t den) {
  return num > 0 && den > 0 && num <= INT32_MAX && den <= INT32_MAX;
}

}  // namespace

struct FrameReader::State {
  InputFile file;
  FrameReaderOptions options;
  VideoProcess process;
  VideoInfo info;
  std::string piece;
  std::uint64_t frames = 0, pixels = 0;  // given since the start or a seek; since the opening
  std::int64_t last = INT64_MIN;         // ticks of the frame before
  std::optional<ErrorInfo> failure;      // what next() ended with

  State(const std::filesystem::path& path, FrameReaderOptions given)
      : file(path, ErrorKind::kGeneral),
        options(std::move(given)),
        process(options.process, path.string()) {
    const VideoLimits& limits = options.limits;
    const vw::Open open = {file.size(),   limits.side,           limits.pixels,
                           limits.frames, limits.decoded_pixels, limits.rate};
    process.ask(Kind::kOpen, 0, &open, sizeof open);
    take_info(answer());
    process.end_answer();
  }

  double seconds_of_file() const { return to_double(file.size()) / kSlowestBytes; }

  // The answer to a question; what the process needs of the file until then is given to it.
  vw::Message answer() {
    while (true) {
      const vw::Message message = process.receive();
      if (message.kind != Kind::kNeed) return message;
      if (message.bytes != 0 || message.b == 0 || message.b > vw::kMaxPiece) {
        process.fail_nonsense("request");
      }
      file.check_unchanged();
      piece.resize(message.b);
      std::size_t got = 0;
      if (message.a < file.size()) {
        file.seek(message.a);
        got = file.read(piece.data(), piece.size());
      }
      process.supply(piece.data(), got);
    }
  }

  void take_info(const vw::Message& message) {
    vw::Info fixed = {};
    if (message.kind != Kind::kInfo || message.bytes < sizeof fixed ||
        message.bytes > sizeof fixed + vw::kMaxText) {
      process.fail_nonsense("description");
    }
    process.receive_payload(&fixed, sizeof fixed);
    std::string text(message.bytes - sizeof fixed, '\0');
    process.receive_payload(text.data(), text.size());
    const std::vector<std::string> texts = wire::split_texts(text);
    const bool sound = texts.size() >= 2 && is_container(texts[0]) &&
                       fits(fixed.width, fixed.height) && is_unit(fixed.tick_num, fixed.tick_den) &&
                       is_rate(fixed.rate_num, fixed.rate_den) && fixed.turned % 90 == 0 &&
                       fixed.turned >= 0 && fixed.turned < 360;
    if (!sound) process.fail_nonsense("description");
    info = {.container = escape_for_terminal(texts[0], 16),
            .codec = escape_for_terminal(texts[1], 32),
            .width = fixed.width,
            .height = fixed.height,
            .turned = narrow<int>(fixed.turned),
            .tick = {fixed.tick_num, fixed.tick_den},
            .rate = {fixed.rate_num, fixed.rate_den}};
    for (std::size_t i = 2; i < texts.size() && i < 2 + kMaxNotes; ++i) {
      info.notes.push_back(escape_for_terminal(texts[i], 256));
    }
  }

  bool fits(std::int64_t width, std::int64_t height) const {
    const auto side = to_index(options.limits.side);
    return width >= 1 && height >= 1 && width <= side && height <= side &&
           low_bits<std::uint64_t>(width * height) <= options.limits.pixels;
  }

  bool is_rate(std::int64_t num, std::int64_t den) const {
    if (num == 0) return den > 0;
    return is_unit(num, den) && Rational{num, den}.value() <= options.limits.rate;
  }

  // A frame after `last`, of the size that was announced, within the limits.
  std::optional<VideoFrame> frame() {
    const vw::Message message = answer();
    if (message.kind == Kind::kEnd && message.bytes == 0) {
      process.end_answer();
      return std::nullopt;
    }
    VideoFrame out{static_cast<std::int64_t>(message.a),
                   static_cast<std::int64_t>(message.b >> 32),
                   static_cast<std::int64_t>(message.b & 0xffffffff),
                   {}};
    if (message.kind != Kind::kFrame || out.width != info.width || out.height != info.height ||
        message.bytes != low_bits<std::uint64_t>(out.width * out.height * 3) || out.ticks <= last ||
        ++frames > options.limits.frames) {
      process.fail_nonsense("frame");
    }
    pixels += low_bits<std::uint64_t>(out.width * out.height);
    if (pixels > options.limits.decoded_pixels) process.fail_nonsense("number of frames");
    out.rgb.resize(message.bytes);
    process.receive_payload(out.rgb.data(), out.rgb.size());
    process.end_answer();
    last = out.ticks;
    return out;
  }

  // Memory grows with what comes, not with what is announced.
  std::vector<std::int64_t> times() {
    const vw::Message message = answer();
    constexpr std::uint64_t kEach = sizeof(std::int64_t);
    if (message.kind != Kind::kTimes || message.bytes % kEach != 0 ||
        message.bytes / kEach > options.limits.frames) {
      process.fail_nonsense("list of times");
    }
    std::vector<std::int64_t> out;
    for (std::uint64_t left = message.bytes / kEach; left > 0;) {
      const std::uint64_t count = std::min(left, vw::kMaxPiece / kEach);
      const std::size_t had = out.size();
      out.resize(had + count);
      process.receive_payload(out.data() + had, count * kEach);
      left -= count;
    }
    for (std::size_t i = 1; i < out.size(); ++i) {
      if (out[i] <= out[i - 1]) process.fail_nonsense("list of times");
    }
    process.end_answer();
    return out;
  }

  // To another place: what ended the video before is over, and times may be earlier.
  void leave_place() {
    failure.reset();
    frames = 0;
    last = INT64_MIN;
  }

  template <typename Work>
  auto guarded(Work&& work) {
    try {
      return work();
    } catch (const Error& error) {
      process.give_up(error.info());
      failure = error.info();
      throw;
    }
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
  State& state = *state_;
  if (state.failure) throw Error(*state.failure);
  return state.guarded([&] {
    state.process.ask(Kind::kNext, 0, nullptr, 0);
    return state.frame();
  });
}

std::optional<VideoFrame> FrameReader::frame_at(std::int64_t ticks) {
  State& state = *state_;
  state.leave_place();
  return state.guarded([&] {
    state.process.ask(Kind::kFrameAt, low_bits<std::uint64_t>(ticks), nullptr, 0,
                      state.seconds_of_file());
    return state.frame();
  });
}

std::vector<std::int64_t> FrameReader::scan() {
  State& state = *state_;
  state.leave_place();
  return state.guarded([&] {
    state.process.ask(Kind::kScan, 0, nullptr, 0, state.seconds_of_file());
    return state.times();
  });
}

}  // namespace tessera
