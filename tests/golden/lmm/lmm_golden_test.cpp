// Whole captioning models against the reference implementation: tiny models of every family with
// random weights, two images in a prompt, from pixels to the text that is written.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/io.h"
#include "engine/families/generation_defaults.h"
#include "engine/families/gguf_pair.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/golden/lmm/parity.h"
#include "tests/support/tiny_lmm.h"

namespace tessera::lmm_golden_test {
namespace {

struct LmmPrompt {
  std::string prefix;  // of its recordings
  int images;
  const PreprocessPolicy* policy = nullptr;  // of the images; null = of one alone
  int first = 0;                             // of the recorded images
};

class Lmm : public ::testing::Test {
 protected:
  // Pixels of all views, as recorded.
  static void expect_pixels(const TinyLmm& tiny, const std::vector<PreprocessedImage>& images,
                            const std::string& prefix) {
    std::vector<float> got;
    for (const PreprocessedImage& image : images) {
      for (const EncoderView& view : image.views) {
        if (tiny.spec.describe->policy.mode == ResizeMode::kMultiples) {
          const std::vector<float> rows = patch_rows(tiny.spec.describe->policy, view, 2);
          got.insert(got.end(), rows.begin(), rows.end());
        } else {
          got.insert(got.end(), view.values.begin(), view.values.end());
        }
      }
    }
    expect_same_pixels(got, tiny.floats(prefix + "pixel_values"));
  }

  static PromptRows build(const TinyLmm& tiny, const LmmPrompt& prompt) {
    std::vector<PreprocessedImage> prepared;
    std::vector<PromptImage> visual;
    const PreprocessPolicy& policy =
        prompt.policy != nullptr ? *prompt.policy : tiny.spec.describe->policy;
    for (int i = 0; i < prompt.images; ++i) {
      prepared.push_back(preprocess(policy, tiny.image(prompt.first + i)));
      visual.push_back({tiny.images->encode(prepared.back(), tiny.spec.three_axes(), nullptr)});
    }
    if (prompt.images > 0) expect_pixels(tiny, prepared, prompt.prefix);
    const std::vector<std::int32_t> ids = tiny.ints(prompt.prefix + "input_ids");
    return build_prompt(*tiny.text, ids, tiny.spec.describe->image_id, std::move(visual));
  }

  static void expect_parity(const TinyLmm& tiny, const LmmPrompt& prompt) {
    SCOPED_TRACE(prompt.prefix.empty() ? "main" : prompt.prefix);
    PromptRows rows = build(tiny, prompt);
    expect_rows_parity(tiny, std::move(rows), prompt.prefix);
  }
};

class LmmFamily : public Lmm, public ::testing::WithParamInterface<const char*> {};

// The bundled captioner: one prompt an image.
TEST_F(Lmm, TabletopLlava) {
  const TinyLmm tiny(
      std::filesystem::path(TESSERA_SOURCE_DIR) / "assets" / "models" / "tabletop-llava",
      TinyLmm::goldens() / "tabletop-llava.safetensors", 1);
  expect_parity(tiny, {"0.", 1, nullptr, 0});
  expect_parity(tiny, {"1.", 1, nullptr, 1});
}

TEST_P(LmmFamily, EqualsTheReference) {
  const TinyLmm tiny(GetParam());
  expect_parity(tiny, {"", 2});
}

TEST_P(LmmFamily, TextsWithoutImagesToo) {
  const TinyLmm tiny(GetParam());
  expect_parity(tiny, {"text.", 0});
}

// Images that run through the encoder together are what they are alone.
TEST_P(LmmFamily, ImagesSeenTogether) {
  const TinyLmm tiny(GetParam());
  const PreprocessedImage two[] = {preprocess(tiny.spec.describe->policy, tiny.image(0)),
                                     preprocess(tiny.spec.describe->policy, tiny.image(1))};
  const PreprocessedImage* const order[] = {&two[1], &two[0], &two[1]};
  std::vector<EncodedTiles> seen = tiny.images->look(order);
  ASSERT_EQ(seen.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const bool three_axes = tiny.spec.three_axes();
    const VisualRows alone = tiny.images->encode(*order[i], three_axes, nullptr);
    const VisualRows together =
        tiny.images->encode(*order[i], three_axes, nullptr, std::move(seen[i]));
    EXPECT_EQ(together.rows, alone.rows) << "picture " << i;
    EXPECT_EQ(together.positions, alone.positions);
  }
}

// Pairs of GGUF files with the weights of the folders (assets/recipes/fixtures_gguf_vision.py).
class LmmPair : public Lmm, public ::testing::WithParamInterface<const char*> {};

TEST_P(LmmPair, EqualsTheReference) {
  const std::filesystem::path pair = TinyLmm::goldens().parent_path() / "gguf_vision" / GetParam();
  FolderAccount account;
  const TinyLmm tiny(open_gguf_pair(pair / "model.gguf", pair / "mmproj-model.gguf", account),
                     TinyLmm::goldens() / GetParam() / "recorded.safetensors");
  EXPECT_EQ(tiny.spec.describe->image_id, 90);
  expect_parity(tiny, {"", 2});
  expect_parity(tiny, {"text.", 0});
  std::size_t used = 0;
  for (const KeyAccount& key : account.keys) {
    EXPECT_NE(key.use, KeyUse::kUnknown) << key.key;
    used += key.use == KeyUse::kUsed ? 1 : 0;
  }
  EXPECT_GE(used, 20u);
}

INSTANTIATE_TEST_SUITE_P(Pairs, LmmPair,
                         ::testing::Values("llava-1.5", "llava-next", "qwen2-vl", "qwen2.5-vl",
                                           "idefics3", "smolvlm"),
                         [](const auto& test) { return test_name(test.param); });

// LLaVA-OneVision cuts no tiles of images that share a prompt.
TEST_F(Lmm, OneVisionShowsImagesOfOnePromptWhole) {
  const TinyLmm tiny("llava-onevision");
  const PreprocessPolicy& together = tiny.spec.describe->policy_of(2);
  EXPECT_NE(&together, &tiny.spec.describe->policy_of(1));
  expect_parity(tiny, {"multi.", 2, &together});
}

// preprocessor_config.json with "do_image_splitting": false.
TEST_F(Lmm, SmolVlmWithoutTiles) {
  TinyLmm tiny("smolvlm");
  Json preprocessor = parse_json(read_file(tiny.folder / "preprocessor_config.json", 1 << 20), "");
  preprocessor["do_image_splitting"] = false;
  const ModelSpec whole =
      parse_describing_config(tiny.spec.describe->config, preprocessor, std::nullopt, tiny.folder);
  const DescribeSpec& single = *whole.describe;
  EXPECT_EQ(&single.policy_of(1), &single.policy_of(2));
  expect_parity(tiny, {"single.", 2, &single.policy});
}

// assets/recipes/fixtures_processors.py: generate() under configurations of logits processors, which
// count the ids that stand for visual tokens.
TEST_P(LmmFamily, WritesTheTextsOfLogitsProcessors) {
  const std::filesystem::path path =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/processors/texts.json";
  const Json golden = parse_json(read_file(path, 1 << 20), path.string());
  const TinyLmm tiny(GetParam());
  int texts = 0;
  for (const Json& text : golden.at("texts")) {
    if (text.at("family") != GetParam()) continue;
    const auto prefix = text.at("prompt").get<std::string>();
    const Json& config = text.at("config");
    const SettingValues chosen = read_processors(JsonReader(config, "generation_config.json"),
                                                 tiny.spec.model.vocab);
    constexpr std::size_t kNewTokens = 12;
    PromptRows rows = build(tiny, {prefix, prefix.empty() ? 2 : 0});
    const auto written = greedy(*tiny.text, std::move(rows), kNewTokens, [&](Stream& stream) {
      stream.dist = settle_dist({.temperature = 0}, chosen);
      stream.stops = text.at("stops").get<std::vector<std::int32_t>>();
      stream.processed = tiny.ints(prefix + "input_ids");
    });
    EXPECT_EQ(written, text.at("tokens").get<std::vector<std::int32_t>>())
        << prefix << config.dump();
    ++texts;
  }
  const std::set<std::string> recorded = {"llava-1.5", "llava-next", "qwen2-vl",
                                          "qwen2.5-vl", "idefics3", "smolvlm"};
  EXPECT_GE(texts, recorded.contains(GetParam()) ? 5 : 0);
}

// What the checks above would not see would not be checked.
TEST_P(LmmFamily, AChangedPixelShows) {
  const TinyLmm tiny(GetParam());
  VisualRows rows = tiny.images->encode(preprocess(tiny.spec.describe->policy, tiny.image(0)),
                                          tiny.spec.three_axes(), nullptr);
  const std::vector<float> right = rows.rows;
  DecodedImage changed = tiny.image(0);
  *changed.at(changed.width / 2, changed.height / 2) ^= 0x40;
  rows = tiny.images->encode(preprocess(tiny.spec.describe->policy, changed),
                               tiny.spec.three_axes(), nullptr);
  EXPECT_GT(worst_relative(rows.rows, right), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, LmmFamily, ::testing::ValuesIn(kTinyFamilies),
                         [](const auto& family) { return test_name(family.param); });

}  // namespace
}  // namespace tessera::lmm_golden_test
