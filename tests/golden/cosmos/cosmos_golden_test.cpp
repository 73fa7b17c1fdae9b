// Parity of the Cosmos family with a reference of our own (assets/recipes/fixtures_cosmos.py): what
// enters the last layer and logits over a whole stream, and the stream that is written greedily
// after a given first grid, in the forms of the 4B (plain), the 5B (text) and the 12B (wide). And
// that a tensor off by 1e-3 or swapped, or one rule of the form left out, is noticed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/json.h"
#include "engine/decoding/method_parts.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/model_runner.h"
#include "tests/support/source_folder.h"
#include "tests/support/stream_run.h"

namespace tessera::cosmos_golden_test {
namespace {

constexpr std::int64_t kTextRows = 4, kContextRows = 7, kContextWidth = 24;
constexpr double kTolerance = 1e-5;

Json config_of(const std::string& form) {
  Json config = {{"dim", 64},
                 {"n_layers", 2},
                 {"n_heads", 4},
                 {"n_kv_heads", 2},
                 {"head_dim", 16},
                 {"ffn_hidden_size", 96},
                 {"vocab_size", 60},
                 {"use_qk_normalization", true},
                 {"video_latent_shape", {3, 2, 3}},
                 {"pad_to_multiple_of", 8},
                 {"video_tokenizer", {{"levels", {5, 4, 3}}}}};
  if (form == "text") {
    config.update(
        {{"insert_cross_attn", true}, {"apply_abs_pos_emb", true}, {"context_dim", kContextWidth}});
  }
  if (form == "wide") {
    config.update({{"dim", 80},
                   {"rope_theta", 100.0},
                   {"apply_yarn", true},
                   {"original_latent_shape", {12, 40, 64}},
                   {"yarn_scale", 2},
                   {"yarn_beta_fast", 4},
                   {"yarn_beta_slow", 1}});
  }
  return config;
}

class CosmosGolden : public ::testing::TestWithParam<const char*> {
 protected:
  CosmosGolden()
      : backend_(chosen_backend({.threads = 2})),
        recorded_(Checkpoint::open(source_folder() / "tests/golden/cosmos/recorded.safetensors")),
        spec_(parse_family_config(config_of(form()).dump(), form())),
        weights_(Checkpoint::from_tensors(form(), hashed_weights(language()))),
        tokens_(ints_of(*recorded_.find(form() + ".tokens"))) {}

  static std::string form() { return GetParam(); }
  static bool reads_text() { return form() == "text"; }
  std::vector<TensorSpec> language() const {
    std::vector<TensorSpec> out;
    for (const TensorSpec& tensor : spec_.tensors) {
      if (!tensor.name.starts_with("tokenizer.")) out.push_back(tensor);
    }
    return out;
  }
  StreamModel load(
      const ModelSpec& spec, const TensorEdit& edit = [](auto&) {}) const {
    return load_edited(spec, weights_, *backend_, edit);
  }
  std::vector<std::int32_t> prompt() const {
    return std::vector<std::int32_t>(static_cast<std::size_t>(spec_.model.max_prompt), 0);
  }

  // The first rows of the text's; those after them are zeros.
  std::optional<CrossContext> context(const StreamModel& model, std::int64_t rows) const {
    if (!reads_text()) return std::nullopt;
    std::vector<float> text = hashed_values("context", kContextRows * kContextWidth);
    std::fill(text.begin() + kTextRows * kContextWidth, text.end(), 0.0f);
    const Shape shape{rows, kContextWidth};
    Tensor on_device = model.backend().allocate(DType::kF32, shape);
    model.backend().upload({DType::kF32, shape, text.data(), {}}, on_device.view());
    return model.transformer().make_context(on_device.view(), DType::kF32);
  }

  struct Run {
    std::vector<float> entering, logits;
  };
  Run run(const StreamModel& model, std::int64_t context_rows = kContextRows) const {
    const auto seen = context(model, context_rows);
    ModelRunner runner(model, 1, 64);
    if (seen) runner.contexts = {&*seen};
    std::vector<float> rows;
    if (!prompt().empty()) rows = runner.prompt_rows(prompt());
    rows = joined(std::move(rows), runner.token_rows({tokens_.begin(), tokens_.end() - 1}));
    std::vector<std::vector<float>> layers;
    const std::vector<float> hidden = runner.forward({{0, rows}}, &layers);
    return {layers.back(), runner.logits(hidden)};
  }
  double worst(const Run& got) const {
    const auto recorded = [&](const char* name) {
      return floats_of(*recorded_.find(form() + name));
    };
    return std::max(relative_difference(got.entering, recorded(".entering")),
                    relative_difference(got.logits, recorded(".logits")));
  }

  std::vector<std::int32_t> written(const StreamModel& model, const std::string& name) const {
    DecodeAids aids;
    aids.grammar = model.config().grammar();
    const DecodeMethod method = settle_method(decode_method(name), aids, 18);
    const OwnedParts<float, KeyedRandom> parts(method, aids);
    StreamLoop loop(model,
                    image_limits(model, {.prompt_rows = 1,
                                         .window = method.window,
                                         .guided = false,
                                         .dists = true,
                                         .given_tokens = 6}),
                    parts.parts());
    const auto seen = context(model, kContextRows);
    Stream item;
    item.prompt.ids = prompt();
    item.given.assign(tokens_.begin(), tokens_.begin() + 6);
    item.dist.guidance = 1.0;
    item.dist.temperature = 0;
    item.context = seen ? &*seen : nullptr;
    const auto results = run_streams(loop, {&item, 1});
    EXPECT_EQ(results[0].status, StreamStatus::kDone);
    return results[0].tokens;
  }

  std::unique_ptr<Backend> backend_;
  Checkpoint recorded_;
  ModelSpec spec_;
  Checkpoint weights_;
  std::vector<std::int32_t> tokens_;
};

TEST_P(CosmosGolden, LogitsEqualTheReference) {
  const StreamModel model = load(spec_);
  const double off = worst(run(model));
  std::printf("%s: off by %.1e of the largest value\n", form().c_str(), off);
  EXPECT_LE(off, kTolerance);
}

TEST_P(CosmosGolden, TheStreamAfterAGivenGridEqualsTheReference) {
  const StreamModel model = load(spec_);
  EXPECT_EQ(model.config().max_prompt, reads_text() ? 1 : 0);
  for (const char* method : {"plain", "frames", "gumbel"}) {
    EXPECT_EQ(written(model, method), tokens_) << method;
  }
}

TEST_P(CosmosGolden, OneTensorOffByAThousandthIsNoticed) {
  const std::vector<TensorSpec> list = language();
  ASSERT_EQ(list.size(), (reads_text() ? 18u : 11u) * 2 + 3);
  for (const TensorSpec& tensor : list) {
    const StreamModel model = load(spec_, [&](auto& tensors) { perturb(tensors.at(tensor.name)); });
    EXPECT_GT(worst(run(model)), kTolerance) << tensor.name;
  }
}

TEST_P(CosmosGolden, TwoSwappedTensorsAreNoticed) {
  const std::vector<TensorSpec> list = language();
  int pairs = 0;
  for (std::size_t a = 0; a < list.size(); ++a) {
    for (std::size_t b = a + 1; b < list.size(); ++b) {
      if (list[a].shape != list[b].shape) continue;
      // Nothing turns there: a query's factors may as well be its key's.
      const auto of_cross = [](const std::string& name) {
        return name.find("cross_attention.") != std::string::npos;
      };
      if (list[a].name.ends_with(".q_norm.weight") && list[b].name.ends_with(".k_norm.weight") &&
          of_cross(list[a].name) && of_cross(list[b].name)) {
        continue;
      }
      ++pairs;
      const StreamModel model = load(spec_, [&](auto& tensors) {
        std::swap(tensors.at(list[a].name), tensors.at(list[b].name));
      });
      EXPECT_GT(worst(run(model)), kTolerance) << list[a].name << " and " << list[b].name;
    }
  }
  EXPECT_GT(pairs, 15);
}

// What is easily done otherwise.
TEST_P(CosmosGolden, ARuleLeftOutIsNoticed) {
  const auto without = [&](const std::function<void(ModelConfig&)>& edit) {
    ModelSpec spec = spec_;
    edit(spec.model.transformer);
    return worst(run(load(spec)));
  };
  EXPECT_LE(without([](ModelConfig&) {}), kTolerance);
  EXPECT_GT(without([](ModelConfig& model) { model.qk_norm = false; }), 1e-2);
  EXPECT_GT(without([](ModelConfig& model) { model.rope.rounded = false; }), kTolerance);
  EXPECT_GT(without([](ModelConfig& model) { model.rope.pairing = RopePairing::kInterleaved; }),
            1e-2);
  if (form() == "wide") {
    EXPECT_GT(without([](ModelConfig& model) { model.rope.yarn.factor = 1.0; }), 1e-3);
    EXPECT_GT(without([](ModelConfig& model) { model.rope.yarn.original_times = 40; }), 1e-3);
  }
  if (reads_text()) {
    EXPECT_GT(without([](ModelConfig& model) { model.added_places = false; }), 1e-2);
    EXPECT_GT(without([](ModelConfig& model) { model.rope.condition_rows = 0; }), 1e-2);
    // Rows of zeros after a text are seen too.
    EXPECT_GT(worst(run(load(spec_), kTextRows)), 1e-3);
  }
}

// Rows one at a time, or in parts, give the same bits as all at once.
TEST_P(CosmosGolden, TheCacheChangesNothing) {
  const StreamModel model = load(spec_);
  const auto seen = context(model, kContextRows);
  ModelRunner whole(model, 1, 64), parts(model, 1, 64);
  if (seen) whole.contexts = parts.contexts = {&*seen};
  std::vector<float> rows;
  if (!prompt().empty()) rows = whole.prompt_rows(prompt());
  rows = joined(std::move(rows), whole.token_rows(tokens_));
  const std::vector<float> all = whole.forward({{0, rows}});
  const auto width = static_cast<std::size_t>(model.width());
  std::vector<float> pieces;
  for (std::size_t at = 0; at < rows.size();) {
    const std::size_t take = std::min(rows.size() - at, (at == 0 ? 5 : 1) * width);
    const auto part = parts.forward({{0,
                                      {rows.begin() + static_cast<std::ptrdiff_t>(at),
                                       rows.begin() + static_cast<std::ptrdiff_t>(at + take)}}});
    pieces = joined(std::move(pieces), part);
    at += take;
  }
  EXPECT_EQ(pieces, all);
}

INSTANTIATE_TEST_SUITE_P(Forms, CosmosGolden, ::testing::Values("plain", "text", "wide"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace tessera::cosmos_golden_test
