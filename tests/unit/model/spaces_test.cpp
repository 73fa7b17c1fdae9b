// Token spaces: a model with both halves of a Janus gives each space what it has alone, over one
// transformer, and a stream may go from one to the other.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/families/describe.h"
#include "engine/families/open_model.h"
#include "engine/families/random_weights.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Ids = std::vector<std::int32_t>;

const fs::path kTiny = fs::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "lmm" / "janus";
const Ids kText = {3, 17, 40, 8, 61}, kCodes = {5, 63, 0, 22};

// The recorded Janus, which describes, with made-up weights for what it lacks to generate.
class TokenSpaces : public testing::Test {
 protected:
  TokenSpaces() {
    for (const char* name : {"config.json", "preprocessor_config.json"}) {
      fs::copy_file(kTiny / name, folder_ / name);
    }
    std::map<std::string, Tensor> tensors =
        copy_tensors(Checkpoint::open(kTiny / "model.safetensors"));
    for (const TensorSpec& tensor : load_model_spec(folder_.path()).tensors) {
      if (tensors.contains(tensor.name)) continue;
      tensors.emplace(tensor.name, random_weight(tensor.name, tensor.shape, {.matrix_std = 0}));
    }
    std::map<std::string, ConstTensorView> views;
    for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
    write_safetensors(folder_ / "model.safetensors", views);
  }

  StreamModel load(ModelUse use) const {
    OpenedModel opened = open_model(folder_.path().string(), {.use = use});
    return load_stream_model(opened, *backend_, DType::kF32);
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_ = make_backend("cpu", {.threads = 1});
};

struct Written {
  std::vector<float> prompt, tokens;  // logits after each
  bool operator==(const Written&) const = default;
};

Written write(const TokenModel& model, const Ids& tokens) {
  ModelRunner runner(model, 1, 32);
  Written out;
  out.prompt = runner.logits(runner.forward({{0, runner.prompt_rows(kText)}}));
  out.tokens = runner.logits(runner.forward({{0, runner.token_rows(tokens)}}));
  return out;
}

TEST_F(TokenSpaces, EachGivesWhatItsModelGivesAlone) {
  const StreamModel image = load(ModelUse::kGenerate), text = load(ModelUse::kDescribe);
  const StreamModel both = load(ModelUse::kAll);
  EXPECT_TRUE(image.writes(TokenSpace::kImage) && !image.writes(TokenSpace::kText));
  EXPECT_TRUE(text.writes(TokenSpace::kText) && !text.writes(TokenSpace::kImage));
  ASSERT_TRUE(both.writes(TokenSpace::kText) && both.writes(TokenSpace::kImage));
  EXPECT_EQ(both.space(TokenSpace::kImage).logit_ids(), 64);
  EXPECT_EQ(both.space(TokenSpace::kText).logit_ids(), 96);
  const Written codes = write(image, kCodes), words = write(text, kText);
  EXPECT_EQ(write(both.space(TokenSpace::kImage), kCodes), codes);
  EXPECT_EQ(write(both.space(TokenSpace::kText), kText), words);
  EXPECT_EQ(write(both, kCodes), codes) << "its own stream is images";
  EXPECT_NE(codes.prompt, words.prompt) << "the heads differ";
}

TEST_F(TokenSpaces, TheTransformerIsHeldOnce) {
  const StreamModel image = load(ModelUse::kGenerate), text = load(ModelUse::kDescribe);
  const StreamModel both = load(ModelUse::kAll);
  const auto around = [](const StreamModel& model) {
    return model.weight_bytes() - model.transformer().weight_bytes();
  };
  const std::size_t table = 96 * 32 * sizeof(float);
  EXPECT_EQ(around(both), around(image) + around(text) - table);
  EXPECT_EQ(both.transformer().weight_bytes(),
            std::max(image.transformer().weight_bytes(), text.transformer().weight_bytes()));
}

// Text first, then image codes of the same sequence: what the model of images gives of that prompt.
TEST_F(TokenSpaces, AStreamGoesFromTextToImage) {
  StreamModel loaded = load(ModelUse::kAll);
  const TokenModel& text = loaded.space(TokenSpace::kText);
  const StreamModel both = std::move(loaded);
  EXPECT_EQ(&both.space(TokenSpace::kText), &text) << "spaces stay where they are";
  ModelRunner writer(text, 1, 32), painter(both.space(TokenSpace::kImage), 1, 32);
  // One cache: the rows of the text were written as tokens, one after another.
  for (const std::int32_t id : kText) writer.forward({{0, writer.token_rows({id})}});
  const std::vector<float> switched =
      painter.logits(writer.forward({{0, painter.token_rows(kCodes)}}));
  EXPECT_EQ(switched, write(load(ModelUse::kGenerate), kCodes).tokens);
}

TEST_F(TokenSpaces, OneHalfAloneIsReadWhereTheOtherHasAFault) {
  Json config = parse_json(get_file(kTiny / "config.json"), "config.json");
  config["vq_config"]["double_latent"] = true;
  put_file(folder_ / "config.json", config.dump());
  EXPECT_NO_THROW(load(ModelUse::kDescribe));
  EXPECT_THROW(load(ModelUse::kGenerate), Error);
  EXPECT_THROW(load(ModelUse::kAll), Error);
  config["vq_config"]["double_latent"] = false;
  config["image_token_id"] = -2;
  put_file(folder_ / "config.json", config.dump());
  EXPECT_NO_THROW(load(ModelUse::kGenerate));
  EXPECT_THROW(load(ModelUse::kDescribe), Error);
  EXPECT_THROW(load(ModelUse::kAll), Error);
}

}  // namespace
}  // namespace tessera
