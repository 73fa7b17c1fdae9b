#include "video/frame_sink.h"

#include <utility>

#include "video/frame_writer.h"
#include "video/png_sequence.h"

namespace tessera {

namespace {

class VideoSinkOfFrames final : public FrameSink {
 public:
  explicit VideoSinkOfFrames(FrameWriter writer) : writer_(std::move(writer)) {}
  void put(std::span<const std::uint8_t> rgb, std::int64_t ticks) override {
    writer_.put(rgb, ticks);
  }
  bool finish(std::int64_t end_ticks, Publish publish, Sync sync) override {
    return writer_.finish(end_ticks, publish, sync);
  }
  bool finish_whole_frames(std::int64_t end_ticks, Publish publish, Sync sync) override {
    return writer_.finish_whole_frames(end_ticks, publish, sync);
  }
  std::uint64_t frames() const override { return writer_.frames(); }
  std::string codec() const override { return std::string(name_of(writer_.codec())); }

 private:
  FrameWriter writer_;
};

}  // namespace

bool is_png_sequence(const std::filesystem::path& path) { return sequence_name(path).has_value(); }

std::unique_ptr<FrameSink> open_frame_sink(const std::filesystem::path& path,
                                           const VideoFormat& format,
                                           const VideoProcessOptions& options) {
  if (std::optional<SequenceName> name = sequence_name(path)) {
    return std::make_unique<PngSequence>(path, std::move(*name), format);
  }
  if (path.extension() == ".png") {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_VIDEO_NAME",
                 .file = path.string(),
                 .expected = "one place for the number, as in name-%04d.png",
                 .found = path.filename().string()});
  }
  VideoFormat named = format;
  named.container = container_of(path);
  return std::make_unique<VideoSinkOfFrames>(FrameWriter(path, named, options));
}

}  // namespace tessera
