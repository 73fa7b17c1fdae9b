// Rough colours of codes: what is learned from images, what files hold, and how near the bundled
// model's come to the images that it generates.
#include "apps/runtime/code_patches.h"

#include <gtest/gtest.h>

#include <cmath>

#include "apps/runtime/generate_task.h"
#include "tests/support/safetensors_builder.h"
#include "tests/support/temp_folder.h"

namespace tessera::code_patches_test {
namespace {

double psnr(const Image& a, const Image& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) {
    const double off = static_cast<double>(a.rgb[i]) - static_cast<double>(b.rgb[i]);
    sum += off * off;
  }
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / sum);
}

// Places of 2 x 2 pixels; each code's colours are known by hand.
TEST(CodePatches, AreTheMeanOfWhatWasSeen) {
  CodePatches patches(4, 2);
  EXPECT_FALSE(patches.knows(0));
  Image image(4, 2);  // two places: codes 1 and 3
  for (std::size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<std::uint8_t>(i);
  const std::int32_t first[] = {1, 3};
  patches.learn(first, 1, 2, image);
  EXPECT_EQ(patches.draw(first, 1, 2).rgb, image.rgb);

  Image other = image;
  for (std::uint8_t& value : other.rgb) value = static_cast<std::uint8_t>(value + 10);
  patches.learn(first, 1, 2, other);
  const Image mean = patches.draw(first, 1, 2);
  for (std::size_t i = 0; i < mean.rgb.size(); ++i) EXPECT_EQ(mean.rgb[i], image.rgb[i] + 5);

  EXPECT_TRUE(patches.knows(1));
  EXPECT_FALSE(patches.knows(2));
  EXPECT_FALSE(patches.knows(kNoCode));
  const std::int32_t mixed[] = {1, 2, kNoCode, 3};
  EXPECT_DOUBLE_EQ(patches.known_share(mixed), 2.0 / 3);
  const std::int32_t none[] = {kNoCode, kNoCode, kNoCode, kNoCode};
  EXPECT_DOUBLE_EQ(patches.known_share(none), 0);
}

TEST(CodePatches, WhatIsUnknownHasTheMeanColourOfTheRest) {
  CodePatches patches(2, 4);
  const std::int32_t one[] = {0};
  patches.learn(one, 1, 1, Image(4, 4, std::vector<std::uint8_t>(48, 90)));
  const std::int32_t codes[] = {0, kNoCode, 1, 0};
  EXPECT_EQ(patches.draw(codes, 2, 2).rgb, std::vector<std::uint8_t>(192, 90));
}

// Large places are drawn in 4 x 4 colours, each the mean of its block.
TEST(CodePatches, LargePlacesAreCoarse) {
  CodePatches patches(1, 8);
  Image image(8, 8);
  for (std::int64_t y = 0; y < 8; ++y) {
    for (std::int64_t x = 0; x < 8; ++x) image.at(x, y)[0] = static_cast<std::uint8_t>(x % 2 * 100);
  }
  const std::int32_t codes[] = {0};
  patches.learn(codes, 1, 1, image);
  const Image drawn = patches.draw(codes, 1, 1);
  ASSERT_EQ(drawn.width, 8);
  for (std::int64_t x = 0; x < 8; ++x) EXPECT_EQ(drawn.at(x, 3)[0], 50);
}

TEST(CodePatches, FilesOfAnotherShapeAreRefused) {
  TempFolder folder;
  EXPECT_FALSE(CodePatches::load(folder.path(), 2, 2).has_value());
  const auto write = [&](std::int64_t codes) {
    const std::string bytes = std::to_string(codes * 12);
    const std::string header =
        "{" +
        header_entry("patches", "U8", "[" + std::to_string(codes) + ",2,2,3]",
                     "[0," + bytes + "]") +
        "}";
    put_file(folder / "patches.safetensors",
             safetensors_file(header, static_cast<std::size_t>(codes * 12)));
  };
  write(2);
  const auto patches = CodePatches::load(folder.path(), 2, 2);
  ASSERT_TRUE(patches.has_value());
  EXPECT_TRUE(patches->knows(1));
  write(3);
  EXPECT_THROW((void)CodePatches::load(folder.path(), 2, 2), Error);
}

// What is shown while the bundled model generates is near what it will have generated.
TEST(CodePatches, OfTheBundledModelComeNearItsImages) {
  GenerateOptions options;
  options.threads = 1;
  options.method = decode_method("gumbel");
  Runtime runtime;
  GenerateTask task(runtime, options);
  struct Keep final : GenerateListener {
    void on_image(GeneratedImage&& decoded_image) override { images.push_back(std::move(decoded_image)); }
    std::vector<GeneratedImage> images;
  } keep;
  std::vector<PreparedRequest> requests;
  for (const char* prompt : {"a large red shiny sphere on a gray floor",
                             "a small blue matte cube on a checkered floor"}) {
    requests.push_back(task.prepare({.prompt = prompt, .seed = 1}));
  }
  task.run(requests, keep);
  const StreamModelConfig& model = task.spec().model;
  for (const GeneratedImage& decoded_image : keep.images) {
    const Image drawn =
        task.code_patches().draw(decoded_image.codes, model.grid_rows, model.grid_cols);
    const Image flat = task.code_patches().draw(
        std::vector<std::int32_t>(decoded_image.codes.size(), decoded_image.codes.front()), model.grid_rows,
        model.grid_cols);
    EXPECT_GT(psnr(drawn, decoded_image.image), 18) << decoded_image.facts.prompt;
    EXPECT_GT(psnr(drawn, decoded_image.image), psnr(flat, decoded_image.image) + 5);
  }
}

}  // namespace
}  // namespace tessera::code_patches_test
