// Rows of images that come again: found by pixels and plan, given up by age, and the same text.
#include "apps/runtime/encoded_images.h"

#include <gtest/gtest.h>

#include <map>

#include "apps/runtime/describe_task.h"
namespace tessera::encoded_images_test {
namespace {

PreprocessedImage image_of(float value, std::int64_t rows = 2) {
  PreprocessedImage out;
  out.plan.view_rows = rows;
  out.plan.view_cols = 4 / rows;
  out.views.push_back({.width = 2, .height = 2, .values = std::vector<float>(12, value)});
  return out;
}
VisualRows rows_of(float value, std::size_t floats = 1000) {
  VisualRows out;
  out.rows.assign(floats, value);
  out.width = 1;
  return out;
}

const VisualRows* find(EncodedImages& kept, const PreprocessedImage& image) {
  return kept.find(key_of(image), image.plan);
}
void add(EncodedImages& kept, const PreprocessedImage& image, const VisualRows& rows) {
  kept.add(key_of(image), image.plan, rows);
}

TEST(EncodedImages, AreFoundByPixelsAndPlan) {
  EncodedImages kept(1 << 20);
  EXPECT_EQ(find(kept, image_of(1)), nullptr);
  add(kept, image_of(1), rows_of(1));
  ASSERT_NE(find(kept, image_of(1)), nullptr);
  EXPECT_EQ(find(kept, image_of(1))->rows[0], 1);
  EXPECT_EQ(find(kept, image_of(1, 1)), nullptr) << "the same pixels in another order";
  PreprocessedImage other = image_of(1);
  other.views[0].values[11] = 1.0000001f;
  EXPECT_EQ(find(kept, other), nullptr);
  kept.clear();
  EXPECT_EQ(find(kept, image_of(1)), nullptr);
  EXPECT_EQ(kept.bytes(), 0u);
}

TEST(EncodedImages, TheOneNotAskedForLongestGoes) {
  EncodedImages kept(15000);  // three of them
  for (const float value : {1.f, 2.f, 3.f}) add(kept, image_of(value), rows_of(value));
  ASSERT_NE(find(kept, image_of(1)), nullptr);
  add(kept, image_of(4), rows_of(4));
  EXPECT_NE(find(kept, image_of(1)), nullptr);
  EXPECT_EQ(find(kept, image_of(2)), nullptr);
  EXPECT_NE(find(kept, image_of(3)), nullptr);
  add(kept, image_of(5), rows_of(5, 100000));  // never fits
  EXPECT_EQ(find(kept, image_of(5)), nullptr);
  EXPECT_LE(kept.bytes(), 15000u);
  EncodedImages none(0);
  EXPECT_FALSE(none.keeps());
}

struct Heard final : DescribeListener {
  std::map<std::string, std::string> texts;
  std::int64_t known = 0, reused = 0, prompts = 0;
  void on_caption(Caption&& caption) override {
    EXPECT_FALSE(caption.failed) << format_error(caption.error);
    texts[caption.id] = caption.text;
    known += caption.known_images;
    reused += caption.reused_tokens;
    prompts += caption.prompt_tokens;
  }
};

std::shared_ptr<const Image> picture(int number) {
  auto image = std::make_shared<Image>(24 + 8 * number, 20);
  for (std::size_t i = 0; i < image->rgb.size(); ++i) {
    image->rgb[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(number) * 31);
  }
  return image;
}

// Three images, each asked about four times, by several methods of pruning.
Heard describe(std::size_t cache, std::int64_t batch, const std::string& prune) {
  DescribeOptions options;
  options.model = "test:tiny";
  options.device = "cpu";
  options.threads = 1;
  options.batch_size = batch;
  options.image_cache = cache;
  options.max_tokens = 12;
  if (!prune.empty()) {
    options.prune.method = prune;
    options.prune.budget.ratio = 0.5;
    if (prune == "fastv") options.prune.options = {{"layer", 1}};
  }
  Runtime runtime;
  DescribeTask task(runtime, options);
  std::vector<DescribeRequest> requests;
  for (int i = 0; i < 12; ++i) {
    DescribeRequest& request = requests.emplace_back();
    request.id = std::to_string(i);
    request.images.emplace_back().image = picture(i % 3);
    request.prompt = i < 6 ? "What is it?" : "Describe it.";
  }
  Heard heard;
  runtime.finish(task.submit(std::move(requests), heard));
  return heard;
}

TEST(EncodedImages, TextsAreTheSame) {
  for (const std::string prune : {"", "divprune", "fastv", "visionzip"}) {
    const Heard plain = describe(0, 1, prune);
    EXPECT_EQ(plain.texts.size(), 12u);
    EXPECT_EQ(plain.known, 0);
    for (const std::int64_t batch : {1, 4}) {
      const Heard kept = describe(1 << 20, batch, prune);
      EXPECT_EQ(kept.texts, plain.texts) << prune;
      // Methods that watch the encoder make it run.
      if (prune == "visionzip") {
        EXPECT_EQ(kept.known, 0);
      } else {
        EXPECT_EQ(kept.known, 9) << prune;
      }
      // Prompts that are cut inside the model are nobody else's.
      if (prune == "fastv") {
        EXPECT_EQ(kept.reused, 0);
      } else if (batch == 1) {
        EXPECT_GT(kept.reused, kept.prompts / 4) << prune;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::encoded_images_test
