// Two tasks of one folder in one runtime: weights are there once, and each writes what it writes
// alone.
#include <gtest/gtest.h>

#include <memory>

#include "apps/runtime/describe_task.h"
#include "apps/runtime/generate_task.h"
#include "tests/support/janus_folder.h"

namespace tessera::shared_test {
namespace {

const JanusFolder& folder() {
  static const JanusFolder made;
  return made;
}

GenerateOptions generating() {
  GenerateOptions out;
  out.model = folder().path();
  out.device = "cpu";
  out.threads = 1;
  return out;
}

DescribeOptions describing() {
  DescribeOptions out;
  out.model = folder().path();
  out.device = "cpu";
  out.threads = 1;
  out.max_tokens = 8;
  return out;
}

struct Images final : GenerateListener {
  void on_image(GeneratedImage&& image) override { rgb = std::move(image.image.rgb); }
  std::vector<std::uint8_t> rgb;
};

struct Texts final : DescribeListener {
  void on_caption(Caption&& caption) override {
    EXPECT_FALSE(caption.failed) << caption.error.code;
    text = std::move(caption.text);
  }
  std::string text;
};

PreparedRequest request_for(const GenerateTask& task) {
  return task.prepare({.prompt = "a red cube", .seed = 5});
}

DescribeRequest question() {
  auto image = std::make_shared<Image>(32, 32);
  for (std::size_t i = 0; i < image->rgb.size(); ++i) {
    image->rgb[i] = static_cast<std::uint8_t>(i * 7 % 256);
  }
  DescribeRequest out{.id = "x", .prompt = "what?"};
  out.images.push_back({.image = std::move(image), .name = "x"});
  return out;
}

std::vector<std::uint8_t> generate(GenerateTask& task) {
  Images images;
  EXPECT_TRUE(task.run({request_for(task)}, images));
  EXPECT_FALSE(images.rgb.empty());
  return images.rgb;
}

std::string describe(Runtime& runtime, DescribeTask& task) {
  Texts texts;
  runtime.finish(task.submit({question()}, texts));
  return texts.text;
}

struct Alone {
  std::vector<std::uint8_t> image;
  std::string text;
  std::size_t image_bytes = 0, text_bytes = 0;
};

const Alone& alone() {
  static const Alone made = [] {
    Alone out;
    Runtime images, texts;
    GenerateTask generator(images, generating());
    out.image = generate(generator);
    out.image_bytes = images.models().weight_bytes();
    DescribeTask describer(texts, describing());
    out.text = describe(texts, describer);
    out.text_bytes = texts.models().weight_bytes();
    return out;
  }();
  return made;
}

TEST(SharedModels, TwoTasksOfAFolderHoldItsWeightsOnce) {
  for (const bool image_first : {true, false}) {
    Runtime runtime;
    GenerateTask generator(runtime, generating());
    DescribeTask describer(runtime, describing());
    if (image_first) {
      EXPECT_EQ(generate(generator), alone().image);
    }
    EXPECT_EQ(describe(runtime, describer), alone().text);
    EXPECT_EQ(generate(generator), alone().image);
    const std::size_t bytes = runtime.models().weight_bytes();
    EXPECT_GE(bytes, std::max(alone().image_bytes, alone().text_bytes));
    // The transformer and the table of text ids are most of either.
    EXPECT_LT(bytes, (alone().image_bytes + alone().text_bytes) * 3 / 4);
    EXPECT_EQ(&generator.backend(), &describer.backend());
  }
}

// Alone, a task loads what it needs and no more; the second one loads its own then.
TEST(SharedModels, OneTaskLoadsItsOwnSpaceAlone) {
  Runtime runtime;
  auto generator = std::make_unique<GenerateTask>(runtime, generating());
  EXPECT_EQ(runtime.models().weight_bytes(), 0u);
  generator->load();
  EXPECT_EQ(runtime.models().weight_bytes(), alone().image_bytes);
  {
    DescribeTask describer(runtime, describing());
    EXPECT_EQ(describe(runtime, describer), alone().text);
    EXPECT_EQ(runtime.models().weight_bytes(), alone().image_bytes + alone().text_bytes);
  }
  EXPECT_EQ(runtime.models().weight_bytes(), alone().image_bytes);
  generator.reset();
  EXPECT_EQ(runtime.models().weight_bytes(), 0u);
}

// Both at work at the same time, each with its own loop.
TEST(SharedModels, BothWriteTogether) {
  Runtime runtime;
  GenerateTask generator(runtime, generating());
  DescribeTask describer(runtime, describing());
  Images images;
  Texts texts;
  generator.submit({request_for(generator)}, images);
  describer.submit({question()}, texts);
  while (runtime.step()) {
  }
  EXPECT_EQ(images.rgb, alone().image);
  EXPECT_EQ(texts.text, alone().text);
}

// Other threads, storage or device: nothing is shared.
TEST(SharedModels, OtherOptionsShareNothing) {
  Runtime runtime;
  GenerateTask generator(runtime, generating());
  DescribeOptions other = describing();
  other.storage = DType::kBF16;
  DescribeTask describer(runtime, other);
  EXPECT_NE(&generator.backend(), &describer.backend());
  EXPECT_EQ(generate(generator), alone().image);
  EXPECT_EQ(runtime.models().weight_bytes(), alone().image_bytes);
}

}  // namespace
}  // namespace tessera::shared_test
