// The bundled draft model: what its folder holds, that it fits the bundled model, that it generates
// nothing itself, and that drafting from it leaves plain decoding's images as they are.
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>

#include "apps/runtime/generate_task.h"

namespace tessera::bundled_draft_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDraft = "tabletop-draft";

TEST(BundledDraft, IsSmallAndSpeaksTheTargetsCodes) {
  const ModelReference reference = resolve_model(kDraft);
  ASSERT_EQ(reference.origin, ModelOrigin::kBundled);
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(reference.open_name)) {
    bytes += entry.file_size();
  }
  EXPECT_LE(bytes, 2000000u);
  const OpenedModel draft = open_model(reference.open_name);
  const OpenedModel target = open_model(resolve_model("").open_name);
  ASSERT_TRUE(draft.spec.draft.has_value());
  EXPECT_FALSE(target.spec.draft.has_value());
  EXPECT_EQ(target.spec.draft_model, kDraft);
  EXPECT_DOUBLE_EQ(draft.spec.draft->guidance, target.spec.sampling.guidance);
  EXPECT_EQ(draft.spec.model.transformer.layers, 2);
  EXPECT_EQ(draft.spec.model.codes, target.spec.model.codes);
  EXPECT_EQ(draft.spec.model.grid_rows, target.spec.model.grid_rows);
  EXPECT_EQ(draft.spec.model.grid_cols, target.spec.model.grid_cols);
  EXPECT_EQ(draft.spec.model.prompt_vocab, target.spec.model.prompt_vocab);
}

TEST(BundledDraft, IsListedButGeneratesNothing) {
  const FoundModel found = describe_model(resolve_model(kDraft));
  EXPECT_EQ(found.problem, "");
  EXPECT_TRUE(found.draft);
  EXPECT_FALSE(describe_model(resolve_model("")).draft);
  GenerateOptions options;
  options.model = kDraft;
  Runtime runtime;
  const GenerateTask task(runtime, options);
  try {
    task.prepare({.prompt = "a red cube"});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_MODEL_DRAFT");
    EXPECT_EQ(error.exit_code(), 4);
  }
}

class Collector : public GenerateListener {
 public:
  void on_image(GeneratedImage&& image) override { images.push_back(std::move(image)); }
  std::vector<GeneratedImage> images;
};

std::vector<GeneratedImage> generate(const DecodeMethod& method, const std::string& draft) {
  GenerateOptions options;
  options.threads = 2;
  options.batch_size = 2;
  options.method = method;
  options.draft_model = draft;
  Runtime runtime;
  GenerateTask task(runtime, options);
  std::vector<PreparedRequest> requests;
  for (const char* prompt : {"a large red shiny sphere and a small blue matte cube on a gray floor",
                             "a small green cone"}) {
    GenerateRequest request;
    request.prompt = prompt;
    request.seed = 11 + requests.size();
    requests.push_back(task.prepare(request));
  }
  Collector collector;
  EXPECT_TRUE(task.run(requests, collector));
  return std::move(collector.images);
}

double tokens_per_pass(const std::vector<GeneratedImage>& images) {
  double rate = 0;
  for (const GeneratedImage& image : images) {
    EXPECT_EQ(image.status, ImageStatus::kDone);
    rate += image.facts.tokens_per_pass() / static_cast<double>(images.size());
  }
  return rate;
}

TEST(BundledDraft, DraftsForTheExactRule) {
  const auto named = generate(decode_method("draft"), kDraft);
  EXPECT_GT(tokens_per_pass(named), 1.8);
  EXPECT_EQ(named[0].facts.draft_model, kDraft);
  EXPECT_TRUE(named[0].facts.preserves_distribution);
  const auto by_default = generate(decode_method("draft"), "");
  ASSERT_EQ(by_default.size(), named.size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ(by_default[i].facts.draft_model, kDraft);
    EXPECT_EQ(by_default[i].codes, named[i].codes);
  }
  std::cout << tokens_per_pass(named) << " tokens a pass\n";
}

TEST(BundledDraft, UnderTheGumbelRuleImagesArePlainDecodings) {
  const auto plain = generate({}, "");
  DecodeMethod method = decode_method("draft");
  method.rule = "gumbel";
  for (const std::int64_t window : {4, 24}) {
    method.window = window;
    const auto drafted = generate(method, kDraft);
    ASSERT_EQ(drafted.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(drafted[i].codes, plain[i].codes) << window;
      EXPECT_EQ(drafted[i].image.rgb, plain[i].image.rgb) << window;
    }
    EXPECT_GT(tokens_per_pass(drafted), 1.8) << window;
    std::cout << "window " << window << ": " << tokens_per_pass(drafted) << " tokens a pass\n";
  }
}

}  // namespace
}  // namespace tessera::bundled_draft_test
