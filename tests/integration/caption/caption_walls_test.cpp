// What the program says when strangers' images are read after fewer walls than meant.
#include "tests/integration/caption/caption_program.h"
#include "tests/support/refused_seccomp.h"
#include "vision/image/image_reader.h"

namespace tessera::caption_walls_test {
namespace {

class CaptionWalls : public CaptionTest {
 protected:
  void SetUp() override {
    if (kWholeConfinement == "nothing") GTEST_SKIP() << "sanitizers need the room";
    CaptionTest::SetUp();
  }
  static std::size_t notices(const std::string& err) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = err.find("read under", at)) != std::string::npos; ++at) ++count;
    return count;
  }
};

TEST_F(CaptionWalls, ARefusedWallIsHeardOnce) {
  put_images("in", 5);
  const ProgramResult all = caption({"in", "-o", "whole.jsonl"});
  EXPECT_EQ(notices(all.err), 0u) << all.err;
  without_seccomp([&] {
    const ProgramResult fewer = caption({"in", "-o", "fewer.jsonl"});
    EXPECT_EQ(notices(fewer.err), 1u) << fewer.err;
    EXPECT_NE(fewer.err.find("under limits, not under limits and system calls"),
              std::string::npos)
        << fewer.err;
    const ProgramResult one = caption({"--image", "in/p1.png", "-p", "What is there?"});
    EXPECT_EQ(notices(one.err), 1u) << one.err;
  });
  EXPECT_EQ(texts(content("fewer.jsonl")), texts(content("whole.jsonl")));
}

}  // namespace
}  // namespace tessera::caption_walls_test
