// Guidance of texts: the second branch is asked without the images. A scale of 1 is no guidance;
// another one writes what a plain loop of two branches writes, however it is drafted, pruned and
// batched.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "apps/runtime/describe_task.h"
#include "apps/runtime/image_prompt.h"
#include "engine/decoding/model_pass.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/sampling_settings.h"
#include "vision/image/preprocess.h"

namespace tessera::describe_guidance_test {
namespace {

constexpr std::int64_t kTokens = 24;
constexpr std::uint64_t kSeed = 5;

std::shared_ptr<const Image> image_of(int number) {
  auto image = std::make_shared<Image>(24 + number, 20);
  for (std::size_t i = 0; i < image->rgb.size(); ++i) {
    image->rgb[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(number) * 31);
  }
  return image;
}

std::string prompt_of(int number) {
  return "what is this" + std::string(static_cast<std::size_t>(number), '?');
}

DescribeOptions options_of(double guidance, double temperature = 0) {
  DescribeOptions options;
  options.model = "test:tiny";
  options.device = "cpu";
  options.threads = 1;
  options.max_tokens = kTokens;
  options.seed = kSeed;
  options.sampling.set(setting::kGuidance, guidance);
  options.sampling.set(setting::kTemperature, temperature);
  return options;
}

constexpr int kImages = 4;
using Texts = std::map<std::string, std::string>;

struct Heard final : DescribeListener {
  Texts texts;
  std::int64_t passes = 0, tokens = 0, kept = 0, whole = 0;
  void on_caption(Caption&& caption) override {
    EXPECT_FALSE(caption.failed) << format_error(caption.error);
    texts[caption.id] = caption.text;
    passes += caption.passes;
    tokens += caption.tokens;
    kept += caption.kept_tokens;
    whole += caption.visual_tokens;
  }
};

Heard describe(const DescribeOptions& options, std::optional<std::string> negative = {}) {
  Runtime runtime;
  DescribeTask task(runtime, options);
  std::vector<DescribeRequest> requests;
  for (int i = 0; i < kImages; ++i) {
    DescribeRequest& request = requests.emplace_back();
    request.id = std::to_string(i);
    request.images.emplace_back().image = image_of(i);
    request.prompt = prompt_of(i);
    request.negative_prompt = negative;
  }
  Heard heard;
  runtime.finish(task.submit(std::move(requests), heard));
  EXPECT_EQ(heard.texts.size(), static_cast<std::size_t>(kImages));
  return heard;
}

// One token after the other, both branches in each pass, with no more than the model's own parts.
class PlainLoop {
 public:
  PlainLoop() : backend_(make_backend("cpu", {.threads = 1})) {
    model_ = CaptionModel::open("test:tiny");
    model_->load(*backend_, model_->stored());
  }

  std::string text(int number, double guidance, double temperature,
                   const std::optional<std::string>& negative) const {
    DecodedImage decoded_image(image_of(number)->width, image_of(number)->height, 3, "pixels");
    decoded_image.pixels = image_of(number)->rgb;
    const PreprocessedImage prepared = preprocess(model_->describe().policy, decoded_image);
    const std::string prompt = prompt_of(number);
    const PromptRows with = make_image_prompt(*model_, prompt, {&prepared, 1}, {}, kTokens).rows;
    const PromptRows without =
        make_image_prompt(*model_, negative.value_or(prompt), {}, {}, kTokens).rows;
    const std::array<const PromptRows*, 2> branches = {&with, &without};
    ModelPass pass(model_->text(), {.sequences = 2,
                                    .capacity = 512,
                                    .logit_rows = 2,
                                    .token_rows = 2,
                                    .prompt_rows = 512,
                                    .kv = model_->stored()});
    pass.begin();
    std::int64_t rows = 0;
    std::array<std::int64_t, 2> last{};
    for (std::int32_t branch = 0; branch < 2; ++branch) {
      pass.add_prompt_rows(branch, branches[static_cast<std::size_t>(branch)]->rows.view(),
                           branches[static_cast<std::size_t>(branch)]->places);
      rows += branches[static_cast<std::size_t>(branch)]->rows.shape()[0];
      last[static_cast<std::size_t>(branch)] = rows - 1;
    }
    pass.run_layers();
    pass.run_head(last[0], 1, 0);
    pass.run_head(last[1], 1, 1);
    std::vector<std::int32_t> tokens;
    const std::vector<std::int32_t>& stops = model_->describe().stops;
    while (true) {
      pass.fetch_logits();
      const std::int32_t token = choose(pass, guidance, temperature, number, tokens.size());
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
      tokens.push_back(token);
      if (tokens.size() == kTokens) break;
      pass.begin();
      for (std::int32_t branch = 0; branch < 2; ++branch) pass.add_tokens(branch, {&token, 1});
      pass.run();
    }
    std::string out = model_->tokenizer().decode(tokens);
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    while (!out.empty() && blank(out.back())) out.pop_back();
    out.erase(out.begin(), std::find_if_not(out.begin(), out.end(), blank));
    return out;
  }

 private:
  std::int32_t choose(const ModelPass& pass, double guidance, double temperature, int number,
                      std::size_t position) const {
    const std::span<const float> with = pass.logits(0), without = pass.logits(1);
    GumbelNoise noise(kSeed, static_cast<std::uint64_t>(number),
                      static_cast<std::uint32_t>(position));
    std::int32_t best = 0;
    double most = 0;
    for (std::size_t i = 0; i < with.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      const float logit = without[i] + static_cast<float>(guidance) * (with[i] - without[i]);
      const double value =
          temperature > 0 ? static_cast<double>(logit) / temperature + noise(id) : logit;
      if (i == 0 || value > most) {
        most = value;
        best = id;
      }
    }
    return best;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<CaptionModel> model_;
};

TEST(DescribeGuidance, AScaleOfOneIsNone) {
  DescribeOptions plain = options_of(1);
  plain.sampling = {};
  EXPECT_EQ(describe(options_of(1)).texts, describe(plain).texts);
  EXPECT_EQ(describe(options_of(1), "a dog").texts, describe(plain).texts);
}

TEST(DescribeGuidance, IsWhatAPlainLoopOfTwoBranchesWrites) {
  const PlainLoop loop;
  std::map<double, Texts> by_scale;
  for (const double guidance : {0.5, 1.5, 3.0}) {
    for (const double temperature : {0.0, 0.9}) {
      for (const std::optional<std::string>& negative :
           {std::optional<std::string>(), std::optional<std::string>("a dog on a lawn")}) {
        Texts expected;
        for (int i = 0; i < kImages; ++i) {
          expected[std::to_string(i)] = loop.text(i, guidance, temperature, negative);
        }
        DescribeOptions options = options_of(guidance, temperature);
        options.batch_size = temperature > 0 ? 3 : 1;
        EXPECT_EQ(describe(options, negative).texts, expected)
            << guidance << " " << temperature << " " << negative.value_or("");
        if (temperature == 0 && !negative) by_scale[guidance] = expected;
      }
    }
  }
  EXPECT_NE(by_scale.at(0.5), by_scale.at(3.0)) << "guidance changes something";
}

TEST(DescribeGuidance, DraftsChangePassesAlone) {
  const Heard plain = describe(options_of(2.5, 0.8));
  EXPECT_EQ(plain.passes, plain.tokens);
  for (const std::int64_t batch : {1, 3}) {
    DescribeOptions lookup = options_of(2.5, 0.8);
    lookup.method = decode_method("lookup");
    lookup.method.rule = "gumbel";  // identical, not only of the same distribution
    lookup.batch_size = batch;
    EXPECT_EQ(describe(lookup).texts, plain.texts);
    DescribeOptions twin = options_of(2.5, 0.8);
    twin.draft.model = "test:tiny";
    twin.method = decode_method("draft");
    twin.method.rule = "gumbel";
    twin.method.window = 4;
    twin.batch_size = batch;
    const Heard drafted = describe(twin);
    EXPECT_EQ(drafted.texts, plain.texts);
    // It is guided as the text is, and so always right once it has read its prompts.
    EXPECT_LE(drafted.passes, kImages + (drafted.tokens - kImages + 3) / 4 + 2 * kImages);
    twin.draft.prune.method = "verifier";
    twin.draft.prune.budget.ratio = 0.5;
    EXPECT_EQ(describe(twin).texts, plain.texts);
  }
}

// A prompt that is cut inside the model, next to one without images that is not.
TEST(DescribeGuidance, PruningIsOfTheBranchWithImages) {
  Texts unguided;
  for (const double guidance : {1.0, 2.0}) {
    for (const char* method : {"fastv", "divprune"}) {
      DescribeOptions options = options_of(guidance);
      options.prune.method = method;
      options.prune.budget.ratio = 0.5;
      if (std::string(method) == "fastv") options.prune.options = {{"layer", 1}};
      const Heard one = describe(options);
      EXPECT_LT(one.kept, one.whole);
      options.batch_size = 3;
      EXPECT_EQ(describe(options).texts, one.texts) << method;
      if (guidance == 1.0) {
        unguided = one.texts;
      } else if (std::string(method) == "divprune") {
        EXPECT_NE(one.texts, unguided);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::describe_guidance_test
