// Images described on a device whose memory the host cannot touch and whose ops run late, pruned
// in every place where a method works: the CPU backend's rows and texts, bit for bit.
#include <gtest/gtest.h>

#include <map>

#include "apps/runtime/describe_task.h"
#include "engine/decoding/method_parts.h"
#include "tests/support/guarded_backend.h"
#include "tests/support/stream_run.h"
#include "tests/support/tiny_lmm.h"

namespace tessera::captions_test {
namespace {

// --- the pipeline -------------------------------------------------------------------------------

struct Describing {
  const char* name = "plain";
  const char* method = "plain";
  PruneChoice prune = {};
  DraftChoice draft = {};
};

struct Heard {
  std::string text;
  std::int64_t kept = 0, passes = 0;
  bool operator==(const Heard&) const = default;
};

std::map<std::string, Heard> describe(const Describing& how, const char* device) {
  struct Keep final : DescribeListener {
    std::map<std::string, Heard> out;
    void on_caption(Caption&& caption) override {
      EXPECT_FALSE(caption.failed) << format_error(caption.error);
      out[caption.id] = {caption.text, caption.kept_tokens, caption.passes};
    }
  } keep;
  DescribeOptions options;
  options.model = "test:tiny";
  options.device = device;
  options.threads = 1;
  options.batch_size = 2;
  options.max_tokens = 12;
  options.method = decode_method(how.method);
  if (how.draft.on()) options.method.rule = "gumbel";
  options.prune = how.prune;
  options.draft = how.draft;
  Runtime runtime;
  DescribeTask task(runtime, options);
  std::vector<DescribeRequest> requests;
  for (int number = 0; number < 3; ++number) {
    auto image = std::make_shared<Image>(24 + number, 20);
    for (std::size_t i = 0; i < image->rgb.size(); ++i) {
      image->rgb[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(number) * 31);
    }
    DescribeRequest& request = requests.emplace_back();
    request.id = std::to_string(number);
    request.images.emplace_back().image = std::move(image);
    request.prompt = "what is this";
  }
  runtime.finish(task.submit(std::move(requests), keep));
  return std::move(keep.out);
}

PruneChoice pruned(const char* method, std::vector<PruneOption> options = {}) {
  PruneChoice out;
  out.method = method;
  out.options = std::move(options);
  out.budget.ratio = 0.5;
  return out;
}

class DeviceCaptions : public ::testing::TestWithParam<Describing> {};

TEST_P(DeviceCaptions, AreTheCpusBitForBit) {
  offer_guarded_devices();
  const auto want = describe(GetParam(), "cpu");
  ASSERT_EQ(want.size(), 3u);
  const GuardedCounts before = guarded_counts();
  EXPECT_TRUE(describe(GetParam(), "guarded:0") == want);
  EXPECT_GT(guarded_counts().repeated, before.repeated);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DeviceCaptions,
    ::testing::Values(Describing{}, Describing{.name = "lookup", .method = "lookup"},
                    Describing{.name = "random", .prune = pruned("random")},
                    Describing{.name = "fastv", .prune = pruned("fastv", {{"layer", 1}})},
                    Describing{.name = "corematching",
                               .prune = pruned("corematching", {{"layer", 0}})},
                    Describing{.name = "flowcut", .prune = pruned("flowcut", {{"llm_layer", 0}})},
                    Describing{.name = "tome", .prune = pruned("tome")},
                    Describing{.name = "draft", .method = "draft", .draft = {.model = "test:tiny"}},
                    Describing{.name = "pruned_draft",
                               .method = "draft",
                               .draft = {.model = "test:tiny", .prune = pruned("verifier")}}),
    [](const auto& one) { return std::string(one.param.name); });

// --- every family, every method -----------------------------------------------------------------

struct Prompted {
  std::vector<std::vector<float>> images;
  std::vector<float> rows;
  std::vector<std::int32_t> tokens;
  bool operator==(const Prompted&) const = default;
};

PrunedModel facts_of(const TinyLmm& tiny, std::size_t views) {
  const ModelConfig& language = tiny.spec.model.transformer;
  PrunedModel out = pruned_model_of(tiny.spec.describe->tower, static_cast<std::int64_t>(views));
  out.llm_layers = static_cast<int>(language.layers);
  out.rope = {language.head_dim, language.rope.theta, language.rope.sections};
  return out;
}

std::vector<float> downloaded(Backend& backend, const Tensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.shape().elements()));
  backend.download(tensor.view(), {DType::kF32, tensor.shape(), out.data(), Device{}});
  backend.synchronize();
  return out;
}

std::vector<std::int32_t> text_of(const TinyLmm& tiny, PromptRows prompt) {
  struct Keep final : StreamListener {
    std::vector<std::int32_t> tokens;
    void on_done(std::size_t, StreamResult&& result) override { tokens = result.tokens; }
  } keep;
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(tiny.spec.model.vocab), 6);
  const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, aids);
  StreamLoop loop(
      *tiny.text,
      text_limits(*tiny.text, 6, {.items = 1, .prompt_rows = 256, .window = 1, .budget = 33}),
      parts.parts());
  Stream item = greedy_text(std::move(prompt.rows), std::move(prompt.places), prompt.next_place,
                            prompt.cuts.get(), 6);
  item.before = prompt.text;
  loop.add(std::move(item));
  while (!loop.idle()) loop.step(keep);
  return keep.tokens;
}

Prompted prompt_of(const TinyLmm& tiny, const Pruner* pruner) {
  Prompted out;
  Budget budget;
  if (pruner != nullptr) budget.ratio = 0.6;
  std::vector<std::unique_ptr<PruneSession>> sessions;
  std::vector<PromptImage> images;
  for (int i = 0; i < 2; ++i) {
    const PreprocessedImage decoded_image = preprocess(tiny.spec.describe->policy, tiny.image(i));
    PromptImage& visual = images.emplace_back();
    if (pruner != nullptr) {
      sessions.push_back(std::make_unique<PruneSession>(
          *pruner, facts_of(tiny, decoded_image.views.size()), budget, 7, static_cast<std::uint64_t>(i)));
      visual.session = sessions.back().get();
    }
    visual.visual = tiny.images->encode(decoded_image, tiny.spec.three_axes(), visual.session);
    out.images.push_back(visual.visual.rows);
  }
  PromptRows prompt = build_prompt(*tiny.text, tiny.ints("input_ids"), tiny.spec.describe->image_id,
                                   std::move(images));
  out.rows = downloaded(*tiny.backend, prompt.rows);
  out.tokens = text_of(tiny, std::move(prompt));
  return out;
}

// Null where the family or a model of so few layers does not serve the method.
std::unique_ptr<Pruner> pruner_for(const TinyLmm& tiny, const std::string& method) {
  std::vector<PruneOption> options;
  if (method == "fastv") options = {{"layer", 1}};
  if (method == "corematching") options = {{"layer", 0}};
  if (method == "flowcut") options = {{"llm_layer", 0}};
  auto out = make_pruner(method, options);
  const bool whole = tiny.spec.describe->tower.projector.cell > 1 ||
                     tiny.spec.describe->policy.max_map_tiles > 0 ||
                     tiny.spec.describe->tower.vit.class_token_feature;
  const std::int64_t layers = tiny.spec.model.transformer.layers;
  for (const Hook& hook : out->hooks(facts_of(tiny, 1))) {
    const bool patches =
        hook.point != HookPoint::kAfterProjector && hook.point != HookPoint::kBeforeLlm;
    if (patches && whole) return nullptr;
    if (hook.point == HookPoint::kBeforeLlm && hook.layer >= layers) return nullptr;
  }
  return out;
}

class DeviceFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceFamilies, EncodePruneAndWriteAsTheCpu) {
  offer_guarded_devices();
  const TinyLmm here(GetParam()), there(GetParam(), 1, "guarded:0");
  EXPECT_TRUE(prompt_of(there, nullptr) == prompt_of(here, nullptr));
  int served = 0;
  for (const PrunerRow& row : pruner_table()) {
    const auto pruner = pruner_for(here, std::string(row.name));
    if (pruner == nullptr) continue;
    Prompted want;
    try {
      want = prompt_of(here, pruner.get());
    } catch (const Error&) {  // what the method asks for is not there
      continue;
    }
    ++served;
    EXPECT_TRUE(prompt_of(there, pruner.get()) == want) << row.name;
  }
  EXPECT_GE(served, 4);
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceFamilies, ::testing::ValuesIn(kTinyFamilies),
                         [](const auto& one) { return test_name(one.param); });

}  // namespace
}  // namespace tessera::captions_test
