// Videos as visual blocks of every family, and as words of the prompt; pruning over frames with a
// budget of everything is the model as it is.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "apps/runtime/video_prompt.h"
#include "apps/runtime/prune_session.h"
#include "apps/runtime/verifier_watch.h"
#include "tests/support/chat_forms.h"
#include "tests/support/tiny_lmm.h"
#include "tokenizers/text/chat_template.h"
#include "vision/image/video_preprocess.h"

namespace tessera::video_blocks_test {
namespace {

constexpr std::int64_t kFrames = 3;

VideoFrames three_frames() { return {{0, 1, 65}, {0, 8, 520}, 66.5, 2}; }

DecodedImage frame(int number) {
  DecodedImage out(30, 22, 3, "frame");
  for (std::size_t i = 0; i < out.pixels.size(); ++i) {
    out.pixels[i] =
        static_cast<std::uint8_t>(i * 7 % 251 + i / 90 * static_cast<std::size_t>(3 + number));
  }
  return out;
}

PreprocessedImage video_of(const TinyLmm& tiny) {
  VideoPreprocessor maker(tiny.spec.describe->video, 30, 22, three_frames());
  for (int i = 0; i < kFrames; ++i) maker.add(frame(i));
  return maker.finish();
}

PrunedModel facts_of(const TinyLmm& tiny, std::size_t views) {
  const ModelConfig& language = tiny.spec.model.transformer;
  PrunedModel out = pruned_model_of(tiny.spec.describe->tower, static_cast<std::int64_t>(views));
  out.llm_layers = static_cast<int>(language.layers);
  out.rope = {language.head_dim, language.rope.theta, language.rope.sections};
  return out;
}

class VideoBlocks : public ::testing::TestWithParam<const char*> {};

TEST_P(VideoBlocks, EveryTokenKnowsItsFrame) {
  const TinyLmm tiny(GetParam());
  const PreprocessedImage video = video_of(tiny);
  const std::int64_t depth = tiny.spec.describe->video.view_frames;
  EXPECT_EQ(video.plan.views, (kFrames + depth - 1) / depth);
  EXPECT_EQ(static_cast<std::int64_t>(video.views.size()), video.plan.views);
  const VisualRows rows = tiny.images->encode(video, tiny.spec.three_axes(), nullptr);
  EXPECT_EQ(rows.rows.size(), static_cast<std::size_t>(rows.block.count() * rows.width));
  std::vector<std::int64_t> of_view(static_cast<std::size_t>(video.plan.views));
  for (const VisualToken& token : rows.block.tokens) {
    if (token.kind == TokenKind::kPatch) ++of_view.at(static_cast<std::size_t>(token.frame));
  }
  for (const std::int64_t count : of_view) EXPECT_EQ(count, of_view[0]);
  EXPECT_GT(of_view[0], 0);
}

// Families without a place for time see frames as images: a frame's rows are those of its image
// alone.
class FramesAsImages : public ::testing::TestWithParam<const char*> {};

TEST_P(FramesAsImages, AFrameIsTheImageWithoutTiles) {
  const TinyLmm tiny(GetParam());
  const VisualRows video = tiny.images->encode(video_of(tiny), false, nullptr);
  const VisualRows one =
      tiny.images->encode(preprocess(tiny.spec.describe->video.frame, frame(1)), false, nullptr);
  ASSERT_EQ(video.rows.size(), kFrames * one.rows.size());
  const auto begin = video.rows.begin() + static_cast<std::ptrdiff_t>(one.rows.size());
  EXPECT_TRUE(std::equal(one.rows.begin(), one.rows.end(), begin));
}

TEST_P(VideoBlocks, KeepingEverythingIsTheModelAsItIs) {
  const TinyLmm tiny(GetParam());
  const PreprocessedImage video = video_of(tiny);
  const std::int64_t tokens =
      tiny.images->encode(video, tiny.spec.three_axes(), nullptr).block.count();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens) + 4, 20);
  std::fill(ids.begin() + 2, ids.end() - 2, tiny.spec.describe->image_id);
  const auto rows_of = [&](const Pruner* pruner, Scope scope, std::int64_t* kept) {
    Budget budget;
    budget.scope = scope;
    std::optional<PruneSession> session;
    PromptImage one;
    if (pruner != nullptr) {
      session.emplace(*pruner, facts_of(tiny, video.views.size()), budget, 1, 1);
      one.session = &*session;
    }
    one.visual = tiny.images->encode(video, tiny.spec.three_axes(), one.session);
    std::vector<PromptImage> images;
    images.push_back(std::move(one));
    PromptRows rows =
        build_prompt(*tiny.text, ids, tiny.spec.describe->image_id, std::move(images));
    *kept = rows.kept[0].count();
    const float* data = rows.rows.view().f32();
    return std::pair(std::vector<float>(data, data + rows.rows.shape().elements()), rows.places);
  };
  std::int64_t all = 0, kept = 0;
  const auto whole = rows_of(nullptr, Scope::kPublished, &all);
  for (const char* name : {"divprune", "temporal", "uniform", "verifier", "random"}) {
    const auto pruner = make_pruner(name);
    for (const Scope scope : {Scope::kPublished, Scope::kPerFrame}) {
      EXPECT_EQ(rows_of(pruner.get(), scope, &kept), whole) << name;
      EXPECT_EQ(kept, all) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FramesAsImages,
                         ::testing::Values("llava-1.5", "llava-1.5-full", "llava-next", "janus",
                                         "idefics3", "smolvlm"),
                         [](const auto& family) { return test_name(family.param); });
INSTANTIATE_TEST_SUITE_P(Families, VideoBlocks, ::testing::ValuesIn(kTinyFamilies),
                         [](const auto& family) { return test_name(family.param); });

// All queries of a run, by layer and row.
class AllQueries final : public LayerObserver {
 public:
  void queries(std::int64_t layer, std::int64_t first, ConstTensorView q) override {
    const std::int64_t width = q.shape[1] * q.shape[2];
    for (std::int64_t i = 0; i < q.shape[0]; ++i) {
      const float* data = q.f32() + i * width;
      rows[{layer, first + i}].assign(data, data + width);
    }
  }
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> rows;
};

// Attention that text rows pay each row, mean over layers, heads and text rows, in plain loops.
std::vector<double> plain_attention(const TinyLmm& tiny, const PromptRows& prompt, KvCache& cache,
                                    Tensor& hidden) {
  const ModelConfig& model = tiny.spec.model.transformer;
  const std::int64_t total = prompt.rows.shape()[0];
  Arena arena(tiny.text->scratch_bytes(total) + 4096);
  std::vector<std::int64_t> positions;
  for (const auto& place : prompt.places) positions.push_back(place[0]);
  const std::vector<std::int32_t> sequences(static_cast<std::size_t>(total), 0);
  AllQueries seen;
  tiny.text->transformer().forward_layers({.rows = prompt.rows.view(),
                                           .sequences = sequences,
                                           .positions = positions,
                                           .places = prompt.places},
                                          {0, model.layers}, cache, arena, hidden.view(),
                                          {.observer = &seen});
  std::vector<double> out(static_cast<std::size_t>(total));
  const std::int64_t hd = model.head_dim, group = model.heads / model.kv_heads;
  double count = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const float* keys = cache.keys(layer, 0).f32();
    for (std::int64_t head = 0; head < model.heads; ++head) {
      for (const std::int64_t row : prompt.text_rows) {
        const std::vector<float>& q = seen.rows.at({layer, row});
        std::vector<double> weight;
        double sum = 0;
        for (std::int64_t j = 0; j <= row; ++j) {
          double product = 0;
          for (std::int64_t d = 0; d < hd; ++d) {
            product += static_cast<double>(q[static_cast<std::size_t>(head * hd + d)]) *
                       keys[(j * model.kv_heads + head / group) * hd + d];
          }
          weight.push_back(std::exp(product / std::sqrt(static_cast<double>(hd))));
          sum += weight.back();
        }
        for (std::size_t j = 0; j < weight.size(); ++j) out[j] += weight[j] / sum;
        ++count;
      }
    }
  }
  for (double& value : out) value /= count;
  return out;
}

TEST(VerifierWatching, ScoresAreTheAttentionOfAllLayersAndNothingChanges) {
  for (const char* family : {"llava-1.5-full", "qwen2-vl"}) {
    const TinyLmm tiny(family);
    std::vector<PromptImage> images;
    images.push_back({tiny.images->encode(video_of(tiny), tiny.spec.three_axes(), nullptr)});
    const auto tokens = static_cast<std::size_t>(images[0].visual.total);
    std::vector<std::int32_t> ids = {20, 21};
    ids.insert(ids.end(), tokens, tiny.spec.describe->image_id);
    ids.insert(ids.end(), {22, 23, 24});
    const PromptRows prompt =
        build_prompt(*tiny.text, ids, tiny.spec.describe->image_id, std::move(images));
    const ModelConfig& model = tiny.spec.model.transformer;
    const std::int64_t total = prompt.rows.shape()[0];
    const auto fresh = [&] {
      return KvCache(*tiny.backend, {model.layers, model.kv_heads, model.head_dim, total, 1});
    };
    KvCache first = fresh(), second = fresh();
    Tensor plain = Tensor::host(DType::kF32, Shape{total, model.width});
    const std::vector<double> want = plain_attention(tiny, prompt, first, plain);
    VerifierWatch watch(model, *tiny.backend, prompt.image_rows, prompt.text_rows);
    Arena arena(tiny.text->scratch_bytes(total) + 4096);
    Tensor last = Tensor::host(DType::kF32, Shape{1, model.width});
    run_prompt_in_parts(tiny.text->transformer(), 0, prompt.rows.view(), prompt.places, watch,
                        second, arena, last.view());
    for (std::int64_t i = 0; i < model.width; ++i) {
      EXPECT_EQ(last.view().f32()[i], plain.view().f32()[(total - 1) * model.width + i]);
    }
    ASSERT_EQ(watch.image_sizes(), std::vector<std::int64_t>{static_cast<std::int64_t>(tokens)});
    const auto scores = watch.take_scores();
    ASSERT_EQ(scores.size(), 1u);
    ASSERT_EQ(scores[0].size(), tokens);
    for (std::size_t i = 0; i < tokens; ++i) {
      const auto row = static_cast<std::size_t>(prompt.image_rows[0][i]);
      EXPECT_NEAR(scores[0][i], want[row], 1e-6) << family << " token " << i;
    }
    EXPECT_TRUE(watch.take_scores().empty()) << "once";
  }
}

std::string words(const ChatForm& form, const PreprocessPlan& plan) {
  std::vector<ChatPart> parts;
  std::vector<ImageLayout> layouts;
  add_video(form, plan, 0, parts, layouts);
  parts.push_back({false, "What happens?"});
  return prompt_text(
      expand_images(form, chat_prompt(form, {{ChatRole::kUser, parts}}, true), layouts));
}

PreprocessPlan small_plan(std::int64_t tokens_a_frame) {
  PreprocessPlan plan;
  plan.views = kFrames;
  plan.view_rows = 1;
  plan.view_cols = tokens_a_frame;
  plan.tokens = kFrames * tokens_a_frame;
  const VideoFrames frames = three_frames();
  plan.video =
      VideoPlan{.seconds = frames.seconds, .numbers = frames.numbers, .length = frames.length};
  return plan;
}

// As SmolVLMProcessor writes it (replace_video_token).
TEST(VideoWords, SmolVlmSaysTheTimes) {
  const std::string shown =
      "<fake_token_around_image><global-img><image><image>"
      "<fake_token_around_image>";
  EXPECT_EQ(words(form_named("smolvlm"), small_plan(2)),
            "<|im_start|>User: You are provided the following series of three frames from a "
            "0:01:06 [H:MM:SS] video.\n\nFrame from 00:00:" +
                shown + "\nFrame from 00:01:" + shown + "\nFrame from 01:05:" + shown +
                "\n\nWhat happens?<end_of_utterance>\nAssistant:");
}

TEST(VideoWords, TokensOfTheirOwn) {
  EXPECT_EQ(words(form_named("qwen2-vl"), small_plan(1)),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
            "<|vision_start|><|video_pad|><|video_pad|><|video_pad|><|vision_end|>What happens?"
            "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(words(form_named("llava-onevision"), small_plan(1)),
            "<|im_start|>user <video><video><video>\nWhat happens?<|im_end|>"
            "<|im_start|>assistant\n");
  EXPECT_EQ(words(form_named("llava-1.5"), small_plan(1)),
            "USER: <image>\n<image>\n<image>\nWhat happens? ASSISTANT:");
}

TEST(VideoWords, NumbersInWords) {
  EXPECT_EQ(number_in_words(0), "zero");
  EXPECT_EQ(number_in_words(19), "nineteen");
  EXPECT_EQ(number_in_words(40), "forty");
  EXPECT_EQ(number_in_words(64), "sixty-four");
  EXPECT_EQ(number_in_words(100), "one hundred");
  EXPECT_EQ(number_in_words(768), "seven hundred and sixty-eight");
  EXPECT_EQ(number_in_words(1000), "1000");
}

}  // namespace
}  // namespace tessera::video_blocks_test
