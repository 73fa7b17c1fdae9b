#include "video/frame_writer.h"

#include <cstring>
#include <utility>

#include "engine/core/draft_file.h"

namespace tessera {

namespace vw = video_wire;
using vw::Kind;

namespace {

constexpr std::uint64_t kMostClip = std::uint64_t{1} << 42;  // bytes
constexpr unsigned kCodecs = 6;

}  // namespace

ClipContainer container_of(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  for (const ClipContainer container :
       {ClipContainer::kMp4, ClipContainer::kWebm, ClipContainer::kMatroska}) {
    if (ending == "." + std::string(name_of(container))) return container;
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_VIDEO_NAME",
               .file = path.string(),
               .expected = "a name that ends with .mp4, .webm or .mkv",
               .found = ending.empty() ? "no ending" : ending});
}

std::vector<ClipCodec> codecs_there(ClipContainer container, const ClipProcessOptions& options) {
  ClipProcess process(options, "tessera-video");
  process.send(Kind::kCodecs, static_cast<std::uint64_t>(container), nullptr, 0);
  const vw::Message message = process.receive();
  if (message.kind != Kind::kDone || message.bytes != 0) process.fail_nonsense("list of codecs");
  std::vector<ClipCodec> out;
  for (unsigned i = 1; i < kCodecs; ++i) {
    if ((message.a >> i & 1) != 0) out.push_back(static_cast<ClipCodec>(i));
  }
  return out;
}

struct FrameWriter::State {
  ClipFormat format;
  ClipProcess process;
  DraftFile draft;
  ClipCodec codec = ClipCodec::kAuto;
  std::vector<std::byte> piece;

  State(const std::filesystem::path& path, const ClipFormat& wanted,
        const ClipProcessOptions& options)
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
    process.send(Kind::kCreate, 0, payload.data(), payload.size());
    const std::uint64_t taken = done();
    if (taken == 0 || taken >= kCodecs) process.fail_nonsense("codec");
    codec = static_cast<ClipCodec>(taken);
  }

  // Waits for the answer to a request; the bytes that come before it go into the file.
  std::uint64_t done() {
    while (true) {
      const vw::Message message = process.receive();
      if (message.kind == Kind::kDone && message.bytes == 0) return message.a;
      if (message.kind != Kind::kWrite || message.bytes > vw::kMostPiece || message.a > kMostClip) {
        process.fail_nonsense("piece of a clip");
      }
      piece.resize(message.bytes);
      process.receive_payload(piece.data(), piece.size());
      draft.write(message.a, piece);
    }
  }
};

FrameWriter::FrameWriter(const std::filesystem::path& path, const ClipFormat& format,
                         const ClipProcessOptions& options)
    : state_(std::make_unique<State>(path, format, options)) {}
FrameWriter::~FrameWriter() = default;
FrameWriter::FrameWriter(FrameWriter&&) noexcept = default;
FrameWriter& FrameWriter::operator=(FrameWriter&&) noexcept = default;

ClipCodec FrameWriter::codec() const { return state_->codec; }

void FrameWriter::put(std::span<const std::uint8_t> rgb, std::int64_t ticks) {
  expects(rgb.size() == static_cast<std::size_t>(state_->format.width * state_->format.height * 3),
          "a frame of the clip's size");
  state_->process.send(Kind::kPut, static_cast<std::uint64_t>(ticks), rgb.data(), rgb.size());
  state_->done();
}

bool FrameWriter::finish(std::int64_t end_ticks, Publish publish, Sync sync) {
  state_->process.send(Kind::kFinish, static_cast<std::uint64_t>(end_ticks), nullptr, 0);
  state_->done();
  return state_->draft.publish(publish, sync);
}

}  // namespace tessera
