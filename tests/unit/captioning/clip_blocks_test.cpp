// Clips as visual blocks of every family, and as words of the prompt; pruning over frames with a
// budget of everything is the model as it is.
#include <gtest/gtest.h>

#include <set>

#include "apps/pipeline/clip_prompt.h"
#include "apps/pipeline/prune_session.h"
#include "tests/support/tiny_lmm.h"
#include "tokenizers/text/chat_template.h"

namespace tessera {
namespace {

constexpr std::int64_t kFrames = 3;

ClipFrames three_frames() { return {{0, 1, 65}, {0, 8, 520}, 66.5, 2}; }

Picture frame(int number) {
  Picture out(30, 22, 3, "frame");
  for (std::size_t i = 0; i < out.pixels.size(); ++i) {
    out.pixels[i] =
        static_cast<std::uint8_t>(i * 7 % 251 + i / 90 * static_cast<std::size_t>(3 + number));
  }
  return out;
}

PreprocessedPicture clip_of(const TinyLmm& tiny) {
  ClipPreprocessor maker(tiny.spec.clip, 30, 22, three_frames());
  for (int i = 0; i < kFrames; ++i) maker.add(frame(i));
  return maker.finish();
}

PrunedModel facts_of(const TinyLmm& tiny, std::size_t views) {
  const ModelConfig& language = tiny.spec.text.model.transformer;
  PrunedModel out = tiny.pictures->pruned_model(static_cast<std::int64_t>(views));
  out.llm_layers = static_cast<int>(language.layers);
  out.rope = {language.head_dim, language.rope.theta, language.rope.sections};
  return out;
}

class ClipBlocks : public testing::TestWithParam<const char*> {};

TEST_P(ClipBlocks, EveryTokenKnowsItsFrame) {
  const TinyLmm tiny(GetParam());
  const PreprocessedPicture clip = clip_of(tiny);
  const std::int64_t depth = tiny.spec.clip.view_frames;
  EXPECT_EQ(clip.plan.views, (kFrames + depth - 1) / depth);
  EXPECT_EQ(static_cast<std::int64_t>(clip.views.size()), clip.plan.views);
  const VisualRows rows = tiny.pictures->encode(clip, tiny.spec.three_axes(), nullptr);
  EXPECT_EQ(rows.rows.size(), static_cast<std::size_t>(rows.block.count() * rows.width));
  std::vector<std::int64_t> of_view(static_cast<std::size_t>(clip.plan.views));
  for (const VisualToken& token : rows.block.tokens) {
    if (token.kind == TokenKind::kPatch) ++of_view.at(static_cast<std::size_t>(token.frame));
  }
  for (const std::int64_t count : of_view) EXPECT_EQ(count, of_view[0]);
  EXPECT_GT(of_view[0], 0);
}

// Families without a place for time see frames as pictures: a frame's rows are those of its picture
// alone.
TEST_P(ClipBlocks, AFrameIsThePictureWithoutTiles) {
  const TinyLmm tiny(GetParam());
  if (tiny.spec.clip.view_frames > 1 || tiny.spec.clip.halved) GTEST_SKIP() << "frames are joined";
  const VisualRows clip = tiny.pictures->encode(clip_of(tiny), false, nullptr);
  const VisualRows one =
      tiny.pictures->encode(preprocess(tiny.spec.clip.frame, frame(1)), false, nullptr);
  ASSERT_EQ(clip.rows.size(), kFrames * one.rows.size());
  const auto begin = clip.rows.begin() + static_cast<std::ptrdiff_t>(one.rows.size());
  EXPECT_TRUE(std::equal(one.rows.begin(), one.rows.end(), begin));
}

TEST_P(ClipBlocks, KeepingEverythingIsTheModelAsItIs) {
  const TinyLmm tiny(GetParam());
  const PreprocessedPicture clip = clip_of(tiny);
  const std::int64_t tokens =
      tiny.pictures->encode(clip, tiny.spec.three_axes(), nullptr).block.count();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens) + 4, 20);
  std::fill(ids.begin() + 2, ids.end() - 2, tiny.spec.image_id);
  const auto rows_of = [&](const Pruner* pruner, Scope scope, std::int64_t* kept) {
    Budget budget;
    budget.scope = scope;
    std::optional<PruneSession> session;
    PromptPicture one;
    if (pruner != nullptr) {
      session.emplace(*pruner, facts_of(tiny, clip.views.size()), budget, 1, 1);
      one.session = &*session;
    }
    one.visual = tiny.pictures->encode(clip, tiny.spec.three_axes(), one.session);
    std::vector<PromptPicture> pictures;
    pictures.push_back(std::move(one));
    PromptRows rows = build_prompt(*tiny.text, ids, tiny.spec.image_id, std::move(pictures));
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

INSTANTIATE_TEST_SUITE_P(Families, ClipBlocks, testing::ValuesIn(kTinyFamilies),
                         [](const auto& family) { return test_name(family.param); });

std::string words(ChatTemplate form, const PreprocessPlan& plan) {
  std::vector<ChatPart> parts;
  std::vector<PictureLayout> layouts;
  add_clip(form, plan, 0, parts, layouts);
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
  const ClipFrames frames = three_frames();
  plan.clip =
      ClipPlan{.seconds = frames.seconds, .numbers = frames.numbers, .length = frames.length};
  return plan;
}

// As SmolVLMProcessor writes it (replace_video_token).
TEST(ClipWords, SmolVlmSaysTheTimes) {
  const std::string shown =
      "<fake_token_around_image><global-img><image><image>"
      "<fake_token_around_image>";
  EXPECT_EQ(words(ChatTemplate::kSmolVlm, small_plan(2)),
            "<|im_start|>User: You are provided the following series of three frames from a "
            "0:01:06 [H:MM:SS] video.\n\nFrame from 00:00:" +
                shown + "\nFrame from 00:01:" + shown + "\nFrame from 01:05:" + shown +
                "\n\nWhat happens?<end_of_utterance>\nAssistant:");
}

TEST(ClipWords, TokensOfTheirOwn) {
  EXPECT_EQ(words(ChatTemplate::kQwen2Vl, small_plan(1)),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
            "<|vision_start|><|video_pad|><|video_pad|><|video_pad|><|vision_end|>What happens?"
            "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(words(ChatTemplate::kLlavaOneVision, small_plan(1)),
            "<|im_start|>user\n<video><video><video>\nWhat happens?<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(words(ChatTemplate::kLlava15, small_plan(1)),
            "USER: <image>\n<image>\n<image>\nWhat happens? ASSISTANT:");
}

TEST(ClipWords, NumbersInWords) {
  EXPECT_EQ(number_in_words(0), "zero");
  EXPECT_EQ(number_in_words(19), "nineteen");
  EXPECT_EQ(number_in_words(40), "forty");
  EXPECT_EQ(number_in_words(64), "sixty-four");
  EXPECT_EQ(number_in_words(100), "one hundred");
  EXPECT_EQ(number_in_words(768), "seven hundred and sixty-eight");
  EXPECT_EQ(number_in_words(1000), "1000");
}

}  // namespace
}  // namespace tessera
