#include "tests/support/packets.h"

#include <memory>
#include <stdexcept>

#include "video/codec/bytes_io.h"

namespace tessera {

namespace {

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

void drain(AVCodecContext& codec, AVPacket& packet, StoredVideo& video) {
  while (avcodec_receive_packet(&codec, &packet) == 0) {
    video.packets.push_back({{packet.data, packet.data + packet.size},
                            packet.pts,
                            packet.dts,
                            (packet.flags & AV_PKT_FLAG_KEY) != 0,
                            0});
    av_packet_unref(&packet);
  }
}

int write_memory(void* self, std::uint8_t* data, int count) {
  auto& [file, at] = *static_cast<std::pair<MemoryFile, std::uint64_t>*>(self);
  file.write(at, data, static_cast<std::size_t>(count));
  at += static_cast<std::uint64_t>(count);
  return count;
}

std::int64_t seek_memory(void* self, std::int64_t offset, int whence) {
  auto& [file, at] = *static_cast<std::pair<MemoryFile, std::uint64_t>*>(self);
  if (whence == AVSEEK_SIZE) return static_cast<std::int64_t>(file.bytes.size());
  if (whence == SEEK_CUR) offset += static_cast<std::int64_t>(at);
  if (whence == SEEK_END) offset += static_cast<std::int64_t>(file.bytes.size());
  at = static_cast<std::uint64_t>(offset);
  return offset;
}

std::uint32_t number_at(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  return std::uint32_t{bytes[at]} << 24 | std::uint32_t{bytes[at + 1]} << 16 |
         std::uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

}  // namespace

StoredVideo encoded(const char* encoder, std::int64_t width, std::int64_t height,
                   std::span<const std::int64_t> ticks, const Options& options) {
  ffmpeg::listen();  // the encoders tell their settings otherwise
  const AVCodec* found = avcodec_find_encoder_by_name(encoder);
  check(found != nullptr, encoder);
  ffmpeg::Codec codec(avcodec_alloc_context3(found));
  ffmpeg::Frame frame(av_frame_alloc());
  ffmpeg::Packet packet(av_packet_alloc());
  codec->width = frame->width = static_cast<int>(width);
  codec->height = frame->height = static_cast<int>(height);
  codec->pix_fmt = AV_PIX_FMT_YUV420P;
  frame->format = AV_PIX_FMT_YUV420P;
  codec->time_base = {1, 25};
  codec->framerate = {25, 1};
  codec->thread_count = 1;
  codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  AVDictionary* set = nullptr;
  for (const auto& [name, value] : options) av_dict_set(&set, name.c_str(), value.c_str(), 0);
  const int opened = avcodec_open2(codec.get(), found, &set);
  av_dict_free(&set);
  check(opened >= 0 && av_frame_get_buffer(frame.get(), 0) >= 0, "an encoder");
  StoredVideo video;
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    check(av_frame_make_writable(frame.get()) >= 0, "a frame");
    const auto rgb = drawn_frame(width, height, static_cast<int>(i));
    for (int plane = 0; plane < 3; ++plane) {  // not a conversion: three different images
      const int half = plane == 0 ? 1 : 2;
      for (std::int64_t y = 0; y < height / half; ++y) {
        for (std::int64_t x = 0; x < width / half; ++x) {
          frame->data[plane][y * frame->linesize[plane] + x] =
              rgb[static_cast<std::size_t>((y * half * width + x * half) * 3 + plane)];
        }
      }
    }
    frame->pts = ticks[i];
    check(avcodec_send_frame(codec.get(), frame.get()) >= 0, "a frame that is taken");
    drain(*codec, *packet, video);
  }
  avcodec_send_frame(codec.get(), nullptr);
  drain(*codec, *packet, video);
  video.parameters.reset(avcodec_parameters_alloc(),
                        [](AVCodecParameters* old) { avcodec_parameters_free(&old); });
  avcodec_parameters_from_context(video.parameters.get(), codec.get());
  return video;
}

StoredVideo silence() {
  StoredVideo video;
  video.parameters.reset(avcodec_parameters_alloc(),
                        [](AVCodecParameters* old) { avcodec_parameters_free(&old); });
  video.parameters->codec_type = AVMEDIA_TYPE_AUDIO;
  video.parameters->codec_id = AV_CODEC_ID_PCM_S16LE;
  video.parameters->format = AV_SAMPLE_FMT_S16;
  video.parameters->sample_rate = 8000;
  av_channel_layout_default(&video.parameters->ch_layout, 1);
  video.parameters->bits_per_coded_sample = 16;
  video.parameters->block_align = 2;
  video.packets.push_back({std::vector<std::uint8_t>(16000), 0, 0, true, 0});
  return video;
}

MemoryFile muxed(const StoredVideo& video, const char* container,
                 const std::function<void(AVStream&)>& prepare) {
  std::pair<MemoryFile, std::uint64_t> to;
  AVFormatContext* context = nullptr;
  check(avformat_alloc_output_context2(&context, nullptr, container, nullptr) >= 0, container);
  ffmpeg::Output output(context);
  ffmpeg::Io io(avio_alloc_context(static_cast<unsigned char*>(av_malloc(4096)), 4096, 1, &to,
                                   nullptr, &write_memory, &seek_memory));
  output->pb = io.get();
  output->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
  output->avoid_negative_ts = 0;
  AVStream* stream = avformat_new_stream(output.get(), nullptr);
  avcodec_parameters_copy(stream->codecpar, video.parameters.get());
  stream->time_base = video.tick;
  stream->avg_frame_rate = {25, 1};
  if (prepare) prepare(*stream);
  check(avformat_write_header(output.get(), nullptr) >= 0, "a container that takes the stream");
  ffmpeg::Packet packet(av_packet_alloc());
  for (const StoredPacket& stored : video.packets) {
    check(av_new_packet(packet.get(), static_cast<int>(stored.data.size())) >= 0, "a packet");
    std::copy(stored.data.begin(), stored.data.end(), packet->data);
    packet->pts = stored.pts;
    packet->dts = stored.dts;
    packet->duration = 1;
    packet->flags = stored.key ? AV_PKT_FLAG_KEY : 0;
    av_packet_rescale_ts(packet.get(), video.tick, stream->time_base);
    check(av_write_frame(output.get(), packet.get()) >= 0, "a packet that is written");
    av_packet_unref(packet.get());
  }
  check(av_write_trailer(output.get()) >= 0, "an end");
  return std::move(to.first);
}

StoredVideo demuxed(MemoryFile& file) {
  BytesIo io(file);
  AVFormatContext* context = avformat_alloc_context();
  context->pb = io.context();
  context->flags |= AVFMT_FLAG_CUSTOM_IO;
  check(avformat_open_input(&context, nullptr, nullptr, nullptr) >= 0, "a file to open");
  ffmpeg::Input input(context);
  check(avformat_find_stream_info(input.get(), nullptr) >= 0, "streams");
  StoredVideo video;
  video.tick = input->streams[0]->time_base;
  video.parameters.reset(avcodec_parameters_alloc(),
                        [](AVCodecParameters* old) { avcodec_parameters_free(&old); });
  avcodec_parameters_copy(video.parameters.get(), input->streams[0]->codecpar);
  ffmpeg::Packet packet(av_packet_alloc());
  while (av_read_frame(input.get(), packet.get()) == 0) {
    video.packets.push_back({{packet->data, packet->data + packet->size},
                            packet->pts,
                            packet->dts,
                            (packet->flags & AV_PKT_FLAG_KEY) != 0,
                            static_cast<std::uint64_t>(packet->pos)});
    av_packet_unref(packet.get());
  }
  return video;
}

MemoryFile tables_first(const MemoryFile& file) {
  const std::vector<std::uint8_t>& from = file.bytes;
  std::vector<std::uint8_t> head, tables, rest;
  for (std::size_t at = 0; at < from.size();) {
    const std::size_t size = number_at(from, at);
    check(size >= 8 && size <= from.size() - at, "boxes");
    const std::string kind(from.begin() + static_cast<std::ptrdiff_t>(at + 4),
                           from.begin() + static_cast<std::ptrdiff_t>(at + 8));
    auto& to = kind == "ftyp" ? head : kind == "moov" ? tables : rest;
    to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(at),
              from.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
  }
  const std::string name = "stco";
  const auto stco = std::search(tables.begin(), tables.end(), name.begin(), name.end());
  check(stco != tables.end(), "a table of places");
  const auto at = static_cast<std::size_t>(stco - tables.begin());
  for (std::uint32_t i = 0; i < number_at(tables, at + 8); ++i) {
    const std::size_t entry = at + 12 + 4 * i;
    const auto moved = static_cast<std::uint32_t>(number_at(tables, entry) + tables.size());
    for (std::size_t byte = 0; byte < 4; ++byte) {
      tables[entry + byte] = static_cast<std::uint8_t>(moved >> (24 - 8 * byte));
    }
  }
  MemoryFile out;
  out.bytes = head;
  out.bytes.insert(out.bytes.end(), tables.begin(), tables.end());
  out.bytes.insert(out.bytes.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace tessera
