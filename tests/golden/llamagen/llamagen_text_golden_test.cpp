// Parity of LlamaGen's text-to-image transformer with a reference of our own after transformers' T5
// (assets/recipes/fixtures_llamagen_text.py): logits of both branches, 25 guided greedy tokens,
// pixels; the whole road from a prompt by every kind of decoding; what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/runtime/generate_task.h"
#include "engine/families/text_encoder.h"
#include "tests/golden/llamagen/text_folder.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/model_runner.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::llamagen_text_golden_test {
namespace {

namespace fs = std::filesystem;

const fs::path kTests = source_folder() / "tests" / "golden";
constexpr const char* kText = "a red cube on the gray floor";
constexpr std::int64_t kPlaces = TextFolder::kPlaces, kCodes = TextFolder::kCodes,
                       kSteps = TextFolder::kSteps;
constexpr double kTolerance = 1e-5;

class LlamaGenText : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = chosen_backend({.threads = 2});
  Checkpoint recorded_ = Checkpoint::open(kTests / "llamagen" / "text.recorded.safetensors");
  TextFolder folder_;
  OpenedModel opened_ = open_model(folder_.path());
  std::vector<std::int32_t> tokens_ = ints_of(*recorded_.find("tokens"));

  Tensor on_device(const std::vector<float>& values, std::int64_t width) const {
    return tessera::on_device(*backend_, values,
                              {static_cast<std::int64_t>(values.size()) / width, width});
  }
  // The largest difference of both branches' logits and of the guided ones, with recorded features
  // and tokens fed back; got_ are the tokens that follow.
  double worst(OpenedModel& model) {
    const CaptionRows caption = load_caption_rows(model, *backend_, DType::kF32);
    const StreamModel stream = load_stream_model(model, *backend_, DType::kF32);
    const std::vector<float> features = floats_of(*recorded_.find("features"));
    const Tensor rows = caption.prompt(on_device(features, 32).view());
    const std::int64_t count = rows.shape()[0];
    const Tensor other = caption.unconditional(count);
    ModelRunner runner(stream, 2, kPlaces + kSteps);
    const std::vector<std::int64_t> places(static_cast<std::size_t>(count), 0);
    std::vector<float> hidden = runner.forward({{0, from_device(*backend_, rows.view()), places},
                                                {1, from_device(*backend_, other.view()), places}});
    std::vector<float> last =
        joined(row_of(hidden, count - 1, 32), row_of(hidden, 2 * count - 1, 32));
    std::vector<float> branches, guided;
    got_.clear();
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const std::vector<float> logits = runner.logits(last);
      branches = joined(std::move(branches), logits);
      std::vector<float> mixed(kCodes);
      for (std::size_t i = 0; i < mixed.size(); ++i) {
        mixed[i] = logits[kCodes + i] + 7.5f * (logits[i] - logits[kCodes + i]);
      }
      got_.push_back(static_cast<std::int32_t>(std::ranges::max_element(mixed) - mixed.begin()));
      guided = joined(std::move(guided), mixed);
      if (step + 1 == kSteps) break;
      const std::vector<float> row = runner.token_rows({tokens_[static_cast<std::size_t>(step)]});
      const std::vector<std::int64_t> place = {kPlaces + step};
      last = runner.forward({{0, row, place}, {1, row, place}});
    }
    return std::max(relative_difference(branches, floats_of(*recorded_.find("head_logits"))),
                    relative_difference(guided, floats_of(*recorded_.find("guided_logits"))));
  }
  double edited(const TensorEdit& edit) {
    std::map<std::string, Tensor> tensors = copy_tensors(*opened_.weights);
    edit(tensors);
    OpenedModel model;
    model.spec = opened_.spec;
    model.weights =
        std::make_shared<const Checkpoint>(Checkpoint::from_tensors("edited", std::move(tensors)));
    model.source = source_of(model.weights);
    return worst(model);
  }

  std::vector<std::int32_t> got_;
};

TEST_F(LlamaGenText, LogitsAndTokensEqualTheReference) {
  EXPECT_EQ(opened_.spec.title, "LlamaGen 2x32, text to image");
  EXPECT_EQ(opened_.spec.sampling.guidance, 7.5);
  EXPECT_EQ(opened_.spec.sampling.top_k, 1000);
  const double off = worst(opened_);
  std::printf("off by %.1e of the largest value\n", off);
  EXPECT_LE(off, kTolerance);
  EXPECT_EQ(got_, tokens_);
}

TEST_F(LlamaGenText, FeaturesOfThePromptEqualTheReferences) {
  const OpenedTextEncoder opened = open_text_encoder(kTests / "t5" / "gated", 32);
  const TextEncoder encoder = load_text_encoder(opened, *backend_, DType::kF32);
  const std::vector<std::int32_t> ids = TextTokenizer::from_folder(opened.folder).encode(kText);
  EXPECT_EQ(ids, ints_of(*recorded_.find("ids")));
  EXPECT_LE(relative_difference(from_device(*backend_, encoder.encode(ids).view()),
                                floats_of(*recorded_.find("features"))),
            kTolerance);
}

TEST_F(LlamaGenText, OneTensorOffByAThousandthIsNoticed) {
  EXPECT_EQ(opened_.spec.tensors.size(), 6 + 2 * 7u);
  for (const TensorSpec& tensor : opened_.spec.tensors) {
    EXPECT_GT(edited([&](auto& tensors) { perturb(tensors.at(tensor.name)); }), kTolerance)
        << tensor.name;
  }
}

TEST_F(LlamaGenText, TwoSwappedTensorsAreNoticed) {
  int pairs = 0;
  const std::vector<TensorSpec>& list = opened_.spec.tensors;
  for (std::size_t a = 0; a < list.size(); ++a) {
    for (std::size_t b = a + 1; b < list.size(); ++b) {
      if (list[a].shape != list[b].shape) continue;
      ++pairs;
      EXPECT_GT(edited([&](auto& tensors) {
                  std::swap(tensors.at(list[a].name), tensors.at(list[b].name));
                }),
                kTolerance)
          << list[a].name << " and " << list[b].name;
    }
  }
  EXPECT_GE(pairs, 15);
}

// Rows of the other branch that are not the last ones, or places that are counted after a short
// text, give other images.
TEST_F(LlamaGenText, WherePaddingStandsMatters) {
  OpenedModel shifted = open_model(folder_.path());
  shifted.spec.model.transformer.rope.condition_rows = kPlaces - 1;
  EXPECT_GT(worst(shifted), 1e-3);
}

// --- the whole road -----------------------------------------------------------------------------

struct Kept final : GenerateListener {
  void on_image(GeneratedImage&& image) override { images.push_back(std::move(image)); }
  std::vector<GeneratedImage> images;
};

GenerateOptions options_of(const TextFolder& folder, const char* method = "plain") {
  GenerateOptions options;
  options.model = folder.path();
  options.device = "cpu";
  options.threads = 2;
  options.storage = DType::kF32;
  options.method = decode_method(method);
  return options;
}

std::vector<GeneratedImage> generated(const GenerateOptions& options,
                                      const std::vector<GenerateRequest>& requests) {
  Runtime runtime;
  GenerateTask task(runtime, options);
  std::vector<PreparedRequest> prepared;
  for (const GenerateRequest& request : requests) prepared.push_back(task.prepare(request));
  Kept kept;
  EXPECT_TRUE(task.run(std::move(prepared), kept));
  std::ranges::sort(kept.images, {}, &GeneratedImage::index);
  return std::move(kept.images);
}

TEST_F(LlamaGenText, APromptGivesTheReferencesTokensAndPixels) {
  GenerateRequest request{.prompt = kText};
  request.sampling.set(setting::kTemperature, 0);
  for (const char* method : {"plain", "gumbel", "sjd", "coupled", "tree"}) {
    const auto images = generated(options_of(folder_, method), {request});
    ASSERT_EQ(images.size(), 1u);
    ASSERT_EQ(images[0].status, ImageStatus::kDone) << images[0].error.code;
    EXPECT_EQ(images[0].codes, tokens_) << method;
    EXPECT_EQ(images[0].facts.text_encoder, "t5");
    const std::vector<std::int32_t> pixels = ints_of(*recorded_.find("image"));
    ASSERT_EQ(images[0].image.rgb.size(), pixels.size());
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      EXPECT_EQ(std::int32_t{images[0].image.rgb[i]}, pixels[i]) << i;
    }
  }
}

// Images of a list do not depend on one another, on slots or on the kind of decoding.
TEST_F(LlamaGenText, MethodsAndListsGiveTheSameImages) {
  std::vector<GenerateRequest> requests;
  for (const char* text : {kText, "a dog", "a dog", "large shiny sphere, photo of a cat"}) {
    requests.push_back({.prompt = text, .seed = 3 + requests.size()});
  }
  const auto truth = generated(options_of(folder_), requests);
  ASSERT_EQ(truth.size(), 4u);
  EXPECT_NE(truth[1].codes, truth[2].codes);
  for (const char* method : {"gumbel", "gumbel-tree"}) {
    GenerateOptions options = options_of(folder_, method);
    options.batch_size = 3;
    const auto images = generated(options, requests);
    ASSERT_EQ(images.size(), 4u);
    for (std::size_t i = 0; i < images.size(); ++i) {
      EXPECT_EQ(images[i].codes, truth[i].codes) << method << " " << i;
    }
  }
}

TEST_F(LlamaGenText, WeightsOfTheEncoderArePlannedFor) {
  Runtime runtime;
  const GenerateTask task(runtime, options_of(folder_));
  const std::vector<PreparedRequest> requests = {task.prepare({.prompt = "a cube"})};
  const TextFolder without(false);
  GenerateOptions other = options_of(without);
  other.text_encoder = (kTests / "t5" / "gated").string();
  const GenerateTask same(runtime, other);
  EXPECT_EQ(same.plan(requests).weights, task.plan(requests).weights);
  const GenerateTask none(runtime, options_of(without));
  EXPECT_GT(task.plan(requests).weights, none.plan(requests).weights + 60'000);
}

std::string refusal(const GenerateOptions& options, const GenerateRequest& request) {
  try {
    Runtime runtime;
    GenerateTask(runtime, options).prepare(request);
  } catch (const Error& error) {
    return error.info().code + " " + error.info().where;
  }
  return "";
}

TEST_F(LlamaGenText, WhatDoesNotFitIsRefused) {
  const TextFolder without(false);
  EXPECT_EQ(refusal(options_of(without), {.prompt = "a cube"}), "E_TEXT_ENCODER --text-encoder");
  GenerateOptions narrow = options_of(without);
  narrow.text_encoder = (kTests / "t5" / "relu").string();
  EXPECT_EQ(refusal(narrow, {.prompt = "a cube"}), "E_TEXT_ENCODER_WIDTH d_model");
  EXPECT_EQ(refusal(options_of(folder_), {.prompt = ""}), "E_PROMPT_EMPTY --prompt");
  EXPECT_EQ(refusal(options_of(folder_), {.prompt = "* @someone"}), "E_PROMPT_EMPTY --prompt");
  EXPECT_EQ(refusal(options_of(folder_), {.prompt = "a b c d e f g h i j k l m n o"}),
            "E_PROMPT_LENGTH --prompt");
  for (const char* text : {"a <b>red</b> cube", "a%3Cbr/%3Ecube", "cube &amp; dog", "&#39;a&#39;"}) {
    EXPECT_EQ(refusal(options_of(folder_), {.prompt = text}), "E_PROMPT_MARKUP --prompt") << text;
  }
  for (const char* text : {"a <person> on", "a cat & dog", "cat <3 dog", "a < b"}) {
    EXPECT_EQ(refusal(options_of(folder_), {.prompt = text}), "") << text;
  }
  EXPECT_EQ(refusal(options_of(folder_), {.prompt = "a", .negative_prompt = "b"}),
            "E_NEGATIVE_PROMPT --negative-prompt");
  GenerateOptions bundled;  // the bundled model
  bundled.text_encoder = "somewhere";
  EXPECT_EQ(refusal(bundled, {.prompt = "a"}), "E_TEXT_ENCODER --text-encoder");
}

}  // namespace
}  // namespace tessera::llamagen_text_golden_test
