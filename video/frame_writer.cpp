#include "video/frame_writer.h"

#include <cstring>
#include <optional>
#include <utility>

#include "engine/core/draft_file.h"
#include "engine/core/index.h"

namespace tessera {

namespace vw = video_wire;
using vw::Kind;

namespace {

// What a video of that many frames and bytes of pixels can have written at most, heads, tables and
// what is written twice included: no encoder makes more out of noise.
constexpr std::uint64_t max_bytes(std::uint64_t frames, std::uint64_t pixel_bytes) {
  return (std::uint64_t{16} << 20) + frames * 4096 + pixel_bytes * 2;
}

std::vector<VideoCodec> codecs_of(VideoProcess& process, VideoContainer container) {
  process.ask(Kind::kCodecs, static_cast<std::uint64_t>(container), nullptr, 0);
  const vw::Message message = process.receive();
  if (message.kind != Kind::kDone || message.bytes != 0 || message.a >> kVideoCodecs != 0) {
    process.fail_nonsense("list of codecs");
  }
  std::vector<VideoCodec> out;
  for (unsigned i = 1; i < kVideoCodecs; ++i) {
    if ((message.a >> i & 1) != 0) out.push_back(static_cast<VideoCodec>(i));
  }
  process.end_answer();
  return out;
}

}  // namespace

VideoContainer container_of(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  for (const VideoContainer container : kVideoContainers) {
    if (ending == "." + std::string(name_of(container))) return container;
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_VIDEO_NAME",
               .file = path.string(),
               .expected = "a name that ends with .mp4, .webm, .mkv, .webp or .gif",
               .found = ending.empty() ? "no ending" : ending});
}

void check_rate(const std::filesystem::path& path, std::int64_t rate) {
  constexpr std::int64_t kMaxOfGif = 50;
  if (path.extension() != ".gif" || rate <= kMaxOfGif) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_VIDEO_RATE",
               .file = path.string(),
               .where = "fps",
               .expected = "at most 50, which is what GIF keeps",
               .found = std::to_string(rate)});
}

std::vector<VideoCodec> codecs_there(VideoContainer container, const VideoProcessOptions& options) {
  VideoProcess process(options, "tessera-video");
  return codecs_of(process, container);
}

VideoAbilities video_abilities(const VideoProcessOptions& options) {
  VideoProcess process(options, "tessera-video");
  VideoAbilities out;
  out.confinement = process.confinement();
  for (const VideoContainer container : kVideoContainers) {
    out.codecs.emplace_back(container, codecs_of(process, container));
  }
  return out;
}

struct FrameWriter::State {
  VideoFormat format;
  VideoProcess process;
  DraftFile draft;
  VideoCodec codec = VideoCodec::kAuto;
  std::vector<std::byte> piece;
  std::uint64_t frames = 0, pixel_bytes = 0;  // put
  std::uint64_t written = 0;                  // bytes that came back
  std::optional<ErrorInfo> failure;           // of the first put() that failed
  bool ended = false;

  State(const std::filesystem::path& path, const VideoFormat& wanted,
        const VideoProcessOptions& options)
      : format(wanted), process(options, path.string()), draft(path) {
    const vw::Create create = {static_cast<std::uint32_t>(format.container),
                               static_cast<std::uint32_t>(format.codec),
                               format.width,
                               format.height,
                               format.tick.num,
                               format.tick.den,
                               format.quality};
    std::string payload(sizeof create, '\0');
    std::memcpy(payload.data(), &create, sizeof create);
    payload += format.comment;
    process.ask(Kind::kCreate, 0, payload.data(), payload.size());
    const std::uint64_t taken = done();
    const bool requested =
        format.codec == VideoCodec::kAuto || taken == static_cast<std::uint64_t>(format.codec);
    if (taken == 0 || taken >= kVideoCodecs || !requested) process.fail_nonsense("codec");
    codec = static_cast<VideoCodec>(taken);
  }

  // Waits for the answer to a question; the bytes that come before it go into the file.
  std::uint64_t done() {
    while (true) {
      const vw::Message message = process.receive();
      if (message.kind == Kind::kDone && message.bytes == 0) {
        process.end_answer();
        return message.a;
      }
      const std::uint64_t most = max_bytes(frames, pixel_bytes);
      if (message.kind != Kind::kWrite || message.bytes == 0 || message.bytes > vw::kMaxPiece ||
          message.a > most - message.bytes || written > most - message.bytes) {
        process.fail_nonsense("piece of a video");
      }
      written += message.bytes;
      piece.resize(message.bytes);
      process.receive_payload(piece.data(), piece.size());
      draft.write(message.a, piece);
    }
  }

  std::uint64_t answer_to(Kind kind, std::int64_t ticks, std::span<const std::uint8_t> payload) {
    try {
      process.ask(kind, low_bits<std::uint64_t>(ticks), payload.data(), payload.size());
      return done();
    } catch (const Error& error) {
      process.give_up(error.info());
      if (!failure) failure = error.info();
      throw;
    }
  }

  bool end(std::int64_t end_ticks, Publish publish, Sync sync) {
    expects(!ended, "a video that is not finished");
    if (frames == 0) {
      throw Error({.kind = ErrorKind::kGeneral,
                   .code = "E_VIDEO_EMPTY",
                   .file = process.name(),
                   .expected = "at least one frame",
                   .found = "none"});
    }
    ended = true;
    answer_to(Kind::kFinish, end_ticks, {});
    return draft.publish(publish, sync);
  }
};

FrameWriter::FrameWriter(const std::filesystem::path& path, const VideoFormat& format,
                         const VideoProcessOptions& options)
    : state_(std::make_unique<State>(path, format, options)) {}
FrameWriter::~FrameWriter() = default;
FrameWriter::FrameWriter(FrameWriter&&) noexcept = default;
FrameWriter& FrameWriter::operator=(FrameWriter&&) noexcept = default;

VideoCodec FrameWriter::codec() const { return state_->codec; }

void FrameWriter::put(std::span<const std::uint8_t> rgb, std::int64_t ticks) {
  expects(rgb.size() == to_size(state_->format.width * state_->format.height * 3),
          "a frame of the video's size");
  State& state = *state_;
  expects(!state.ended, "a video that is not finished");
  if (state.failure) throw Error(*state.failure);
  const std::uint64_t before = state.pixel_bytes;
  state.pixel_bytes += rgb.size();
  ++state.frames;
  try {
    state.answer_to(Kind::kPut, ticks, rgb);
  } catch (const Error&) {
    state.pixel_bytes = before;
    --state.frames;
    throw;
  }
}

bool FrameWriter::finish(std::int64_t end_ticks, Publish publish, Sync sync) {
  State& state = *state_;
  if (state.failure) {
    throw Error({.kind = state.failure->kind,
                 .code = "E_VIDEO_UNFINISHED",
                 .file = state.process.name(),
                 .where = "frame " + std::to_string(state.frames),
                 .expected = "a video whose frames were all taken",
                 .found = state.failure->code});
  }
  return state.end(end_ticks, publish, sync);
}

bool FrameWriter::finish_whole_frames(std::int64_t end_ticks, Publish publish, Sync sync) {
  return state_->end(end_ticks, publish, sync);
}

std::uint64_t FrameWriter::frames() const { return state_->frames; }

}  // namespace tessera
