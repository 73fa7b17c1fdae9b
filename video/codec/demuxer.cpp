// FFmpeg's demuxers leave out what they cannot read and go on: their complaints, the length that a
// file says it has and the tables of mp4 tell what was lost.
#include "video/codec/demuxer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/core/index.h"
#include "video/codec/video_ends.h"
#include "video/codec/video_reader.h"

namespace tessera {

using ffmpeg::fail;
using ffmpeg::words_of;

namespace {

constexpr int kMaxStreams = 64;

// Nothing but the file itself is ever opened.
int refuse_open(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EPERM);
}

const char* demuxer_of(std::string_view container) {
  return container == "mp4" ? "mov" : container == "avi" ? "avi" : "matroska";
}

// What decoders that look for missing facts of the streams may allocate: one set of options a
// stream, as avformat_find_stream_info() takes them.
class ProbeOptions {
 public:
  ProbeOptions(unsigned streams, std::uint64_t pixels) : sets_(streams, nullptr) {
    for (AVDictionary*& set : sets_) {
      av_dict_set_int(&set, "max_pixels", to_index(pixels), 0);
      av_dict_set_int(&set, "threads", 1, 0);
    }
  }
  ~ProbeOptions() {
    for (AVDictionary*& set : sets_) av_dict_free(&set);
  }
  ProbeOptions(const ProbeOptions&) = delete;
  ProbeOptions& operator=(const ProbeOptions&) = delete;
  AVDictionary** data() { return sets_.data(); }

 private:
  std::vector<AVDictionary*> sets_;
};

bool is_cover(const AVStream& stream) {
  return (stream.disposition & AV_DISPOSITION_ATTACHED_PIC) != 0;
}

}  // namespace

Demuxer::Demuxer(FileBytes& bytes, const VideoLimits& limits) : bytes_(bytes), limits_(limits) {
  std::uint8_t magic[16] = {};
  const std::size_t got = bytes_.read(0, magic, sizeof magic);
  if (got == 0) fail("E_VIDEO_FILE", "", "a video", "an empty file");
  container_ = sniff_video({magic, got});
  if (container_.empty()) {
    fail("E_VIDEO_FORMAT", "", "mp4, mov, matroska, webm or avi", "another kind of file");
  }
  restart();
}

void Demuxer::restart() {
  stream_ = nullptr;
  input_.reset();
  io_.emplace(bytes_);
  open();
  find_stream();
  complained_ = false;
  missing_from_ = INT64_MAX;
}

void Demuxer::open() {
  AVFormatContext* context = avformat_alloc_context();
  if (context == nullptr) throw std::bad_alloc();
  context->pb = io_->context();
  context->flags |= AVFMT_FLAG_CUSTOM_IO;
  context->max_streams = kMaxStreams;
  context->io_open = &refuse_open;
  context->opaque = &complained_;
  const int opened =
      avformat_open_input(&context, nullptr, av_find_input_format(demuxer_of(container_)), nullptr);
  if (opened >= 0) input_.reset(context);  // it is gone else
  io_->rethrow();
  if (opened < 0) {
    fail("E_VIDEO_FORMAT", "", "a " + container_ + " file that can be opened", words_of(opened));
  }
}

void Demuxer::check_sizes(std::int64_t width, std::int64_t height) const {
  const auto side = to_index(limits_.side);
  const bool fits = width > 0 && height > 0 && width <= side && height <= side &&
                    low_bits<std::uint64_t>(width * height) <= limits_.pixels;
  if (fits) return;
  fail("E_VIDEO_SIZE", place(),
       "sides of 1 to " + std::to_string(side) + " and at most " + std::to_string(limits_.pixels) +
           " pixels",
       std::to_string(width) + "x" + std::to_string(height));
}

void Demuxer::find_stream() {
  choose_stream();
  // Before anything decodes a frame to learn what the container does not say.
  if (stream_ != nullptr && (stream_->codecpar->width != 0 || stream_->codecpar->height != 0)) {
    check_sizes(stream_->codecpar->width, stream_->codecpar->height);
  }
  ProbeOptions options(input_->nb_streams, limits_.pixels);
  const int found = avformat_find_stream_info(input_.get(), options.data());
  io_->rethrow();
  if (found < 0) fail("E_VIDEO_FORMAT", "", "streams that can be read", words_of(found));
  choose_stream();
  if (stream_ == nullptr) {
    unsigned sounds = 0, covers = 0;
    for (unsigned i = 0; i < input_->nb_streams; ++i) {
      sounds += input_->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_AUDIO ? 1u : 0u;
      covers += is_cover(*input_->streams[i]) ? 1u : 0u;
    }
    fail("E_VIDEO_STREAM", "", "a video stream",
         std::to_string(sounds) + " of sound, " + std::to_string(covers) + " cover images");
  }
  if (stream_->time_base.num <= 0 || stream_->time_base.den <= 0) {
    fail("E_VIDEO_TIME", place(), "a unit of time", "none");
  }
  // A size that nobody knows because there is no whole frame to look at.
  if (stream_->codecpar->width <= 0 || stream_->codecpar->height <= 0) check_whole();
  check_rate();
}

// The first stream of images that is no cover; the others are not read.
void Demuxer::choose_stream() {
  stream_ = nullptr;
  for (unsigned i = 0; i < input_->nb_streams; ++i) {
    AVStream* candidate = input_->streams[i];
    candidate->discard = AVDISCARD_ALL;
    const bool images = candidate->codecpar->codec_type == AVMEDIA_TYPE_VIDEO;
    if (images && !is_cover(*candidate) && stream_ == nullptr) stream_ = candidate;
  }
  if (stream_ != nullptr) stream_->discard = AVDISCARD_DEFAULT;
}

void Demuxer::check_rate() const {
  const AVRational rate = stream_->avg_frame_rate;
  if (rate.num <= 0 || rate.den <= 0 || av_q2d(rate) <= limits_.rate) return;
  fail("E_VIDEO_RATE", place(),
       "at most " + std::to_string(static_cast<std::int64_t>(limits_.rate)) + " frames a second",
       std::to_string(rate.num) + "/" + std::to_string(rate.den));
}

bool Demuxer::read(AVPacket& packet) {
  const AVCodecDescriptor* codec = avcodec_descriptor_get(stream_->codecpar->codec_id);
  const bool reorders = codec == nullptr || (codec->props & AV_CODEC_PROP_REORDER) != 0;
  while (true) {
    av_packet_unref(&packet);
    missing_from_ = reorders ? INT64_MIN : INT64_MAX;
    const int got = av_read_frame(input_.get(), &packet);
    io_->rethrow();
    if (got == AVERROR_EOF) {
      check_whole();
      missing_from_ = INT64_MAX;
    }
    if (complained_) {
      fail("E_VIDEO_DATA", place(), "a whole container", "parts that cannot be read");
    }
    if (got == AVERROR_EOF) return false;
    if (got < 0) fail("E_VIDEO_CUT", place(), "the rest of the video", words_of(got));
    if (packet.stream_index != stream_->index) continue;
    if ((packet.flags & AV_PKT_FLAG_CORRUPT) != 0) {
      if (packet.pts != AV_NOPTS_VALUE) missing_from_ = packet.pts;
      fail("E_VIDEO_CUT", place(), "a whole packet", "the end of the file in it");
    }
    if (packet.size > 0) return true;
  }
}

void Demuxer::check_whole() {
  if (container_ == "mp4") check_index();
  const std::uint64_t end = claimed_end(container_, bytes_);
  if (end <= bytes_.size()) return;
  fail("E_VIDEO_CUT", place(), std::to_string(end) + " bytes", std::to_string(bytes_.size()));
}

// mp4's tables say where each packet is; the demuxer ends quietly before one that is not there.
void Demuxer::check_index() {
  std::uint64_t end = 0;
  std::int64_t first = INT64_MAX;
  const int count = avformat_index_get_entries_count(stream_);
  for (int i = 0; i < count; ++i) {
    const AVIndexEntry& entry = *avformat_index_get_entry(stream_, i);
    if (entry.pos < 0 || entry.size <= 0) continue;
    const std::uint64_t after =
        low_bits<std::uint64_t>(entry.pos) + low_bits<std::uint64_t>(entry.size);
    if (after <= bytes_.size()) continue;
    end = std::max(end, after);
    first = std::min(first, entry.timestamp);
  }
  if (end == 0) return;
  missing_from_ = first;  // the time of decoding, never after that of showing
  fail("E_VIDEO_CUT", place(), "at least " + std::to_string(end) + " bytes",
       std::to_string(bytes_.size()));
}

bool Demuxer::seek(std::int64_t time) {
  const int done = av_seek_frame(input_.get(), stream_->index, time, AVSEEK_FLAG_BACKWARD);
  io_->rethrow();
  complained_ = false;
  return done >= 0;
}

}  // namespace tessera
