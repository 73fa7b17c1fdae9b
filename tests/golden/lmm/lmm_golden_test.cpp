// Whole captioning models against the reference implementation: tiny models of every family with
// random weights, two pictures in a prompt, from pixels to the text that is written.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/text_loop.h"
#include "tests/support/tiny_lmm.h"

namespace tessera {
namespace {

double worst_relative(const std::vector<float>& got, const float* want, std::size_t count) {
  if (got.size() != count) return HUGE_VAL;
  double worst = 0, scale = 0;
  for (std::size_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    scale = std::max(scale, std::abs(static_cast<double>(want[i])));
  }
  return scale > 0 ? worst / scale : HUGE_VAL;
}
double worst_relative(const std::vector<float>& got, const std::vector<float>& want) {
  return worst_relative(got, want.data(), want.size());
}

// Distance in floats between two numbers of one sign.
std::int64_t ulps(float a, float b) {
  std::int32_t x = 0, y = 0;
  std::memcpy(&x, &a, 4);
  std::memcpy(&y, &b, 4);
  return std::abs(static_cast<std::int64_t>(x) - y);
}

struct Prompt {
  std::string prefix;  // of its recordings
  int pictures;
  const PreprocessPolicy* policy = nullptr;  // of the pictures; null = of one alone
  int first = 0;                             // of the recorded pictures
};

class Lmm : public testing::Test {
 protected:
  // Pixels of all views, as recorded.
  static void expect_pixels(const TinyLmm& tiny, const std::vector<PreprocessedPicture>& pictures,
                            const std::string& prefix) {
    std::vector<float> got;
    for (const PreprocessedPicture& picture : pictures) {
      for (const EncoderView& view : picture.views) {
        if (tiny.spec.policy.mode == ResizeMode::kMultiples) {
          const std::vector<float> rows = patch_rows(tiny.spec.policy, view, 2);
          got.insert(got.end(), rows.begin(), rows.end());
        } else {
          got.insert(got.end(), view.values.begin(), view.values.end());
        }
      }
    }
    const std::vector<float> want = tiny.floats(prefix + "pixel_values");
    ASSERT_EQ(got.size(), want.size());
    std::size_t off = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (got[i] != want[i] && ulps(got[i], want[i]) > 1) ++off;
    }
    EXPECT_EQ(off, 0u) << "of " << want.size() << " numbers are off by more than one float";
  }

  static PromptRows build(const TinyLmm& tiny, const Prompt& prompt) {
    std::vector<PreprocessedPicture> prepared;
    std::vector<PromptPicture> visual;
    const PreprocessPolicy& policy = prompt.policy != nullptr ? *prompt.policy : tiny.spec.policy;
    for (int i = 0; i < prompt.pictures; ++i) {
      prepared.push_back(preprocess(policy, tiny.picture(prompt.first + i)));
      visual.push_back({tiny.pictures->encode(prepared.back(), tiny.spec.three_axes(), nullptr)});
    }
    if (prompt.pictures > 0) expect_pixels(tiny, prepared, prompt.prefix);
    const std::vector<std::int32_t> ids = tiny.ints(prompt.prefix + "input_ids");
    return build_prompt(*tiny.text, ids, tiny.spec.image_id, std::move(visual));
  }

  static std::vector<float> values(const Tensor& tensor) {
    return {tensor.view().f32(), tensor.view().f32() + tensor.shape().elements()};
  }

  static std::vector<std::int32_t> greedy(const TinyLmm& tiny, PromptRows rows, std::size_t count) {
    struct Keep final : TextListener {
      std::vector<std::int32_t> tokens;
      void on_done(std::size_t, TextResult&& result) override { tokens = result.tokens; }
    } keep;
    const OwnedParts<float, KeyedRandom> parts(DecodeMethod{}, DecodeAids{});
    TextLoop loop(*tiny.text, {.items = 1, .prompt_rows = 256, .tokens = 64, .chunk = 64},
                  parts.parts());
    TextItem item;
    item.rows = std::move(rows.rows);
    item.places = std::move(rows.places);
    item.next_place = rows.next_place;
    item.most_tokens = static_cast<std::int64_t>(count);
    item.law.temperature = 0;
    loop.add(std::move(item));
    while (!loop.idle()) loop.step(keep);
    return keep.tokens;
  }

  static void expect_parity(const TinyLmm& tiny, const Prompt& prompt) {
    SCOPED_TRACE(prompt.prefix.empty() ? "main" : prompt.prefix);
    PromptRows rows = build(tiny, prompt);
    const std::string& at = prompt.prefix;
    if (tiny.has(at + "embeds")) {
      EXPECT_LT(worst_relative(values(rows.rows), tiny.floats(at + "embeds")), 1e-5);
    }
    const std::vector<std::int32_t> ids = tiny.ints(at + "position_ids");
    const std::size_t count = rows.places.size();
    ASSERT_EQ(ids.size(), tiny.spec.three_axes() ? 3 * count : count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t axis = 0; axis < 3; ++axis) {
        EXPECT_EQ(rows.places[i][axis], ids[tiny.spec.three_axes() ? axis * count + i : i])
            << "row " << i << ", axis " << axis;
      }
    }
    if (tiny.has(at + "rope_delta")) {
      EXPECT_EQ(rows.next_place,
                static_cast<std::int64_t>(count) + tiny.ints(at + "rope_delta")[0]);
    }
    // Hidden state of the last row and logits of the last four.
    const ModelConfig& config = tiny.spec.text.model.transformer;
    const auto total = static_cast<std::int64_t>(count);
    KvCache cache(*tiny.backend, {config.layers, config.kv_heads, config.head_dim, total, 1});
    Arena arena(tiny.text->scratch_bytes(total) + 4096);
    Tensor hidden = Tensor::host(DType::kF32, rows.rows.shape());
    std::vector<std::int64_t> positions;
    for (const auto& place : rows.places) positions.push_back(place[0]);
    const std::vector<std::int32_t> sequences(count, 0);
    tiny.text->transformer().forward({.rows = rows.rows.view(),
                                      .sequences = sequences,
                                      .positions = positions,
                                      .places = rows.places},
                                     cache, arena, hidden.view());
    const std::vector<float> all = values(hidden);
    EXPECT_LT(worst_relative({all.end() - config.width, all.end()}, tiny.floats(at + "hidden")),
              1e-5);
    Tensor logits = Tensor::host(DType::kF32, Shape{4, tiny.spec.text.model.vocab});
    tiny.text->logits({DType::kF32, Shape{4, config.width},
                       hidden.view().f32() + (total - 4) * config.width, Device{}},
                      arena, logits.view());
    EXPECT_LT(worst_relative(values(logits), tiny.floats(at + "logits")), 1e-5);
    const std::vector<std::int32_t> want = tiny.ints(at + "greedy");
    EXPECT_EQ(greedy(tiny, std::move(rows), want.size()), want);
  }
};

class LmmFamily : public Lmm, public testing::WithParamInterface<const char*> {};

// The bundled captioner: one prompt a picture.
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

TEST_P(LmmFamily, TextsWithoutPicturesToo) {
  const TinyLmm tiny(GetParam());
  expect_parity(tiny, {"text.", 0});
}

// Pictures that run through the encoder together are what they are alone.
TEST_P(LmmFamily, PicturesSeenTogether) {
  const TinyLmm tiny(GetParam());
  const PreprocessedPicture two[] = {preprocess(tiny.spec.policy, tiny.picture(0)),
                                     preprocess(tiny.spec.policy, tiny.picture(1))};
  const PreprocessedPicture* const order[] = {&two[1], &two[0], &two[1]};
  std::vector<EncodedPicture> seen = tiny.pictures->look(order);
  ASSERT_EQ(seen.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const bool three_axes = tiny.spec.three_axes();
    const VisualRows alone = tiny.pictures->encode(*order[i], three_axes, nullptr);
    const VisualRows together =
        tiny.pictures->encode(*order[i], three_axes, nullptr, std::move(seen[i]));
    EXPECT_EQ(together.rows, alone.rows) << "picture " << i;
    EXPECT_EQ(together.positions, alone.positions);
  }
}

// LLaVA-OneVision cuts no tiles of pictures that share a prompt.
TEST_F(Lmm, OneVisionShowsPicturesOfOnePromptWhole) {
  const TinyLmm tiny("llava-onevision");
  const PreprocessPolicy& together = tiny.spec.policy_of(2);
  EXPECT_NE(&together, &tiny.spec.policy_of(1));
  expect_parity(tiny, {"multi.", 2, &together});
}

// preprocessor_config.json with "do_image_splitting": false.
TEST_F(Lmm, SmolVlmWithoutTiles) {
  TinyLmm tiny("smolvlm");
  Json preprocessor = parse_json(read_file(tiny.folder / "preprocessor_config.json", 1 << 20), "");
  preprocessor["do_image_splitting"] = false;
  const CaptionSpec single = parse_caption_spec(tiny.spec.config, preprocessor, tiny.folder);
  EXPECT_EQ(&single.policy_of(1), &single.policy_of(2));
  expect_parity(tiny, {"single.", 2, &single.policy});
}

// What the checks above would not see would not be checked.
TEST_P(LmmFamily, AChangedPixelShows) {
  const TinyLmm tiny(GetParam());
  VisualRows rows = tiny.pictures->encode(preprocess(tiny.spec.policy, tiny.picture(0)),
                                          tiny.spec.three_axes(), nullptr);
  const std::vector<float> right = rows.rows;
  Picture changed = tiny.picture(0);
  *changed.at(changed.width / 2, changed.height / 2) ^= 0x40;
  rows =
      tiny.pictures->encode(preprocess(tiny.spec.policy, changed), tiny.spec.three_axes(), nullptr);
  EXPECT_GT(worst_relative(rows.rows, right), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, LmmFamily, testing::ValuesIn(kTinyFamilies),
                         [](const auto& family) { return test_name(family.param); });

}  // namespace
}  // namespace tessera
