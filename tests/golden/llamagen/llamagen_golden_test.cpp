// Parity of LlamaGen's class-conditional transformer with our own reference
// (assets/recipes/fixtures_llamagen.py): hidden states, logits, 25 guided greedy tokens, at head
// widths 16 and 20, from safetensors and from a file that torch.save wrote.
#include <gtest/gtest.h>

#include "apps/lab/models/random_weights.h"
#include "engine/core/io.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/model_runner.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

namespace tessera::llamagen_golden_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = source_folder() / "tests" / "golden" / "llamagen";
constexpr float kGuidance = 4.0f;

// A VQ tokenizer next to the weights, as the family asks for; its values play no part here.
void write_vq(const fs::path& path, std::int64_t codes) {
  VqSpec spec;
  spec.base_channels = 32;
  spec.multipliers = {1};
  spec.res_blocks = 1;
  spec.latent_channels = 4;
  spec.embed_dim = 4;
  spec.codes = codes;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, ConstTensorView> views;
  for (const TensorSpec& tensor : vq_tensors(spec)) {
    Tensor& made = tensors[tensor.name];
    made = random_weight(tensor.name, tensor.shape, {.seed = 3, .matrix_std = 0.0f});
    views[tensor.name] = made.view();
  }
  write_safetensors(path, views);
}

struct Fixture {
  explicit Fixture(const std::string& name)
      : backend(chosen_backend({.threads = 2})),
        recorded(Checkpoint::open(kGolden / (name + ".recorded.safetensors"))) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(kGolden / name / file, folder / file);
    }
    write_vq(folder / "vq.safetensors", recorded.find("guided_logits")->shape[1]);
    opened = open_model(folder.path().string());
    tokens = ints_of(*recorded.find("tokens"));
    chosen = ints_of(*recorded.find("class"));
  }

  std::map<std::string, double> differences(const StreamModel& model) {
    const auto recorded_floats = [&](const std::string& name) {
      return floats_of(*recorded.find(name));
    };
    std::map<std::string, double> out;
    const GuidedRun run =
        guided_run(model, chosen, model.unconditional_prompt(chosen, 0), kGuidance, tokens);
    got_tokens = run.tokens;
    out["head_logits"] = relative_difference(run.head_logits, recorded_floats("head_logits"));
    out["guided_logits"] = relative_difference(run.guided_logits, recorded_floats("guided_logits"));
    // The recorded hidden states are those of one pass over the class token and all tokens but the
    // last: here that is a prefill.
    const auto length = static_cast<std::int64_t>(tokens.size());
    ModelRunner runner(model, 2, length);
    const std::vector<float> rest =
        runner.token_rows(std::vector<std::int32_t>(tokens.begin(), tokens.end() - 1));
    std::vector<std::vector<float>> layers;
    const std::vector<float> final_hidden = runner.forward(
        {{0, joined(runner.prompt_rows(chosen), rest)},
         {1, joined(runner.prompt_rows(model.unconditional_prompt(chosen, 0)), rest)}},
        &layers);
    out["hidden.final"] = relative_difference(final_hidden, recorded_floats("hidden.final"));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string name = "hidden." + std::to_string(i);
      out[name] = relative_difference(layers[i], recorded_floats(name));
    }
    return out;
  }

  double worst(const StreamModel& model) {
    double value = 0.0;
    for (const auto& [name, difference] : differences(model)) value = std::max(value, difference);
    return value;
  }

  void expect_parity(const StreamModel& model) {
    for (const auto& [name, difference] : differences(model)) EXPECT_LE(difference, 1e-5) << name;
    EXPECT_EQ(got_tokens, tokens);
  }

  TempFolder folder;
  std::unique_ptr<Backend> backend;
  Checkpoint recorded;
  OpenedModel opened;
  std::vector<std::int32_t> tokens, chosen, got_tokens;
};

class LlamaGenGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(LlamaGenGolden, EqualsTheReference) {
  Fixture fixture(GetParam());
  EXPECT_EQ(fixture.opened.spec.family, "llamagen");
  EXPECT_EQ(fixture.opened.spec.model.null_class, 10);
  for (const CpuOptions::Isa isa : {CpuOptions::Isa::kReference, CpuOptions::Isa::kAuto}) {
    for (const int threads : {1, 2, 3}) {
      const auto backend = chosen_backend({.threads = threads, .isa = isa});
      fixture.expect_parity(load_stream_model(fixture.opened, *backend, DType::kF32));
      if (chosen_device() != "cpu") return;
    }
  }
}

TEST_P(LlamaGenGolden, OneTensorOffByAThousandthIsNoticed) {
  Fixture fixture(GetParam());
  const Checkpoint& weights = *fixture.opened.weights;
  EXPECT_EQ(weights.tensors().size(), 4 + 2 * 7u);
  for (const auto& [name, unused] : weights.tensors()) {
    const StreamModel model =
        load_edited(fixture.opened.spec, weights, *fixture.backend,
                    [&](std::map<std::string, Tensor>& tensors) { perturb(tensors.at(name)); });
    EXPECT_GT(fixture.worst(model), 1e-5) << name;
  }
}

TEST_P(LlamaGenGolden, TwoSwappedTensorsAreNoticed) {
  Fixture fixture(GetParam());
  const Checkpoint& weights = *fixture.opened.weights;
  int pairs = 0;
  for (auto a = weights.tensors().begin(); a != weights.tensors().end(); ++a) {
    for (auto b = std::next(a); b != weights.tensors().end(); ++b) {
      if (a->second.shape != b->second.shape) continue;
      ++pairs;
      const StreamModel model = load_edited(fixture.opened.spec, weights, *fixture.backend,
                                            [&](std::map<std::string, Tensor>& tensors) {
                                              std::swap(tensors.at(a->first), tensors.at(b->first));
                                            });
      EXPECT_GT(fixture.worst(model), 1e-5) << a->first << " and " << b->first;
    }
  }
  EXPECT_GE(pairs, 15);
}

INSTANTIATE_TEST_SUITE_P(HeadWidths, LlamaGenGolden, ::testing::Values("hd16", "hd20"));

TEST(LlamaGenFiles, TorchSavedWeightsEqualTheReference) {
  Fixture fixture("hd16");
  const TempFolder folder;
  fs::copy_file(kGolden / "c2i_tiny.pt", folder / "c2i_tiny.pt");
  fs::copy_file(kGolden / "hd16" / "config.json", folder / "config.json");
  fs::copy_file(fixture.folder / "vq.safetensors", folder / "vq.safetensors");
  for (const fs::path& path : {folder.path(), folder / "c2i_tiny.pt"}) {
    OpenedModel opened = open_model(path.string());
    fixture.expect_parity(load_stream_model(opened, *fixture.backend, DType::kF32));
  }
}

// A table with cosine 1 and sine 0 for the class row ("identity") is the mistake this family
// invites.
TEST(LlamaGenFiles, ZeroConditionRowsMatter) {
  Fixture fixture("hd16");
  const RopeTable table =
      make_rope_table(*fixture.backend, fixture.opened.spec.model.transformer.rope, 16);
  const std::vector<float> cos = from_device(*fixture.backend, table.cos.view());
  const std::vector<float> sin = from_device(*fixture.backend, table.sin.view());
  for (std::size_t pair = 0; pair < 8; ++pair) {
    EXPECT_EQ(cos[pair], 0.0f);
    EXPECT_EQ(sin[pair], 0.0f);
    EXPECT_EQ(cos[8 + pair], 1.0f) << "place (0, 0)";
  }
  ModelSpec shifted = fixture.opened.spec;
  shifted.model.transformer.rope.condition_rows = 0;
  shifted.model.transformer.rope.grid_rows = 6;
  const StreamModel model = load_edited(shifted, *fixture.opened.weights, *fixture.backend,
                                        [](std::map<std::string, Tensor>&) {});
  EXPECT_GT(fixture.worst(model), 1e-3);
}

}  // namespace
}  // namespace tessera::llamagen_golden_test
