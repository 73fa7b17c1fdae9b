#include "apps/captions/subtitles.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::subtitles_test {
namespace {

TEST(Subtitles, NumbersTimesAndTexts) {
  const std::vector<TimedCaption> cues = {{0, 2.0004, "a red cube"},
                                          {2.0004, 61.9996, "zwei Würfel, 二つ"},
                                          {3725.5, 3726, "an hour later"}};
  EXPECT_EQ(subtitles(cues),
            "1\n00:00:00,000 --> 00:00:02,000\na red cube\n\n"
            "2\n00:00:02,000 --> 00:01:02,000\nzwei Würfel, 二つ\n\n"
            "3\n01:02:05,500 --> 01:02:06,000\nan hour later\n\n");
}

// What would end a cue or begin another cannot come out of a text.
TEST(Subtitles, ATextStaysInItsCue) {
  const std::vector<TimedCaption> cues = {{0, 1, "one\n\n2\n00:00:09,000 --> 00:00:10,000\nforged"},
                                          {1, 2, "--->"},
                                          {2, 3, "\x1b[31mred\xff"}};
  const std::string text = subtitles(cues);
  EXPECT_EQ(text,
            "1\n00:00:00,000 --> 00:00:01,000\none  2 00:00:09,000 -> 00:00:10,000 forged\n\n"
            "2\n00:00:01,000 --> 00:00:02,000\n->\n\n"
            "3\n00:00:02,000 --> 00:00:03,000\n[31mred\xef\xbf\xbd\n\n");
}

TEST(Subtitles, NothingToSayIsNoCueAndNoCueIsEmpty) {
  const std::vector<TimedCaption> cues = {{0, 1, " "}, {1, 1, "short"}, {-1, 0.5, "early"}};
  EXPECT_EQ(subtitles(cues),
            "1\n00:00:01,000 --> 00:00:01,001\nshort\n\n"
            "2\n00:00:00,000 --> 00:00:00,500\nearly\n\n");
  EXPECT_EQ(subtitles({}), "");
}

TEST(Subtitles, ClockTimes) {
  EXPECT_EQ(clock_time(0), "0:00.000");
  EXPECT_EQ(clock_time(62.0625), "1:02.063");
  EXPECT_EQ(clock_time(3600 + 59.9999), "1:01:00.000");
}

TEST(Subtitles, EndingsOfVideos) {
  for (const char* ending : {"mp4", "MOV", "webm", "mkv", "avi", "M4v"}) {
    EXPECT_TRUE(is_video_extension(ending)) << ending;
  }
  for (const char* ending : {"", "png", "gif", "txt", "mp", "mp44", "srt"}) {
    EXPECT_FALSE(is_video_extension(ending)) << ending;
  }
}

}  // namespace
}  // namespace tessera::subtitles_test
