// Videos that say how they are turned: all eight ways an image can lie, by their pixels.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/support/video_file.h"
#include "video/codec/upright.h"

namespace tessera::video_turn_test {
namespace {

struct Way {
  int a, b, c, d;
};
constexpr std::array<Way, 8> kWays = {{{1, 0, 0, 1},
                                       {0, 1, -1, 0},
                                       {-1, 0, 0, -1},
                                       {0, -1, 1, 0},
                                       {-1, 0, 0, 1},
                                       {0, 1, 1, 0},
                                       {1, 0, 0, -1},
                                       {0, -1, -1, 0}}};

// The matrix of the track in a written mp4.
MemoryFile laid(MemoryFile file, const Way& way) {
  const std::string name = "tkhd";
  const auto found = std::search(file.bytes.begin(), file.bytes.end(), name.begin(), name.end());
  EXPECT_NE(found, file.bytes.end());
  const auto matrix = static_cast<std::size_t>(found - file.bytes.begin()) + 44;
  const std::array<std::pair<std::size_t, int>, 4> cells = {
      {{0, way.a}, {4, way.b}, {12, way.c}, {16, way.d}}};
  for (const auto& [at, value] : cells) {
    const auto number = static_cast<std::uint32_t>(value * 65536);
    for (std::size_t i = 0; i < 4; ++i) {
      file.bytes[matrix + at + i] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
    }
  }
  return file;
}

// What the matrix says, place by place: (x, y) goes to (a x + c y, b x + d y).
VideoFrame placed(const VideoFrame& stored, const Way& way) {
  const bool lying = way.a == 0;
  VideoFrame out{stored.ticks, lying ? stored.height : stored.width,
                 lying ? stored.width : stored.height,
                 std::vector<std::uint8_t>(stored.rgb.size())};
  for (std::int64_t y = 0; y < stored.height; ++y) {
    for (std::int64_t x = 0; x < stored.width; ++x) {
      std::int64_t to_x = way.a * x + way.c * y, to_y = way.b * x + way.d * y;
      if (way.a + way.c < 0) to_x += out.width - 1;
      if (way.b + way.d < 0) to_y += out.height - 1;
      for (std::int64_t channel = 0; channel < 3; ++channel) {
        out.rgb[static_cast<std::size_t>((to_y * out.width + to_x) * 3 + channel)] =
            stored.rgb[static_cast<std::size_t>((y * stored.width + x) * 3 + channel)];
      }
    }
  }
  return out;
}

TEST(VideoTurn, EveryWayToLieComesOutUpright) {
  const VideoFormat format{
      .container = VideoContainer::kMp4, .width = 64, .height = 48, .tick = {1, 25}};
  const std::vector<std::int64_t> ticks = {0, 1, 2};
  MemoryFile plain = written_video(format, ticks, 3);
  const VideoFrame stored = *VideoReader(plain, {}).next();
  for (const Way& way : kWays) {
    const std::string name = std::to_string(way.a) + " " + std::to_string(way.b) + " " +
                             std::to_string(way.c) + " " + std::to_string(way.d);
    MemoryFile file = laid(plain, way);
    VideoReader reader(file, {});
    const auto frame = reader.next();
    ASSERT_TRUE(frame) << name;
    const VideoFrame wanted = placed(stored, way);
    EXPECT_EQ(frame->width, wanted.width) << name;
    EXPECT_EQ(reader.info().width, wanted.width) << name;
    EXPECT_EQ(reader.info().height, wanted.height) << name;
    EXPECT_TRUE(frame->rgb == wanted.rgb) << name;
    EXPECT_TRUE(reader.info().notes.empty()) << name;
  }
}

TEST(VideoTurn, AMatrixOfNoRightAngleIsNoted) {
  for (const std::array<std::int32_t, 4>& cells :
       {std::array{46341, 46341, -46341, 46341}, std::array{0, 0, 0, 0},
        std::array{65536, 0, 65536, 65536}, std::array{65536, 65536, 0, 0}}) {
    const std::array<std::int32_t, 9> matrix = {cells[0], cells[1], 0, cells[2], cells[3],
                                                0,        0,        0, 1 << 30};
    std::vector<std::string> notes;
    const Turn turn = turn_of(matrix.data(), notes);
    EXPECT_EQ(turn.quarters, 0);
    EXPECT_FALSE(turn.mirrored);
    EXPECT_EQ(notes.size(), 1u);
  }
}

}  // namespace
}  // namespace tessera::video_turn_test
