// FFmpeg asks for bytes through the socket and hands its own back through it: the process opens no
// file. An error of a video is an answer; a connection that breaks ends the process.
#include "apps/helper/serve_video.h"

#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "apps/helper/socket.h"
#include "engine/core/index.h"
#include "video/codec/video_reader.h"
#include "video/codec/video_writer.h"
#include "video/video_wire.h"
#include "vision/image/image_wire.h"

namespace tessera {

namespace {

namespace vw = video_wire;
using vw::Kind;

constexpr std::size_t kMaxAllocation = std::size_t{1} << 30;

struct Closed {};  // thrown when the program is gone

void send(Kind kind, std::uint64_t a = 0, std::uint64_t b = 0, const void* data = nullptr,
          std::size_t bytes = 0) {
  const vw::Message message = {vw::kMagic, kind, a, b, bytes};
  if (!socket::write_all(&message, sizeof message) || !socket::write_all(data, bytes)) {
    throw Closed{};
  }
}

vw::Message receive() {
  vw::Message message = {};
  if (!socket::read_all(&message, sizeof message) || message.magic != vw::kMagic) throw Closed{};
  return message;
}

template <typename Value>
Value receive_value() {
  Value value = {};
  if (!socket::read_all(&value, sizeof value)) throw Closed{};
  return value;
}

class BytesByWire final : public FileBytes {
 public:
  explicit BytesByWire(std::uint64_t size) : size_(size) {}
  std::size_t read(std::uint64_t offset, std::uint8_t* data, std::size_t count) override {
    count = std::min<std::size_t>(count, vw::kMaxPiece);
    if (offset >= size_ || count == 0) return 0;
    send(Kind::kNeed, offset, count);
    const vw::Message answer = receive();
    if (answer.kind != Kind::kBytes || answer.bytes > count) throw Closed{};
    if (!socket::read_all(data, answer.bytes)) throw Closed{};
    return answer.bytes;
  }
  std::uint64_t size() const override { return size_; }

 private:
  std::uint64_t size_;
};

class SinkByWire final : public VideoSink {
 public:
  void write(std::uint64_t offset, const std::uint8_t* data, std::size_t count) override {
    send(Kind::kWrite, offset, 0, data, count);
  }
};

class Service {
 public:
  void run() {
    while (true) {
      const vw::Message request = receive();
      try {
        answer(request);
      } catch (const Error& error) {
        const ErrorInfo& info = error.info();
        refuse({info.code, info.where, info.expected, info.found});
      } catch (const std::bad_alloc&) {
        refuse(
            {"E_VIDEO_MEMORY", "", "a video that fits the memory of its process", "a larger one"});
      }
    }
  }

 private:
  static void refuse(const std::vector<std::string>& texts) {
    const std::string text = wire::join_texts(texts);
    send(Kind::kError, 0, 0, text.data(), text.size());
  }

  void answer(const vw::Message& request) {
    switch (request.kind) {
      case Kind::kOpen:
        return open();
      case Kind::kNext:
        return give(reader().next());
      case Kind::kFrameAt:
        return give(reader().frame_at(static_cast<std::int64_t>(request.a)));
      case Kind::kScan: {
        const std::vector<std::int64_t> times = reader().scan();
        return send(Kind::kTimes, 0, 0, times.data(), times.size() * sizeof times[0]);
      }
      case Kind::kCreate:
        return create(request.bytes);
      case Kind::kPut: {
        frame_.resize(request.bytes);
        if (!socket::read_all(frame_.data(), frame_.size())) throw Closed{};
        writer().put(frame_, static_cast<std::int64_t>(request.a));
        return send(Kind::kDone);
      }
      case Kind::kFinish:
        writer().finish(static_cast<std::int64_t>(request.a));
        return send(Kind::kDone);
      case Kind::kCodecs: {
        std::uint64_t bits = 0;
        for (const VideoCodec codec : codecs_for(static_cast<VideoContainer>(request.a))) {
          bits |= std::uint64_t{1} << static_cast<unsigned>(codec);
        }
        return send(Kind::kDone, bits);
      }
      default:
        throw Closed{};
    }
  }

  void open() {
    const auto wanted = receive_value<vw::Open>();
    bytes_.emplace(wanted.file_bytes);
    reader_.emplace(*bytes_, VideoLimits{.side = wanted.side,
                                         .pixels = wanted.pixels,
                                         .frames = wanted.frames,
                                         .rate = wanted.rate,
                                         .decoded_pixels = wanted.decoded_pixels});
    const VideoInfo& info = reader_->info();
    const vw::Info fixed = {info.width,    info.height,   info.turned,  info.tick.num,
                            info.tick.den, info.rate.num, info.rate.den};
    std::vector<std::string> texts = info.notes;
    texts.insert(texts.begin(), {info.container, info.codec});
    std::string payload(sizeof fixed, '\0');
    std::memcpy(payload.data(), &fixed, sizeof fixed);
    payload += wire::join_texts(texts);
    send(Kind::kInfo, 0, 0, payload.data(), payload.size());
  }

  static void give(const std::optional<VideoFrame>& frame) {
    if (!frame) return send(Kind::kEnd);
    send(Kind::kFrame, low_bits<std::uint64_t>(frame->ticks),
         narrow<std::uint64_t>(frame->width) << 32 | narrow<std::uint64_t>(frame->height),
         frame->rgb.data(), frame->rgb.size());
  }

  void create(std::uint64_t bytes) {
    const auto wanted = receive_value<vw::Create>();
    std::string comment(bytes - sizeof wanted, '\0');
    if (!socket::read_all(comment.data(), comment.size())) throw Closed{};
    writer_.emplace(sink_, VideoFormat{.container = static_cast<VideoContainer>(wanted.container),
                                       .codec = static_cast<VideoCodec>(wanted.codec),
                                       .width = wanted.width,
                                       .height = wanted.height,
                                       .tick = {wanted.tick_num, wanted.tick_den},
                                       .quality = narrow<int>(wanted.quality),
                                       .comment = std::move(comment)});
    send(Kind::kDone, static_cast<std::uint64_t>(writer_->codec()));
  }

  VideoReader& reader() {
    if (!reader_) throw Closed{};
    return *reader_;
  }
  VideoWriter& writer() {
    if (!writer_) throw Closed{};
    return *writer_;
  }

  std::optional<BytesByWire> bytes_;
  std::optional<VideoReader> reader_;
  SinkByWire sink_;
  std::optional<VideoWriter> writer_;
  std::vector<std::uint8_t> frame_;
};

}  // namespace

int serve_video(const SandboxLimits& limits) {
  settle_video_codecs(kMaxAllocation);
  try {
    send(Kind::kHello, enter_sandbox(limits));
    Service().run();
  } catch (const Closed&) {
  }
  return 0;
}

}  // namespace tessera
