// Draft models after the captioning pipeline, with the bundled captioner: texts are its own
// whoever drafts, passes say how good the draft is, and what cannot draft is refused with both
// models named.
#include "apps/runtime/caption_draft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "apps/lab/models/random_weights.h"
#include "apps/lab/scene/render.h"
#include "apps/runtime/describe_task.h"
#include "apps/runtime/image_queue.h"
#include "engine/sampling/sampling_settings.h"
#include "tests/support/chat_forms.h"
#include "tests/support/scarce_memory.h"
#include "tests/support/temp_folder.h"

namespace tessera::caption_draft_test {
namespace {

const char* const kBundled = "tabletop-llava";
constexpr std::int64_t kTokens = 40;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

// A copy of the bundled captioner that may be changed.
class Copy {
 public:
  explicit Copy(const std::string& name) : path_(folder_ / name) {
    std::filesystem::copy(bundled(), path_);
  }
  static std::filesystem::path bundled() {
    return std::filesystem::path(TESSERA_SOURCE_DIR) / "assets/models" / kBundled;
  }
  std::string path() const { return path_.string(); }
  Copy& change(const std::string& file, const std::string& from, const std::string& to) {
    put_file(path_ / file, replaced(get_file(path_ / file), from, to));
    return *this;
  }
  // Every weight at random; a side of `vocabulary` becomes `as`.
  Copy& randomise(std::int64_t vocabulary = 0, std::int64_t as = 0) {
    std::map<std::string, Tensor> tensors;
    std::map<std::string, ConstTensorView> views;
    const Checkpoint from = Checkpoint::open(path_);
    for (const auto& [name, view] : from.tensors()) {
      std::vector<std::int64_t> sides;
      for (int i = 0; i < view.shape.rank(); ++i) {
        sides.push_back(view.shape[i] == vocabulary ? as : view.shape[i]);
      }
      const Shape shape = sides.size() == 1   ? Shape{sides[0]}
                          : sides.size() == 2 ? Shape{sides[0], sides[1]}
                                              : view.shape;
      tensors.emplace(name, random_weight(name, shape, {.seed = 5, .matrix_std = 0}));
      views.emplace(name, tensors.at(name).view());
    }
    std::filesystem::remove(path_ / "model.safetensors");
    write_safetensors(path_ / "model.safetensors", views);
    return *this;
  }

 private:
  TempFolder folder_;
  std::filesystem::path path_;
};

DescribeOptions options(DraftChoice draft, std::int64_t window = 4) {
  DescribeOptions out;
  out.model = kBundled;
  out.device = "cpu";
  out.threads = 1;
  out.max_tokens = kTokens;
  out.draft = std::move(draft);
  if (out.draft.on()) {
    out.method = decode_method("draft");
    out.method.rule = "gumbel";
    out.method.window = window;
  }
  return out;
}

struct Captions {
  std::map<std::string, std::string> texts;
  std::vector<Caption> all;
  std::int64_t passes = 0, tokens = 0;
};

Captions describe(const DescribeOptions& options, int images = 4) {
  struct Keep final : DescribeListener {
    Captions out;
    void on_caption(Caption&& caption) override {
      EXPECT_FALSE(caption.failed) << format_error(caption.error);
      out.texts[caption.id] = caption.text;
      out.passes += caption.passes;
      out.tokens += caption.tokens;
      out.all.push_back(std::move(caption));
    }
  } keep;
  Runtime runtime;
  DescribeTask task(runtime, options);
  std::vector<DescribeRequest> requests;
  for (int i = 0; i < images; ++i) {
    const SceneImage render =
        render_scene(sample_scene(1000, SceneSplit::kVal, static_cast<std::uint64_t>(i)), 96);
    DescribeRequest& one = requests.emplace_back();
    one.id = std::to_string(i);
    one.prompt = "Describe the picture.";
    one.images.emplace_back().image =
        std::make_shared<Image>(render.width, render.height, render.rgb);
  }
  runtime.finish(task.submit(std::move(requests), keep));
  EXPECT_EQ(keep.out.texts.size(), static_cast<std::size_t>(images));
  return std::move(keep.out);
}

DraftChoice pruned(const std::string& model, const std::string& method, double ratio) {
  DraftChoice out{.model = model};
  out.prune.method = method;
  out.prune.budget.ratio = ratio;
  return out;
}

class CaptionDrafts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(Copy::bundled() / "config.json")) {
      GTEST_SKIP() << "the bundled captioner is not there";
    }
  }
  static std::string refusal(const DescribeOptions& asked, const std::string& code) {
    try {
      Runtime runtime;
      const DescribeTask task(runtime, asked);
    } catch (const Error& error) {
      EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
      EXPECT_EQ(error.info().code, code);
      return format_error(error.info());
    }
    ADD_FAILURE() << "not refused";
    return "";
  }
};

TEST_F(CaptionDrafts, TheCaptionerDraftsForItself) {
  const Captions plain = describe(options({}));
  const Copy copy("twin");
  // The same folder shares its weights, a copy does not; both are always right.
  for (const std::string& name : {std::string(kBundled), copy.path()}) {
    for (const std::int64_t window : {2, 5}) {
      const Captions twin = describe(options({.model = name}, window));
      EXPECT_EQ(twin.texts, plain.texts);
      std::int64_t fewest = 0;
      for (const Caption& caption : twin.all) {
        fewest += 1 + (caption.tokens - 1 + window - 1) / window;
        EXPECT_EQ(caption.draft, name == kBundled ? kBundled : "twin");
        EXPECT_EQ(caption.draft_kept_tokens, caption.visual_tokens);
        EXPECT_GT(caption.seconds.draft, 0);
        EXPECT_EQ(caption.notes.size(), 0u);
      }
      EXPECT_EQ(twin.passes, fewest) << "window " << window;
    }
  }
}

TEST_F(CaptionDrafts, PrunedDraftsBeatARandomOne) {
  Copy random("noise");
  random.randomise();
  const Captions plain = describe(options({}));
  const Captions noise = describe(options({.model = random.path()}));
  EXPECT_EQ(noise.texts, plain.texts);
  EXPECT_EQ(plain.passes, plain.tokens);
  for (const double ratio : {0.5, 0.25, 0.1}) {
    const Captions drafted = describe(options(pruned(kBundled, "divprune", ratio)));
    EXPECT_EQ(drafted.texts, plain.texts);
    EXPECT_LT(drafted.passes, noise.passes) << ratio;
    for (const Caption& caption : drafted.all) {
      EXPECT_EQ(caption.kept_tokens, 144) << "the target keeps all";
      EXPECT_EQ(caption.draft_kept_tokens, std::lround(144 * ratio));
    }
    RecordProperty("passes_" + std::to_string(ratio), std::to_string(drafted.passes));
  }
  // Three tokens of 144 are too few, which shows that the draft sees no more.
  const Captions few = describe(options(pruned(kBundled, "divprune", 0.02)));
  EXPECT_EQ(few.texts, plain.texts);
  EXPECT_GT(few.passes, describe(options({.model = kBundled})).passes);
  RecordProperty("passes_few", std::to_string(few.passes));
  RecordProperty("passes_noise", std::to_string(noise.passes));
  RecordProperty("passes_plain", std::to_string(plain.passes));
}

TEST_F(CaptionDrafts, ABlindDraftReadsTheQuestionAlone) {
  const Captions plain = describe(options({}));
  const Captions blind = describe(options({.model = kBundled, .blind = true}));
  EXPECT_EQ(blind.texts, plain.texts);
  EXPECT_LT(blind.passes, plain.passes);
  for (const Caption& caption : blind.all) EXPECT_EQ(caption.draft_kept_tokens, 0);
  RecordProperty("passes_blind", std::to_string(blind.passes));
}

// Methods in, after and after the encoder and inside the language model; targets pruned too; texts
// at once; texts that are drawn; the exact rule and windows by the clock.
TEST_F(CaptionDrafts, TextsAreTheTargetsOwnHoweverTheyAreWritten) {
  DescribeOptions base = options({});
  for (const bool pruned_target : {false, true}) {
    if (pruned_target) {
      base.prune.method = "fastv";
      base.prune.budget.ratio = 0.3;
    }
    for (const double temperature : {0.0, 1.0}) {
      base.sampling.set(setting::kTemperature, temperature);
      const Captions plain = describe(base);
      std::int64_t batch = 1;
      for (const char* method : {"vispruner", "flowcut", "fastv", "tome", "random"}) {
        DescribeOptions drafted = base;
        drafted.draft = pruned(kBundled, method, 0.2);
        drafted.method = options(drafted.draft, 1 + batch).method;
        drafted.batch_size = batch++ % 3 + 1;
        drafted.method.adaptive = batch % 2 == 0;
        if (temperature == 0 && batch % 2 == 1) drafted.method.rule = "exact";
        EXPECT_EQ(describe(drafted).texts, plain.texts) << method << " " << temperature;
      }
    }
  }
}

TEST_F(CaptionDrafts, AnotherVocabularyIsRefusedWithBothNamed) {
  Copy word("other-word"), special("other-kind"), size("other-size");
  word.change("tokenizer.json", "\"content\": \"<pad>\"", "\"content\": \"<pat>\"")
      .change("tokenizer.json", "\"<pad>\": 0", "\"<pat>\": 0")
      .change("tokenizer_config.json", "\"pad_token\": \"<pad>\"", "\"pad_token\": \"<pat>\"");
  special.change("tokenizer.json", "\"special\": true", "\"special\": false")
      .change("tokenizer_config.json", "\"pad_token\": \"<pad>\",", "");
  size.change("config.json", "\"vocab_size\": 448", "\"vocab_size\": 464").randomise(448, 464);
  const auto expect_parts = [&](const Copy& copy, const std::vector<std::string>& parts) {
    const std::string line = refusal(options({.model = copy.path()}), "E_DRAFT_VOCABULARY");
    for (const std::string& part : parts) {
      EXPECT_NE(line.find(part), std::string::npos) << part << " is not in: " << line;
    }
  };
  expect_parts(word, {"other-word", kBundled, "token 0", "<pad>", "<pat>", "--model-draft"});
  expect_parts(special, {"other-kind", kBundled, "<pad>", "special", "ordinary"});
  expect_parts(size, {"other-size", kBundled, "448", "464"});
}

TEST_F(CaptionDrafts, WhatCannotDraftIsRefusedBeforeWeightsAreRead) {
  DescribeOptions plain = options({.model = kBundled});
  plain.method = {};
  refusal(plain, "E_DECODE_CONFLICT");
  DescribeOptions nobody = options({});
  nobody.method = decode_method("draft");
  refusal(nobody, "E_DECODE_DRAFT");
  DescribeOptions deep = options(pruned(kBundled, "fastv", 0.5));
  deep.draft.prune.options = {{"layer", 40}};
  refusal(deep, "E_PRUNE_LAYERS");
}

// What a blind draft is asked: every family writes questions without images.
TEST(CaptionDraftPrompts, EveryFamilyAsksWithoutImages) {
  for (const ChatForm* each : chat_forms()) {
    const ChatForm& form = *each;
    ChatTurn turn;
    turn.parts.push_back({false, "What is there?"});
    const Prompt prompt = expand_images(form, chat_prompt(form, {turn}, true), {});
    const std::string text = prompt_text(prompt);
    EXPECT_NE(text.find("What is there?"), std::string::npos) << form.name;
    EXPECT_EQ(text.find(form.image), std::string::npos) << form.name;
  }
}

// A draft of another policy sees the image as its own family prepares it.
TEST_F(CaptionDrafts, ImagesArePreparedByBothPolicies) {
  DescribeSpec target, drafter, same;
  target.policy = same.policy = preprocess_policy("llava-1.5-hf");
  drafter.policy = preprocess_policy("qwen2-vl");
  same.together = drafter.policy;
  const PreprocessPolicy &one = target.policy, &other = drafter.policy;
  const SceneImage render = render_scene(sample_scene(1000, SceneSplit::kVal, 0), 96);
  const auto image = std::make_shared<Image>(render.width, render.height, render.rgb);
  DecodedImage decoded_image(image->width, image->height, 3, "pixels");
  decoded_image.pixels = image->rgb;
  const auto take = [&](const DescribeSpec* draft, int images = 1) {
    bool given = false;
    ImageQueue queue(
        [&]() -> std::optional<DescribeRequest> {
          if (std::exchange(given, true)) return std::nullopt;
          DescribeRequest out;
          for (int i = 0; i < images; ++i) out.images.emplace_back().image = image;
          return out;
        },
        target, {}, 2, draft);
    std::optional<PreparedImages> out;
    while (!out && !queue.over()) out = queue.take(true);
    expects(out.has_value(), "a prepared image");
    return std::move(*out);
  };
  const PreparedImages both = take(&drafter);
  ASSERT_EQ(both.draft_images.size(), 1u);
  EXPECT_EQ(both.images[0].views[0].values, preprocess(one, decoded_image).views[0].values);
  EXPECT_EQ(both.draft_images[0].views[0].values, preprocess(other, decoded_image).views[0].values);
  EXPECT_EQ(take(&same).draft_images.size(), 0u) << "the same ones serve both";
  EXPECT_EQ(take(&same, 3).draft_images.size(), 3u) << "but not where several share a prompt";
  EXPECT_EQ(take(nullptr).draft_images.size(), 0u);

  DescribeSpec narrow = drafter;
  narrow.policy.max_aspect = 0.5;  // no image
  const PreparedImages without = take(&narrow);
  EXPECT_FALSE(without.error.has_value());
  EXPECT_EQ(without.images.size(), 1u);
  ASSERT_TRUE(without.draft_error.has_value());
  EXPECT_EQ(without.draft_error->code, "E_PICTURE_ASPECT");
}

// The pipeline shows them to it: one that sees glare is wrong as often as its glare makes it, and
// right again where the target sees the same.
TEST_F(CaptionDrafts, ADraftSeesWhatItsOwnPolicyMakes) {
  Copy glare("glare"), other("other");
  for (Copy* copy : {&glare, &other}) {
    copy->change("preprocessor_config.json", "0.26862954", "0.01")
        .change("preprocessor_config.json", "0.26130258", "0.01");
  }
  const auto fewest = [](const Captions& captions) {
    std::int64_t out = 0;
    for (const Caption& caption : captions.all) out += 1 + (caption.tokens - 1 + 3) / 4;
    return out;
  };
  const Captions plain = describe(options({}));
  const Captions misled = describe(options({.model = glare.path()}));
  EXPECT_EQ(misled.texts, plain.texts);
  EXPECT_GT(misled.passes, fewest(plain));
  DescribeOptions blurred = options({});
  blurred.model = other.path();
  const Captions blurred_plain = describe(blurred);
  EXPECT_NE(blurred_plain.texts, plain.texts);
  for (const std::string& draft : {glare.path(), std::string(kBundled)}) {
    DescribeOptions both = options({.model = draft});
    both.model = other.path();
    const Captions drafted = describe(both);
    EXPECT_EQ(drafted.texts, blurred_plain.texts);
    if (draft == kBundled) {
      EXPECT_GT(drafted.passes, fewest(drafted));
    } else {
      EXPECT_EQ(drafted.passes, fewest(drafted));
    }
  }
}

// Prompts that the draft cannot hold cost drafts: the text is there, and says why.
TEST_F(CaptionDrafts, ATextThatTheDraftCannotHoldIsWrittenWithoutIt) {
  Copy narrow("narrow");
  narrow.change("config.json", "\"max_position_embeddings\": 1024",
                "\"max_position_embeddings\": 100");
  const Captions plain = describe(options({}));
  const Captions alone = describe(options({.model = narrow.path()}));
  EXPECT_EQ(alone.texts, plain.texts);
  EXPECT_EQ(alone.passes, plain.passes);
  for (const Caption& caption : alone.all) {
    EXPECT_EQ(caption.draft, "");
    ASSERT_EQ(caption.notes.size(), 1u);
    EXPECT_NE(caption.notes[0].find("without the draft model"), std::string::npos);
  }
  // Pruned it fits.
  DraftChoice choice = pruned(narrow.path(), "divprune", 0.1);
  const Captions helped = describe(options(choice));
  EXPECT_EQ(helped.texts, plain.texts);
  EXPECT_LT(helped.passes, plain.passes);
}

// Memory that does not last for target and draft of so many texts lasts for fewer.
TEST(CaptionDraftMemory, FewerTextsAtOnceLoseNothing) {
  if (!ScarceMemory::kWorks) GTEST_SKIP() << "sanitizers bring a malloc of their own";
  DescribeOptions asked;
  asked.model = "test:tiny";
  asked.device = "cpu";
  asked.threads = 1;
  asked.batch_size = 8;
  asked.max_tokens = 16;
  asked.draft.model = "test:tiny";
  asked.method = decode_method("draft");
  asked.method.rule = "gumbel";
  struct Keep final : DescribeListener {
    std::map<std::string, Caption> captions;
    std::vector<std::string> notices;
    void on_caption(Caption&& caption) override { captions[caption.id] = std::move(caption); }
    void on_notice(std::string_view text) override { notices.emplace_back(text); }
  };
  Runtime runtime;
  DescribeTask task(runtime, asked);
  task.load();
  const auto run = [&](Keep& keep) {
    task.release();
    std::vector<DescribeRequest> requests;
    for (int number = 0; number < 9; ++number) {
      DescribeRequest& one = requests.emplace_back();
      one.id = std::to_string(number);
      auto image = std::make_shared<Image>(24 + number, 20);
      for (std::size_t i = 0; i < image->rgb.size(); ++i) {
        image->rgb[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(number) + 1);
      }
      one.images.emplace_back().image = std::move(image);
      one.prompt = std::string(1200, 'a');
    }
    runtime.finish(task.submit(std::move(requests), keep));
  };
  Keep plenty, little, none;
  run(plenty);
  ASSERT_EQ(plenty.captions.size(), 9u);
  EXPECT_TRUE(plenty.notices.empty());
  {
    const ScarceMemory scarce(1'200'000);
    run(little);
    EXPECT_GE(scarce.refused(), 2);
  }
  ASSERT_EQ(little.notices.size(), 1u);
  ASSERT_EQ(little.captions.size(), 9u);
  for (const auto& [id, caption] : little.captions) {
    EXPECT_FALSE(caption.failed) << format_error(caption.error);
    EXPECT_EQ(caption.text, plenty.captions.at(id).text);
    EXPECT_EQ(caption.draft, "test:tiny");
    EXPECT_LT(caption.passes, caption.tokens) << "it drafts once its prompt is through";
  }
  const ScarceMemory scarce(20'000);
  run(none);
  ASSERT_EQ(none.captions.size(), 9u);
  for (const auto& [id, caption] : none.captions) {
    EXPECT_TRUE(caption.failed);
    EXPECT_EQ(caption.error.kind, ErrorKind::kMemory) << caption.error.code;
  }
}

}  // namespace
}  // namespace tessera::caption_draft_test
