// A draft model: the target itself as its own draft is always right under shared noise; another
// model changes passes, never the image, and under the exact rule the distribution holds by its meters.
#include "engine/decoding/drafters/model_drafter.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "apps/lab/models/random_weights.h"
#include "engine/decoding/rules/exact_rule.h"
#include "tests/support/draft_streams.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::model_drafter_test {
namespace {

// Weights of another seed under the names and shapes of a model.
class OtherWeights final : public TensorSource {
 public:
  explicit OtherWeights(std::vector<TensorSpec> tensors) : tensors_(std::move(tensors)) {}
  ConstTensorView get(const std::string& name) override {
    for (const TensorSpec& tensor : tensors_) {
      if (tensor.name != name) continue;
      made_ = random_weight(name, tensor.shape, {.seed = 99, .matrix_std = 0});
      return made_.view();
    }
    throw std::out_of_range(name);
  }
  void done(const std::string&) override {}
  std::string file_of(const std::string&) const override { return "other"; }

 private:
  std::vector<TensorSpec> tensors_;
  Tensor made_;
};

struct DraftRun {
  DraftRun(const TinyRun& tiny_run, const StreamModel& draft, const std::vector<Stream>& asked,
           std::int64_t window_rows)
      : tiny(tiny_run),
        items(asked),
        window(window_rows),
        drafter(draft, {.items = static_cast<std::int64_t>(asked.size()),
                        .prompt_rows = 8,
                        .tokens = draft.image_token_count(),
                        .window = window_rows}) {}

  std::vector<StreamResult> run(const LoopParts& parts, WindowController* controller = nullptr) {
    StreamLoop loop(tiny.model,
                    image_limits(tiny.model, {.items = static_cast<std::int64_t>(items.size()),
                                              .prompt_rows = 8,
                                              .window = window,
                                              .dists = true}),
                    parts, controller);
    return run_drafted(loop, items, &drafter);
  }

  const TinyRun& tiny;
  std::vector<Stream> items;
  std::int64_t window;
  ModelDrafter drafter;
};

TEST(ModelDrafter, TheTargetAsItsOwnDraftIsAlwaysRight) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(0), tiny.item(1), tiny.item(2)};
  const auto truth = tiny.run(items);
  for (const std::int64_t window : {2, 4, 9}) {
    DraftRun twin(tiny, tiny.model, items, window);
    const auto results = twin.run(equality_parts(&twin.drafter));
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(results[i].tokens, truth[i].tokens);
      const auto total = static_cast<std::int64_t>(truth[i].tokens.size());
      EXPECT_EQ(results[i].passes, 1 + (total - 1 + window - 1) / window) << "window " << window;
    }
  }
}

TEST(ModelDrafter, AnotherModelChangesPassesNeverTheImage) {
  const TinyRun tiny;
  OpenedModel opened = open_model("test:tiny");
  opened.source = std::make_unique<OtherWeights>(opened.spec.tensors);
  const auto backend = make_backend("cpu", {.threads = 2});
  const StreamModel other = load_stream_model(opened, *backend, DType::kF32);
  const std::vector<Stream> items = {tiny.item(0), tiny.item(3)};
  const auto truth = tiny.run(items);
  static const GumbelRedraft<float, KeyedRandom> gumbel_redraft;
  for (const bool keeps_redraft : {false, true}) {
    DraftRun run(tiny, other, items, 5);
    LoopParts parts = equality_parts(&run.drafter);
    if (keeps_redraft) parts.redraft_policy = &gumbel_redraft;
    WindowController controller(5);
    for (WindowController* chooser : {static_cast<WindowController*>(nullptr), &controller}) {
      const auto results = run.run(parts, chooser);
      for (std::size_t i = 0; i < items.size(); ++i) {
        EXPECT_EQ(results[i].tokens, truth[i].tokens);
        EXPECT_LE(results[i].passes, truth[i].passes);
      }
    }
  }
}

TEST(ModelDrafter, UnderTheExactRuleItsOwnTwinIsNeverRefused) {
  const TinyRun tiny;
  const std::vector<Stream> items = {tiny.item(1), tiny.item(2)};
  DraftRun twin(tiny, tiny.model, items, 4);
  ExactRule<float, KeyedRandom> exact;
  LoopParts parts = equality_parts(&twin.drafter);
  parts.rule = &exact;
  for (const StreamResult& result : twin.run(parts)) {
    EXPECT_GT(result.meters.acceptance(), 0.999) << "p = q row for row";
    EXPECT_LT(std::abs(result.meters.z_score()), 4);
  }
}

}  // namespace
}  // namespace tessera::model_drafter_test
