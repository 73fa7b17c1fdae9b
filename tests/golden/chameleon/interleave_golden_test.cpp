// An answer of text, image and text by the reference's tokens
// (assets/recipes/fixtures_chameleon.py), and what ends one early.
#include <gtest/gtest.h>

#include "apps/runtime/interleave_task.h"
#include "engine/core/error.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/golden/chameleon/chameleon_folder.h"

namespace tessera::interleave_golden_test {
namespace {

struct Heard final : InterleaveListener {
  Flow on_pass() override { return ++passes == stop_at ? Flow::kStop : Flow::kContinue; }
  void on_text(std::string_view more) override { text += more; }
  void on_image(Image&& image, std::span<const std::int32_t> codes) override {
    text += "[" + std::to_string(image.width) + "x" + std::to_string(image.height) + "]";
    images.emplace_back(codes.begin(), codes.end());
  }
  std::string text;
  std::vector<std::vector<std::int32_t>> images;
  std::int64_t passes = 0, stop_at = -1;
};

class InterleaveGolden : public ::testing::Test {
 protected:
  InterleaveGolden() : recorded_("plain") {
    write_chameleon(folder_, "plain", chameleon_config("plain"));
  }

  InterleaveOptions options() const {
    InterleaveOptions out;
    out.model = folder_.path().string();
    out.device = "cpu";
    out.threads = 1;
    out.storage = DType::kF32;
    out.max_tokens = 24;
    out.max_images = 1;
    return out;
  }
  InterleaveRequest request() const {
    InterleaveRequest out;
    for (const std::int32_t c : recorded_.ints("mixed.question"))
      out.prompt += static_cast<char>(c);
    out.sampling.set(setting::kTemperature, 0.0);
    return out;
  }
  Interleaved run(const InterleaveOptions& given, Heard& heard) const {
    InterleaveTask task(given);
    return task.run(request(), heard);
  }

  TempFolder folder_;
  ChameleonRecord recorded_;
};

TEST_F(InterleaveGolden, TextImageAndTextAreThoseOfTheReference) {
  Heard heard;
  const Interleaved answer = run(options(), heard);
  EXPECT_EQ(answer.ids, recorded_.ints("mixed.ids"));
  ASSERT_EQ(heard.images.size(), 1u);
  EXPECT_EQ(heard.images[0], recorded_.ints("mixed.codes"));
  EXPECT_EQ(answer.images, 1);
  EXPECT_FALSE(answer.stopped);
  const std::size_t image = heard.text.find("[10x10]");
  ASSERT_NE(image, std::string::npos);
  std::string spoken = heard.text;
  spoken.erase(image, 7);
  EXPECT_EQ(spoken, answer.text);
}

TEST_F(InterleaveGolden, LimitsAndListenersEndAnAnswer) {
  const std::vector<std::int32_t> whole = recorded_.ints("mixed.ids");
  InterleaveOptions few = options();
  few.max_tokens = 3;
  Heard heard;
  const Interleaved cut = run(few, heard);
  EXPECT_TRUE(cut.cut_short);
  EXPECT_EQ(cut.ids, std::vector<std::int32_t>(whole.begin(), whole.begin() + 3));
  InterleaveOptions none = options();
  none.max_images = 0;
  Heard quiet;
  EXPECT_EQ(run(none, quiet).images, 0);
  EXPECT_TRUE(quiet.images.empty());
  Heard early;
  early.stop_at = 10;  // within the image
  const Interleaved stopped = run(options(), early);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_TRUE(early.images.empty());
}

TEST_F(InterleaveGolden, WhatIsDrawnDependsOnTheSeedAlone) {
  InterleaveTask task(options());
  InterleaveRequest drawn = request();
  drawn.sampling.set(setting::kTemperature, 1.0);
  std::vector<std::vector<std::int32_t>> ids;
  for (const std::uint64_t seed : {1u, 2u, 1u}) {
    drawn.seed = seed;
    Heard heard;
    ids.push_back(task.run(drawn, heard).ids);
  }
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_NE(ids[0], ids[1]);
}

TEST(Interleave, AModelOfImagesAloneIsRefused) {
  InterleaveOptions options;
  options.model = "tabletop-janus";
  try {
    InterleaveTask task(options);
    FAIL() << "it writes no texts and images in turn";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_INTERLEAVE");
  }
}

}  // namespace
}  // namespace tessera::interleave_golden_test
