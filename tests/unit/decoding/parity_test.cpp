// The shipped loop against the references: guided greedy tokens as recorded from the reference
// implementations (tests/golden), for a text model and a class-conditional one.
#include <gtest/gtest.h>

#include <string>

#include "apps/lab/models/random_weights.h"
#include "engine/families/open_model.h"
#include "engine/nn/vq_spec.h"
#include "tests/support/stream_run.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::parity_test {
namespace {

const std::string kGolden = TESSERA_SOURCE_DIR "/tests/golden/";

std::vector<std::int32_t> ints_of(const Checkpoint& recorded, const char* name) {
  const ConstTensorView* view = recorded.find(name);
  EXPECT_NE(view, nullptr) << name;
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; view != nullptr && i < view->shape.elements(); ++i) {
    out.push_back(view->dtype == DType::kI64
                      ? static_cast<std::int32_t>(view->as<std::int64_t>()[i])
                      : view->as<std::int32_t>()[i]);
  }
  return out;
}

std::vector<std::int32_t> decode_greedily(const std::string& checkpoint,
                                          const std::vector<std::int32_t>& prompt,
                                          const std::vector<std::int32_t>& uncond,
                                          double guidance) {
  OpenedModel opened = open_model(checkpoint);
  const auto backend = make_backend("cpu", {.threads = 2});
  const StreamModel model = load_stream_model(opened, *backend, DType::kF32);
  Stream item{.prompt = {prompt}, .unconditional = {uncond}};
  item.dist.guidance = guidance;
  item.dist.temperature = 0;
  if (item.unconditional.ids.empty())
    item.unconditional.ids = unconditional_prompt(model.config(), prompt, 0);
  StreamLoop loop(model, image_limits(model, {.items = 1, .prompt_rows = 64}), equality_parts());
  return run_streams(loop, {&item, 1})[0].tokens;
}

TEST(DecodeParity, JanusGuidedGreedyTokens) {
  const Checkpoint recorded = Checkpoint::open(kGolden + "janus/recorded.safetensors");
  const auto want = ints_of(recorded, "tokens");
  const auto prompt = ints_of(recorded, "prompt"), uncond = ints_of(recorded, "uncond");
  ASSERT_GE(want.size(), 24u);
  EXPECT_EQ(decode_greedily(kGolden + "janus/checkpoint", prompt, uncond, 5), want);
  EXPECT_NE(decode_greedily(kGolden + "janus/checkpoint", prompt, uncond, 2), want)
      << "other guidance gives the same image: the check would not see guidance";
  EXPECT_NE(decode_greedily(kGolden + "janus/checkpoint", prompt, prompt, 5), want);
}

// The recorded checkpoint has no VQ file, and a model does not open without one: any will do here.
void complete_folder(const std::string& golden, const std::filesystem::path& folder,
                     std::int64_t codes) {
  for (const char* file : {"/config.json", "/model.safetensors"}) {
    std::filesystem::copy_file(golden + file, folder.string() + file);
  }
  VqSpec spec;
  spec.base_channels = 32;
  spec.multipliers = {1};
  spec.res_blocks = 1;
  spec.latent_channels = spec.embed_dim = 4;
  spec.codes = codes;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, ConstTensorView> views;
  for (const TensorSpec& tensor : vq_tensors(spec)) {
    Tensor& made = tensors[tensor.name];
    made = random_weight(tensor.name, tensor.shape, {.seed = 3, .matrix_std = 0.0f});
    views[tensor.name] = made.view();
  }
  write_safetensors(folder / "vq.safetensors", views);
}

TEST(DecodeParity, LlamaGenGuidedGreedyTokens) {
  for (const char* name : {"hd16", "hd20"}) {
    const Checkpoint recorded =
        Checkpoint::open(kGolden + "llamagen/" + name + ".recorded.safetensors");
    const auto want = ints_of(recorded, "tokens");
    ASSERT_GE(want.size(), 24u);
    const TempFolder folder;
    complete_folder(kGolden + "llamagen/" + name, folder.path(),
                    recorded.find("guided_logits")->shape[1]);
    EXPECT_EQ(decode_greedily(folder.path().string(), ints_of(recorded, "class"), {}, 4), want)
        << name;
  }
}

}  // namespace
}  // namespace tessera::parity_test
