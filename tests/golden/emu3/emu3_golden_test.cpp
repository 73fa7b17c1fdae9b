// Parity of the Emu3 family with `transformers` (assets/recipes/fixtures_emu3.py): hidden states of
// every layer and logits over a whole stream, the guided greedy stream with its control ids, distributions
// under top-k, the decoded image; under the newer and older names of the port and in the authors'
// layout. And that a tensor off by 1e-3 or swapped is noticed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/json.h"
#include "engine/decoding/method_parts.h"
#include "tests/support/chosen_backend.h"
#include "tests/support/model_runner.h"
#include "tests/support/movq_reference.h"
#include "tests/support/source_folder.h"
#include "tests/support/stream_run.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/visual/movq_tokenizer.h"

namespace tessera::emu3_golden_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = source_folder() / "tests" / "golden" / "emu3";
constexpr std::int32_t kFirst = 99;  // joint id of code 0
constexpr std::int64_t kTopK = 20;

class Emu3Golden : public ::testing::Test {
 protected:
  Emu3Golden()
      : backend_(chosen_backend({.threads = 2})),
        recorded_(Checkpoint::open(kGolden / "recorded.safetensors")),
        opened_(open_model(write_port(folder_).string())),
        joint_(ints("tokens")) {}

  // The port's folder: language model and the video tokenizer of tests/golden/movq in one file.
  static fs::path write_port(const TempFolder& folder) {
    const Checkpoint language = Checkpoint::open(kGolden / "language.safetensors");
    const std::map<std::string, Tensor> tokenizer = reference_movq_weights(
        Checkpoint::open(kGolden.parent_path() / "movq" / "movq.safetensors"));
    std::map<std::string, ConstTensorView> views;
    for (const auto& [name, view] : language.tensors()) views.emplace(name, view);
    for (const auto& [name, tensor] : tokenizer) {
      views.emplace("model.vqmodel." + name, tensor.view());
    }
    write_safetensors(folder / "model.safetensors", views);
    put_file(folder / "config.json", get_file(kGolden / "config.json"));
    return folder.path();
  }

  std::vector<std::int32_t> ints(const std::string& name) const {
    return ints_of(*recorded_.find(name));
  }
  std::vector<float> floats(const std::string& name) const {
    return floats_of(*recorded_.find(name));
  }

  // The recorded stream in local ids.
  std::vector<std::int32_t> local() const {
    const VocabularyGrammar grammar = opened_.spec.model.grammar();
    std::vector<std::int32_t> out;
    for (const std::int32_t id : joint_) {
      if (id >= kFirst) out.push_back(id - kFirst);
      if (id == 91) out.push_back(grammar.row_end_id());
      if (id == 92) out.push_back(grammar.grid_end_id());
      if (id == 97) out.push_back(grammar.image_end_id());
      if (id == 94) out.push_back(grammar.stream_end_id());
    }
    return out;
  }

  struct Branch {
    std::vector<std::vector<float>> layers;
    std::vector<float> final, logits;
  };
  Branch run_branch(const StreamModel& model, const std::vector<std::int32_t>& prompt) const {
    std::vector<std::int32_t> fed = local();
    fed.pop_back();
    ModelRunner runner(model, 1, 64);
    Branch out;
    out.final = runner.forward({{0, joined(runner.prompt_rows(prompt), runner.token_rows(fed))}},
                               &out.layers);
    out.logits = runner.logits(out.final);
    return out;
  }

  double worst(const StreamModel& model) const {
    double most = 0;
    for (const auto& [name, prompt] : {std::pair(std::string("cond"), ints("prompt")),
                                       std::pair(std::string("uncond"), ints("negative"))}) {
      const Branch got = run_branch(model, prompt);
      for (std::size_t i = 0; i < got.layers.size(); ++i) {
        most = std::max(most, relative_difference(got.layers[i],
                                                  floats(name + ".hidden." + std::to_string(i))));
      }
      most = std::max(most, relative_difference(got.final, floats(name + ".final")));
      most = std::max(most, relative_difference(got.logits, floats(name + ".logits")));
    }
    return most;
  }

  // The stream that the stream loop writes, greedily.
  std::vector<std::int32_t> generated(const StreamModel& model, const std::string& method_name) const {
    DecodeAids aids;
    aids.grammar = model.config().grammar();
    const DecodeMethod method = settle_method(decode_method(method_name), aids, 8);
    const OwnedParts<float, KeyedRandom> parts(method, aids);
    StreamLoop loop(model,
                    image_limits(model, {.prompt_rows = 16, .window = method.window, .dists = true}),
                    parts.parts());
    Stream item;
    item.prompt.ids = ints("prompt");
    item.unconditional.ids = ints("negative");
    item.dist.guidance = 3.0;
    item.dist.temperature = 0;
    const auto results = run_streams(loop, {&item, 1});
    EXPECT_EQ(results[0].status, StreamStatus::kDone);
    return results[0].tokens;
  }

  void expect_parity(OpenedModel& opened) const {
    const StreamModel model = load_stream_model(opened, *backend_, DType::kF32);
    EXPECT_LE(worst(model), 1e-5);
    EXPECT_EQ(generated(model, "plain"), local());
    EXPECT_EQ(generated(model, "gumbel"), local());
    const MovqTokenizer movq(*backend_, *opened.spec.movq, *opened.vq_weights, DType::kF32,
                             TokenizerHalves::kDecoder);
    const Tensor image = movq.decode(opened.spec.model.grammar().image_codes(local()), 5, 5);
    EXPECT_LE(relative_difference(floats_of(image.view()), floats("pixels")), 1e-5);
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  Checkpoint recorded_;
  OpenedModel opened_;
  std::vector<std::int32_t> joint_;
};

TEST_F(Emu3Golden, SpecIsThatOfTheConfiguration) {
  const ModelSpec& spec = opened_.spec;
  EXPECT_EQ(spec.family, "emu3");
  EXPECT_EQ(spec.size, "2x32");
  EXPECT_EQ(spec.model.transformer.kv_heads, 2);
  EXPECT_DOUBLE_EQ(spec.model.transformer.rope.theta, 1e6);
  EXPECT_FLOAT_EQ(spec.model.transformer.norm_eps, 1e-5f);
  EXPECT_EQ(spec.model.grid_rows, 5);
  EXPECT_EQ(spec.model.image_tokens(), 5 * 6 + 3);
  EXPECT_EQ(spec.model.max_prompt, 128 - 33);
  EXPECT_EQ(spec.sampling.top_k, 2048);
  EXPECT_DOUBLE_EQ(spec.sampling.guidance, 3.0);
  EXPECT_FALSE(spec.video.has_value());
  EXPECT_EQ(spec.prompt.forms.front().after, "<|image start|>5*5<|image token|>");
}

TEST_F(Emu3Golden, PortEqualsTheReference) {
  ASSERT_EQ(local().size(), joint_.size());
  expect_parity(opened_);
}

// Guidance on log-softmax over the whole vocabulary differs from guidance on raw logits by one
// number a row, which neither a cut nor a softmax sees.
TEST_F(Emu3Golden, DistributionsUnderLogSoftmaxGuidanceAreEqual) {
  const StreamModel model = load_stream_model(opened_, *backend_, DType::kF32);
  const auto cond = run_branch(model, ints("prompt")), uncond = run_branch(model, ints("negative"));
  const VocabularyGrammar grammar = model.config().grammar();
  DistributionPipeline<float> dist({.guidance = 3.0, .top_k = kTopK}, grammar);
  const std::vector<float> recorded = floats("laws");
  const std::size_t first_cond = ints("prompt").size() - 1, codes = grammar.codes;
  const std::size_t first_uncond = ints("negative").size() - 1;
  double off = 0;
  for (std::size_t position = 0; position < joint_.size(); ++position) {
    if (grammar.forced(position)) continue;
    dist.process_at(position, std::span(cond.logits).subspan((first_cond + position) * codes, codes),
                   std::span(uncond.logits).subspan((first_uncond + position) * codes, codes));
    EXPECT_EQ(dist.support().size(), static_cast<std::size_t>(kTopK));
    const std::span<const float> got = dist.probabilities();
    for (std::size_t id = 0; id < codes; ++id) {
      off = std::max(off, std::abs(double{got[id]} - recorded[position * codes + id]));
    }
  }
  EXPECT_LE(off, 1e-5);
}

// The same weights under other names.
using Rename = std::string (*)(const std::string&);

std::string replaced(std::string name, const std::string& from, const std::string& to) {
  if (name.starts_with(from)) name.replace(0, from.size(), to);
  return name;
}

void write_renamed(const Checkpoint& from, const fs::path& path, const std::string& only,
                   Rename rename) {
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, view] : from.tensors()) {
    if (name.find(only) != std::string::npos) views.emplace(rename(name), view);
  }
  write_safetensors(path, views);
}

TEST_F(Emu3Golden, OlderNamesOfThePortEqualTheReference) {
  const TempFolder folder;
  put_file(folder / "config.json", get_file(kGolden / "config.json"));
  write_renamed(*opened_.weights, folder / "model.safetensors", "", [](const std::string& name) {
    std::string out = replaced(name, "model.text_model.", "text_model.model.");
    out = replaced(out, "model.vqmodel.", "vqmodel.");
    return replaced(out, "lm_head.", "text_model.lm_head.");
  });
  OpenedModel older = open_model(folder.path().string());
  EXPECT_EQ(older.spec.names.head_out, "text_model.lm_head");
  expect_parity(older);
}

// Text half and tokenizer in two folders; 1x1 convolutions of attention as convolutions.
std::map<std::string, Tensor> author_tokenizer(const Checkpoint& port, MovqSpec spec) {
  const MovqSpec hf = spec;
  spec.names = MovqNames::kEmu3;
  spec.frame.prefix.clear();
  const auto there = movq_tensors(spec), here = movq_tensors(hf);
  std::map<std::string, Tensor> out;
  for (std::size_t i = 0; i < there.size(); ++i) {
    const ConstTensorView* view = port.find(here[i].name);
    expects(view != nullptr && view->shape.elements() == there[i].shape.elements(),
            "both lists name the same tensors in one order");
    Tensor copy = Tensor::host(view->dtype, there[i].shape);
    std::memcpy(copy.view().data, view->data, view->bytes());
    out.emplace(there[i].name, std::move(copy));
  }
  return out;
}

TEST_F(Emu3Golden, AuthorsLayoutEqualsTheReference) {
  const TempFolder folder;
  write_renamed(
      *opened_.weights, folder / "model.safetensors", "text_model",
      [](const std::string& name) { return replaced(name, "model.text_model.", "model."); });
  // The head next to them.
  std::map<std::string, ConstTensorView> views;
  const Checkpoint half = Checkpoint::open(folder / "model.safetensors");
  for (const auto& [name, view] : half.tensors()) views.emplace(name, view);
  views.emplace("lm_head.weight", *opened_.weights->find("lm_head.weight"));
  fs::create_directory(folder / "model");
  write_safetensors(folder / "model" / "model.safetensors", views);
  const Json config = {{"model_type", "Emu3"},
                       {"hidden_size", 32},
                       {"intermediate_size", 48},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"max_position_embeddings", 128},
                       {"vocab_size", 163},
                       {"image_area", 100},
                       {"eol_token_id", 91},
                       {"eof_token_id", 92},
                       {"eoi_token_id", 97},
                       {"eos_token_id", 94},
                       {"rope_theta", 1000000.0}};
  put_file(folder / "model" / "config.json", config.dump());
  EXPECT_THROW(open_model((folder / "model").string()), Error);  // no tokenizer yet
  const auto tensors = author_tokenizer(*opened_.weights, *opened_.spec.movq);
  std::map<std::string, ConstTensorView> tokenizer;
  for (const auto& [name, tensor] : tensors) tokenizer.emplace(name, tensor.view());
  fs::create_directory(folder / "Emu3-VisionTokenizer");
  write_safetensors(folder / "Emu3-VisionTokenizer" / "model.safetensors", tokenizer);
  put_file(folder / "Emu3-VisionTokenizer" / "config.json", Json{{"codebook_size", 64},
                                                                 {"ch", 32},
                                                                 {"ch_mult", {1, 2}},
                                                                 {"z_channels", 4},
                                                                 {"num_res_blocks", 2},
                                                                 {"attn_resolutions", {1}}}
                                                                .dump());
  OpenedModel original = open_model((folder / "model").string());
  EXPECT_EQ(original.spec.movq->names, MovqNames::kEmu3);
  expect_parity(original);
}

std::vector<std::string> loaded_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (name.find("text_model") != std::string::npos || name.starts_with("lm_head")) {
      names.push_back(name);
    }
  }
  return names;
}

TEST_F(Emu3Golden, OneTensorOffByAThousandthIsNoticed) {
  const std::vector<std::string> names = loaded_names(*opened_.weights);
  ASSERT_EQ(names.size(), 2u * 9 + 3);
  for (const std::string& name : names) {
    const StreamModel model =
        load_edited(opened_.spec, *opened_.weights, *backend_,
                    [&](std::map<std::string, Tensor>& tensors) { perturb(tensors.at(name)); });
    EXPECT_GT(worst(model), 1e-5) << name;
  }
}

TEST_F(Emu3Golden, TwoSwappedTensorsAreNoticed) {
  const std::vector<std::string> names = loaded_names(*opened_.weights);
  int pairs = 0;
  for (std::size_t a = 0; a < names.size(); ++a) {
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (opened_.weights->find(names[a])->shape != opened_.weights->find(names[b])->shape) {
        continue;
      }
      ++pairs;
      const StreamModel model = load_edited(opened_.spec, *opened_.weights, *backend_,
                                            [&](std::map<std::string, Tensor>& tensors) {
                                              std::swap(tensors.at(names[a]), tensors.at(names[b]));
                                            });
      EXPECT_GT(worst(model), 1e-5) << names[a] << " and " << names[b];
    }
  }
  EXPECT_GT(pairs, 20);
}

TEST_F(Emu3Golden, NanInAUsedRowIsRefusedByItsPlace) {
  try {
    load_edited(opened_.spec, *opened_.weights, *backend_,
                [&](std::map<std::string, Tensor>& tensors) {
                  tensors.at("lm_head.weight").view().as<std::uint16_t>()[kFirst * 32 + 7] = 0x7fc0;
                });
    FAIL() << "a NaN was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_WEIGHT_NOT_FINITE");
    EXPECT_EQ(error.info().where, "lm_head.weight index " + std::to_string(kFirst * 32 + 7));
  }
}

}  // namespace
}  // namespace tessera::emu3_golden_test
