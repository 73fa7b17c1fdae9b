// Animated WebP and GIF, read by others than their writer: libwebp's demuxer, FFmpeg's decoder, a
// walk over the blocks of a GIF. Comments of the containers that have them.
#include <gtest/gtest.h>
#include <unistd.h>
#include <webp/demux.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <set>
#include <string>

#include "engine/core/io.h"
#include "tests/support/fault_scope.h"
#include "tests/support/video_file.h"
#include "video/codec/bytes_io.h"
#include "video/codec/palette.h"
#include "video/frame_writer.h"
#include "vision/image/image_reader.h"
#include "vision/image/xmp.h"

namespace tessera::animation_test {
namespace {

namespace fs = std::filesystem;

using Pixels = std::vector<std::uint8_t>;

struct Shown {
  Pixels rgb;
  std::int64_t begin = 0;  // in the container's unit
};
struct Film {
  std::vector<Shown> frames;
  std::int64_t end = 0;
};

ErrorInfo error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.info();
  }
  return {};
}

Film shown_webp(const std::vector<std::uint8_t>& bytes) {
  const WebPData data = {bytes.data(), bytes.size()};
  WebPAnimDecoder* decoder = WebPAnimDecoderNew(&data, nullptr);
  Film film;
  if (decoder == nullptr) return film;
  WebPAnimInfo info;
  WebPAnimDecoderGetInfo(decoder, &info);
  EXPECT_EQ(info.loop_count, 0u);
  const std::size_t pixels = std::size_t{info.canvas_width} * info.canvas_height;
  std::uint8_t* rgba = nullptr;
  int end = 0;
  while (WebPAnimDecoderHasMoreFrames(decoder) != 0) {
    if (WebPAnimDecoderGetNext(decoder, &rgba, &end) == 0) break;
    Shown shown{Pixels(pixels * 3), film.end};
    for (std::size_t i = 0; i < pixels; ++i) {
      std::copy_n(rgba + i * 4, 3, shown.rgb.begin() + static_cast<std::ptrdiff_t>(i * 3));
      EXPECT_EQ(rgba[i * 4 + 3], 255);
    }
    film.frames.push_back(std::move(shown));
    film.end = end;
  }
  EXPECT_EQ(film.frames.size(), info.frame_count);
  WebPAnimDecoderDelete(decoder);
  return film;
}

std::string xmp_of_webp(const std::vector<std::uint8_t>& bytes) {
  const WebPData data = {bytes.data(), bytes.size()};
  WebPDemuxer* demuxer = WebPDemux(&data);
  if (demuxer == nullptr) return "no WebP";
  std::string xmp;
  WebPChunkIterator chunk;
  if (WebPDemuxGetChunk(demuxer, "XMP ", 1, &chunk) != 0) {
    xmp.assign(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  WebPDemuxDelete(demuxer);
  return xmp;
}

// Any file of FFmpeg's, opened by what its bytes say.
struct Opened {
  explicit Opened(MemoryFile& file) : io(file) {
    AVFormatContext* context = avformat_alloc_context();
    context->pb = io.context();
    if (avformat_open_input(&context, nullptr, nullptr, nullptr) < 0) return;
    input.reset(context);
  }
  BytesIo io;
  ffmpeg::Input input;
};

Pixels rgb_of(const AVFrame& frame) {
  EXPECT_EQ(frame.format, AV_PIX_FMT_BGRA);
  Pixels rgb;
  for (int y = 0; y < frame.height; ++y) {
    for (int x = 0; x < frame.width; ++x) {
      const std::uint8_t* at = frame.data[0] + y * frame.linesize[0] + x * 4;
      rgb.insert(rgb.end(), {at[2], at[1], at[0]});
      EXPECT_EQ(at[3], 255);
    }
  }
  return rgb;
}

std::vector<Pixels> shown_gif(MemoryFile& file) {
  std::vector<Pixels> out;
  Opened opened(file);
  if (!opened.input) return out;
  ffmpeg::Codec codec(avcodec_alloc_context3(avcodec_find_decoder(AV_CODEC_ID_GIF)));
  ffmpeg::Frame frame(av_frame_alloc());
  ffmpeg::Packet packet(av_packet_alloc());
  EXPECT_EQ(avcodec_open2(codec.get(), nullptr, nullptr), 0);
  while (av_read_frame(opened.input.get(), packet.get()) >= 0) {
    EXPECT_EQ(avcodec_send_packet(codec.get(), packet.get()), 0);
    while (avcodec_receive_frame(codec.get(), frame.get()) == 0) out.push_back(rgb_of(*frame));
    av_packet_unref(packet.get());
  }
  return out;
}

// Hundredths of a second that each image of a GIF stays, from its blocks.
std::vector<int> stays_of_gif(const std::vector<std::uint8_t>& bytes) {
  std::vector<int> stays;
  const auto table = [](std::uint8_t flags) {
    return (flags & 0x80) != 0 ? std::size_t{3} << ((flags & 7) + 1) : 0;
  };
  std::size_t at = 13 + table(bytes.at(10));
  const auto skip_blocks = [&] {
    while (bytes.at(at) != 0) at += bytes.at(at) + std::size_t{1};
    ++at;
  };
  int stay = 0;
  while (bytes.at(at) != 0x3b) {
    if (bytes.at(at) == 0x21) {
      if (bytes.at(at + 1) == 0xf9) stay = bytes.at(at + 4) | bytes.at(at + 5) << 8;
      at += 2;
    } else {
      EXPECT_EQ(bytes.at(at), 0x2c);
      stays.push_back(stay);
      at += 11 + table(bytes.at(at + 9));
    }
    skip_blocks();
  }
  EXPECT_EQ(at + 1, bytes.size());
  return stays;
}

Pixels noise(std::size_t pixels, unsigned seed) {
  std::mt19937 random(seed);
  Pixels rgb(pixels * 3);
  for (auto& byte : rgb) byte = static_cast<std::uint8_t>(random());
  return rgb;
}

double psnr(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return 10.0 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / std::max(sum, 1e-9));
}

VideoFormat format_of(VideoContainer container, std::int64_t width = 37, std::int64_t height = 29,
                     Rational tick = {1, 30}) {
  return {.container = container, .width = width, .height = height, .tick = tick};
}

TEST(AnimatedWebp, EveryPixelAndTimeComesBack) {
  const std::vector<std::int64_t> ticks = {5, 6, 7, 9, 40, 41, 42};  // thirtieths
  const std::vector<std::int64_t> begins = {0, 33, 67, 133, 1167, 1200, 1233};
  const Film film = shown_webp(written_video(format_of(VideoContainer::kWebp), ticks, 44).bytes);
  ASSERT_EQ(film.frames.size(), ticks.size());
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    EXPECT_EQ(film.frames[i].rgb, drawn_frame(37, 29, static_cast<int>(i))) << i;
    EXPECT_EQ(film.frames[i].begin, begins[i]) << i;
  }
  EXPECT_EQ(film.end, 1300);
}

TEST(AnimatedWebp, PartsThatChangeAreEnough) {
  MemoryFile file;
  VideoWriter writer(file, format_of(VideoContainer::kWebp, 64, 48));
  std::vector<Pixels> drawn = {noise(64 * 48, 1)};
  std::mt19937 random(2);
  for (int i = 1; i < 40; ++i) {
    drawn.push_back(drawn.back());
    for (int dot = 0; dot < i % 4; ++dot) drawn.back()[random() % drawn.back().size()] ^= 0x55;
  }
  drawn.push_back(noise(64 * 48, 3));
  for (std::size_t i = 0; i < drawn.size(); ++i) writer.put(drawn[i], static_cast<int>(i));
  writer.finish(41);
  const Film film = shown_webp(file.bytes);
  ASSERT_EQ(film.frames.size(), drawn.size()) << "frames that equal the one before are kept too";
  for (std::size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(film.frames[i].rgb, drawn[i]) << i;
  EXPECT_EQ(film.end, 1367);
  EXPECT_LT(file.bytes.size(), 20u * 64 * 48 * 3) << "half of forty whole frames of noise";
}

TEST(AnimatedWebp, TheCommentIsAnXmpDescription) {
  VideoFormat format = format_of(VideoContainer::kWebp);
  format.comment = "{\"prompt\":\"a <red> \\\"sphere\\\" & more\"}";
  const std::vector<std::int64_t> ticks = {0};
  EXPECT_EQ(description_of(xmp_of_webp(written_video(format, ticks, 1).bytes)), format.comment);
  format.comment.clear();
  EXPECT_EQ(xmp_of_webp(written_video(format, ticks, 1).bytes), "");
}

TEST(AnimatedGif, FewColoursAreKeptAndTimesAreHundredths) {
  const std::vector<std::int64_t> ticks = {5, 6, 7, 9, 40, 41, 42};  // thirtieths
  MemoryFile file = written_video(format_of(VideoContainer::kGif, 16, 16), ticks, 44);
  const std::vector<Pixels> shown = shown_gif(file);
  ASSERT_EQ(shown.size(), ticks.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    EXPECT_EQ(shown[i], drawn_frame(16, 16, static_cast<int>(i))) << i;
  }
  const std::string bytes(file.bytes.begin(), file.bytes.end());
  EXPECT_NE(bytes.find(std::string("NETSCAPE2.0\x03\x01\0\0", 15)), std::string::npos)
      << "shown for ever";
  // Begins at 0, 3.3, 6.7, 13.3, 116.7, 120, 123.3 hundredths; the end is at 130.
  EXPECT_EQ(stays_of_gif(file.bytes), (std::vector<int>{3, 4, 6, 104, 3, 3, 7}));
}

TEST(AnimatedGif, EachFrameHasItsOwnColours) {
  MemoryFile file;
  VideoWriter writer(file, format_of(VideoContainer::kGif, 96, 64, {1, 10}));
  std::vector<Pixels> drawn;
  for (int number = 0; number < 5; ++number) {
    Pixels rgb = drawn_frame(96, 64, number);
    for (std::size_t i = 0; i < rgb.size(); ++i) {
      rgb[i] = static_cast<std::uint8_t>(rgb[i] + 30 * number * static_cast<int>(i % 3));
    }
    drawn.push_back(rgb);
    writer.put(rgb, number);
  }
  writer.put(drawn.back(), 5);
  drawn.push_back(drawn.back());
  writer.finish(6);
  const std::vector<Pixels> shown = shown_gif(file);
  ASSERT_EQ(shown.size(), drawn.size());
  for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_GE(psnr(shown[i], drawn[i]), 33.0) << i;
  EXPECT_EQ(stays_of_gif(file.bytes), std::vector<int>(6, 10));
}

TEST(AnimatedGif, PalettesAreFullAndNearest) {
  const Pixels rgb = noise(20'000, 5);
  Pixels indices(20'000), again(20'000);
  const GifPalette palette = quantize(rgb, indices);
  EXPECT_EQ(quantize(rgb, again).colours, palette.colours);
  EXPECT_EQ(indices, again);
  EXPECT_GT(std::set<std::uint8_t>(indices.begin(), indices.end()).size(), 250u);
  Pixels shown;
  for (const std::uint8_t index : indices) {
    const std::uint32_t colour = palette.colours[index];
    for (const int shift : {16, 8, 0}) shown.push_back(static_cast<std::uint8_t>(colour >> shift));
  }
  EXPECT_GE(psnr(shown, rgb), 22.0);
}

TEST(Animations, TimesThatTheyCannotTellAreRefused) {
  const auto code_of = [](VideoContainer container, Rational tick, std::vector<std::int64_t> ticks) {
    return error_of([&] { written_video(format_of(container, 16, 16, tick), ticks, 1000); }).code;
  };
  EXPECT_EQ(code_of(VideoContainer::kGif, {1, 100}, {0, 1}), "E_VIDEO_TIME");
  EXPECT_EQ(code_of(VideoContainer::kGif, {1, 50}, {0, 1}), "");
  EXPECT_EQ(code_of(VideoContainer::kGif, {1, 50}, {1, 1}), "E_VIDEO_TIME");
  EXPECT_EQ(code_of(VideoContainer::kGif, {1, 1}, {0, 656}), "E_VIDEO_TIME");
  EXPECT_EQ(code_of(VideoContainer::kWebp, {1, 5000}, {0, 1}), "E_VIDEO_TIME");
  EXPECT_EQ(code_of(VideoContainer::kWebp, {1, 1000}, {0, 1}), "");
  EXPECT_EQ(code_of(VideoContainer::kWebp, {1, 1000}, {2, 1}), "E_VIDEO_TIME");
  EXPECT_EQ(code_of(VideoContainer::kWebp, {1, 1}, {0, 16'778}), "E_VIDEO_TIME");
  EXPECT_EQ(code_of(VideoContainer::kWebp, {1, 1}, {0, INT64_MAX}), "E_VIDEO_TIME");
  EXPECT_EQ(code_of(VideoContainer::kWebp, {1, 1}, {INT64_MIN, INT64_MAX}), "E_VIDEO_TIME");
}

TEST(Comments, StandInEveryContainerThatHasThem) {
  const std::string comment = "{\"prompt\":\"a red sphere, <b>bold</b> \xc3\xa9\",\"seed\":7}";
  for (const VideoContainer container :
       {VideoContainer::kMp4, VideoContainer::kWebm, VideoContainer::kMatroska}) {
    VideoFormat format = format_of(container, 32, 32);
    format.comment = comment;
    const std::vector<std::int64_t> ticks = {0, 1};
    MemoryFile file = written_video(format, ticks, 2);
    Opened opened(file);
    ASSERT_TRUE(opened.input);
    const AVDictionaryEntry* entry = av_dict_get(opened.input->metadata, "comment", nullptr, 0);
    ASSERT_NE(entry, nullptr) << name_of(container);
    EXPECT_EQ(std::string(entry->value), comment) << name_of(container);
  }
}

class AnimationFile : public ::testing::TestWithParam<VideoContainer> {
 protected:
  fs::path folder =
      fs::temp_directory_path() / ("tessera-animations-" + std::to_string(::getpid()));
  fs::path path = folder / ("a." + std::string(name_of(GetParam())));
  VideoProcessOptions process{.program = VIDEO_HELPER};

  void SetUp() override {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  std::size_t frames_of_file() const {
    MemoryFile file;
    const std::string text = read_file(path, 1 << 24, ErrorKind::kGeneral);
    file.bytes.assign(text.begin(), text.end());
    return GetParam() == VideoContainer::kWebp ? shown_webp(file.bytes).frames.size()
                                              : shown_gif(file).size();
  }
};

TEST_P(AnimationFile, IsWrittenAfterTheWalls) {
  const VideoAbilities abilities = video_abilities(process);
  EXPECT_EQ(abilities.confinement, kWholeConfinement);
  EXPECT_EQ(abilities.codecs.size(), 5u);
  FrameWriter writer(path, format_of(container_of(path), 320, 240), process);
  EXPECT_EQ(name_of(writer.codec()), name_of(GetParam()));
  MemoryFile same;
  VideoWriter here(same, format_of(GetParam(), 320, 240));
  for (int i = 0; i < 12; ++i) {
    writer.put(drawn_frame(320, 240, i), i);
    here.put(drawn_frame(320, 240, i), i);
  }
  EXPECT_TRUE(writer.finish(12));
  here.finish(12);
  EXPECT_EQ(read_file(path, 1 << 24, ErrorKind::kGeneral),
            std::string(same.bytes.begin(), same.bytes.end()));
  EXPECT_EQ(list_folder(folder).size(), 1u);
}

// Noise has as many colours as pixels, and its encoding sorts and takes much memory; sizes beyond
// one piece of the wire.
TEST_P(AnimationFile, NoiseIsWrittenAfterTheWallsToo) {
  FrameWriter writer(path, format_of(GetParam(), 800, 600), process);
  for (unsigned i = 0; i < 2; ++i) writer.put(noise(800 * 600, i), i);
  EXPECT_TRUE(writer.finish(2));
  EXPECT_EQ(frames_of_file(), 2u);
}

TEST_P(AnimationFile, AFailedFrameKeepsTheNameFree) {
  {
    FrameWriter writer(path, format_of(GetParam()), process);
    for (int i = 0; i < 10; ++i) writer.put(drawn_frame(37, 29, i), i);
    EXPECT_EQ(error_of([&] { writer.put(drawn_frame(37, 29, 10), 3); }).code, "E_VIDEO_TIME");
    EXPECT_EQ(error_of([&] { writer.finish(11); }).code, "E_VIDEO_UNFINISHED");
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(writer.finish_whole_frames(10));
  }
  EXPECT_EQ(frames_of_file(), 10u);
  fs::remove(path);
  FrameWriter empty(path, format_of(GetParam()), process);
  EXPECT_EQ(error_of([&] { empty.finish(1); }).code, "E_VIDEO_EMPTY");
  EXPECT_FALSE(fs::exists(path));
}

TEST_P(AnimationFile, AFullDiskLeavesNothing) {
  const FaultScope full({.op = IoOp::kWrite, .nth = 2, .error = ENOSPC});
  const ErrorInfo error = error_of([&] {
    FrameWriter writer(path, format_of(GetParam(), 320, 240), process);
    for (unsigned i = 0; i < 12; ++i) writer.put(noise(320 * 240, i), i);
    writer.finish(12);
  });
  EXPECT_EQ(error.kind, ErrorKind::kStorage) << format_error(error);
  EXPECT_TRUE(fs::is_empty(folder));
}

INSTANTIATE_TEST_SUITE_P(All, AnimationFile,
                         ::testing::Values(VideoContainer::kWebp, VideoContainer::kGif),
                         [](const ::testing::TestParamInfo<VideoContainer>& tested) {
                           return std::string(name_of(tested.param));
                         });

}  // namespace
}  // namespace tessera::animation_test
