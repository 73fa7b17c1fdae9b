// Parity of the Janus family with `transformers` (assets/recipes/fixtures_janus.py): hidden states
// of every layer, text and image logits, 25 guided greedy tokens, pixels and codes; from both
// weight layouts. And that this test notices when one tensor is off by 1e-3 or two are swapped.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "engine/core/json.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/model_runner.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/visual/vq_tokenizer.h"

namespace tessera::janus_golden_test {
namespace {

const std::filesystem::path kGolden = source_folder() / "tests" / "golden" / "janus";
constexpr float kGuidance = 5.0f;

std::vector<float> recorded_floats(const Checkpoint& recorded, const std::string& name) {
  const ConstTensorView* view = recorded.find(name);
  expects(view != nullptr, "the fixture recorded this tensor");
  return floats_of(*view);
}

// rows [M, D] x head [V, D] in double.
std::vector<float> naive_head(const std::vector<float>& rows, ConstTensorView head) {
  const std::int64_t width = head.shape[1];
  std::vector<float> out;
  for (std::size_t row = 0; row < rows.size() / static_cast<std::size_t>(width); ++row) {
    for (std::int64_t n = 0; n < head.shape[0]; ++n) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < width; ++k) {
        sum += static_cast<double>(
                   rows[row * static_cast<std::size_t>(width) + static_cast<std::size_t>(k)]) *
               static_cast<double>(head.f32()[n * width + k]);
      }
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

class JanusGolden : public ::testing::Test {
 protected:
  JanusGolden()
      : backend_(chosen_backend({.threads = 2})),
        recorded_(Checkpoint::open(kGolden / "recorded.safetensors")),
        opened_(open_model((kGolden / "checkpoint").string())) {
    prompt_ = ints_of(*recorded_.find("prompt"));
    unconditional_ = ints_of(*recorded_.find("uncond"));
    tokens_ = ints_of(*recorded_.find("tokens"));
  }

  // Largest relative difference over all recorded tensors, by name.
  std::map<std::string, double> differences(const StreamModel& model) {
    const GuidedRun run = guided_run(model, prompt_, unconditional_, kGuidance, tokens_);
    std::map<std::string, double> out;
    for (std::size_t i = 0; i < run.layers.size(); ++i) {
      const std::string name = "hidden." + std::to_string(i);
      out[name] = relative_difference(run.layers[i], recorded_floats(recorded_, name));
    }
    out["hidden.final"] =
        relative_difference(run.final_hidden, recorded_floats(recorded_, "hidden.final"));
    out["head_logits"] =
        relative_difference(run.head_logits, recorded_floats(recorded_, "head_logits"));
    out["guided_logits"] =
        relative_difference(run.guided_logits, recorded_floats(recorded_, "guided_logits"));
    ModelRunner runner(model, 1, 32);
    out["token_rows"] =
        relative_difference(runner.token_rows(tokens_), recorded_floats(recorded_, "token_rows"));
    got_tokens_ = run.tokens;
    final_hidden_ = run.final_hidden;
    return out;
  }

  double worst(const StreamModel& model) {
    double value = 0.0;
    for (const auto& [name, difference] : differences(model)) value = std::max(value, difference);
    return value;
  }

  void expect_parity(const StreamModel& model) {
    for (const auto& [name, difference] : differences(model)) {
      EXPECT_LE(difference, 1e-5) << name;
      RecordProperty(name, std::to_string(difference));
    }
    EXPECT_EQ(got_tokens_, tokens_);
  }

  std::unique_ptr<Backend> backend_;
  Checkpoint recorded_;
  OpenedModel opened_;
  std::vector<std::int32_t> prompt_, unconditional_, tokens_, got_tokens_;
  std::vector<float> final_hidden_;
};

TEST_F(JanusGolden, SpecIsThatOfTheConfiguration) {
  const ModelSpec& spec = opened_.spec;
  EXPECT_EQ(spec.family, "janus");
  EXPECT_EQ(spec.size, "2x32");
  EXPECT_EQ(spec.model.transformer.kv_heads, 2);
  EXPECT_EQ(spec.model.grid_rows, 5);
  EXPECT_EQ(spec.image_height(), 10);
  EXPECT_EQ(spec.model.max_prompt, 128 - 25);
  EXPECT_DOUBLE_EQ(spec.sampling.guidance, 5.0);
}

TEST_F(JanusGolden, PortLayoutEqualsTheReference) {
  const StreamModel model = load_stream_model(opened_, *backend_, DType::kF32);
  EXPECT_EQ(model.unconditional_prompt(prompt_, 2), unconditional_);
  expect_parity(model);
  // Text logits: the head is not uploaded for generating, so it is applied here.
  EXPECT_LE(relative_difference(naive_head(final_hidden_, *opened_.weights->find("lm_head.weight")),
                                recorded_floats(recorded_, "text_logits")),
            1e-5);
}

TEST_F(JanusGolden, EveryInstructionSetAndThreadCountEqualsTheReference) {
  for (const CpuOptions::Isa isa : {CpuOptions::Isa::kReference, CpuOptions::Isa::kAuto}) {
    for (const int threads : {1, 3}) {
      const auto backend = make_backend("cpu", {.threads = threads, .isa = isa});
      expect_parity(load_stream_model(opened_, *backend, DType::kF32));
    }
  }
}

TEST_F(JanusGolden, PixelsAndCodesEqualTheReference) {
  const VqTokenizer vq(*backend_, opened_.spec.vq, *opened_.vq_weights, DType::kF32,
                       TokenizerHalves::kBoth);
  const Tensor image = vq.decode(tokens_, 5, 5);
  EXPECT_LE(relative_difference(floats_of(image.view()), recorded_floats(recorded_, "pixels")),
            1e-4);
  EXPECT_EQ(vq.encode(*recorded_.find("encode.image")), ints_of(*recorded_.find("encode.codes")));
}

// The same weights under the names of the original layout, the vision tower's q, k, v fused.
void write_original_folder(const Checkpoint& port, const std::filesystem::path& folder) {
  const Json names = parse_json(get_file(kGolden / "original_names.json"), "original_names.json");
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, sources] : names.items()) {
    std::vector<std::int64_t> extents;
    std::vector<std::byte> bytes;
    DType dtype = DType::kF32;
    for (const Json& source : sources) {
      const ConstTensorView* view = port.find(source.get<std::string>());
      expects(view != nullptr, "the name table names tensors of the port");
      const auto* data = static_cast<const std::byte*>(view->data);
      bytes.insert(bytes.end(), data, data + view->bytes());
      const auto shape = view->shape.extents();
      const std::int64_t rows = extents.empty() ? 0 : extents[0];
      extents.assign(shape.begin(), shape.end());
      extents[0] += rows;
      dtype = view->dtype;
    }
    if (name.ends_with("pos_embed")) extents.insert(extents.begin(), 1);
    Tensor tensor = Tensor::host(dtype, Shape(extents));
    std::memcpy(tensor.view().data, bytes.data(), bytes.size());
    tensors.emplace(name, std::move(tensor));
  }
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
  write_safetensors(folder / "model.safetensors", views);
  put_file(folder / "config.json", get_file(kGolden / "original_config.json"));
}

TEST_F(JanusGolden, OriginalLayoutEqualsTheReference) {
  const TempFolder folder;
  write_original_folder(*opened_.weights, folder.path());
  OpenedModel original = open_model(folder.path().string());
  EXPECT_EQ(original.spec.vq.names, VqNames::kLlamaGen);
  expect_parity(load_stream_model(original, *backend_, DType::kF32));
  const VqTokenizer vq(*backend_, original.spec.vq, *original.vq_weights, DType::kF32,
                       TokenizerHalves::kDecoder);
  EXPECT_LE(relative_difference(floats_of(vq.decode(tokens_, 5, 5).view()),
                                recorded_floats(recorded_, "pixels")),
            1e-4);
}

// Tensors that generation loads and this test therefore answers for.
std::vector<std::string> loaded_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (name.starts_with("model.language_model.") || name.starts_with("model.generation_")) {
      names.push_back(name);
    }
  }
  return names;
}

TEST_F(JanusGolden, OneTensorOffByAThousandthIsNoticed) {
  const std::vector<std::string> names = loaded_names(*opened_.weights);
  ASSERT_EQ(names.size(), 2 + 2 * 9 + 1 + 8u);
  for (const std::string& name : names) {
    const StreamModel model =
        load_edited(opened_.spec, *opened_.weights, *backend_,
                    [&](std::map<std::string, Tensor>& tensors) { perturb(tensors.at(name)); });
    EXPECT_GT(worst(model), 1e-5) << name;
  }
}

TEST_F(JanusGolden, TwoSwappedTensorsAreNoticed) {
  const std::vector<std::string> names = loaded_names(*opened_.weights);
  int pairs = 0;
  for (std::size_t a = 0; a < names.size(); ++a) {
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (opened_.weights->find(names[a])->shape != opened_.weights->find(names[b])->shape)
        continue;
      ++pairs;
      const StreamModel model = load_edited(opened_.spec, *opened_.weights, *backend_,
                                            [&](std::map<std::string, Tensor>& tensors) {
                                              std::swap(tensors.at(names[a]), tensors.at(names[b]));
                                            });
      EXPECT_GT(worst(model), 1e-5) << names[a] << " and " << names[b];
    }
  }
  EXPECT_GT(pairs, 40);
}

TEST_F(JanusGolden, Bf16StorageIsClose) {
  const StreamModel model = load_stream_model(opened_, *backend_, DType::kBF16);
  const double off = worst(model);
  EXPECT_GT(off, 1e-5) << "bf16 storage must differ from f32";
  EXPECT_LT(off, 0.1);
}

TEST_F(JanusGolden, NanInAWeightIsRefusedByName) {
  const std::string name = "model.language_model.layers.1.mlp.up_proj.weight";
  try {
    load_edited(opened_.spec, *opened_.weights, *backend_,
                [&](std::map<std::string, Tensor>& tensors) {
                  tensors.at(name).f32()[7] = std::nanf("");
                  tensors.at(name).f32()[9] = HUGE_VALF;
                });
    FAIL() << "a NaN was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_EQ(error.info().code, "E_WEIGHT_NOT_FINITE");
    EXPECT_EQ(error.info().where, name + " index 7");
    EXPECT_NE(error.info().found.find("2"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::janus_golden_test
