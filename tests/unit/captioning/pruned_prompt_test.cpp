// Every pruner in whole models: a budget of everything is the model as it is, a smaller one leaves
// what it says with the right places, and texts of pruned prompts do not depend on drafts.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/decoding/method_parts.h"
#include "tests/support/device_values.h"
#include "tests/support/stream_run.h"
#include "tests/support/tiny_lmm.h"

namespace tessera::pruned_prompt_test {
namespace {

// A prompt of two images pruned alike.
struct Pruned {
  std::vector<std::unique_ptr<PruneSession>> sessions;
  PromptRows rows;
};

PrunedModel facts_of(const TinyLmm& tiny, std::size_t views) {
  const ModelConfig& language = tiny.spec.model.transformer;
  PrunedModel out = pruned_model_of(tiny.spec.describe->tower, static_cast<std::int64_t>(views));
  out.llm_layers = static_cast<int>(language.layers);
  out.rope = {language.head_dim, language.rope.theta, language.rope.sections};
  return out;
}

// `together`: the way of images that share a prompt, where the reference recorded one.
Pruned prune(const TinyLmm& tiny, const Pruner* pruner, const Budget& budget,
             bool together = false) {
  Pruned out;
  const PreprocessPolicy& policy =
      together ? tiny.spec.describe->policy_of(2) : tiny.spec.describe->policy;
  std::vector<PromptImage> images;
  for (int i = 0; i < 2; ++i) {
    const PreprocessedImage image = preprocess(policy, tiny.image(i));
    PromptImage& visual = images.emplace_back();
    if (pruner != nullptr) {
      out.sessions.push_back(std::make_unique<PruneSession>(
          *pruner, facts_of(tiny, image.views.size()), budget, 7, static_cast<std::uint64_t>(i)));
      visual.session = out.sessions.back().get();
    }
    visual.visual = tiny.images->encode(image, tiny.spec.three_axes(), visual.session);
  }
  out.rows = build_prompt(*tiny.text, tiny.ints(together ? "multi.input_ids" : "input_ids"),
                          tiny.spec.describe->image_id, std::move(images));
  return out;
}

struct Written {
  std::vector<std::int32_t> tokens;
  std::int64_t left = 0;  // visual tokens after all cuts
};

Written write(const TinyLmm& tiny, Pruned pruned, const std::string& drafter, std::int64_t window) {
  struct Keep final : StreamListener {
    std::vector<std::int32_t> tokens;
    void on_done(std::size_t, StreamResult&& result) override { tokens = result.tokens; }
  } keep;
  DecodeMethod method;
  method.drafter = drafter;
  method.rule = drafter == "none" ? "exact" : "gumbel";
  method.window = window;
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(tiny.spec.model.vocab), 24);
  const OwnedParts<float, KeyedRandom> parts(method, aids);
  StreamLoop loop(
      *tiny.text,
      text_limits(*tiny.text, 24, {.items = 1, .prompt_rows = 256, .window = window, .budget = 33}),
      parts.parts());
  Stream item = greedy_text(std::move(pruned.rows.rows), std::move(pruned.rows.places),
                            pruned.rows.next_place, pruned.rows.cuts.get(), 24);
  item.before = pruned.rows.text;
  loop.add(std::move(item));
  while (!loop.idle()) loop.step(keep);
  Written out{keep.tokens};
  const auto blocks = pruned.rows.cuts ? pruned.rows.cuts->blocks() : pruned.rows.kept;
  for (const VisualBlock& block : blocks) out.left += block.count();
  return out;
}

std::vector<float> values(const TinyLmm& tiny, const Pruned& pruned) {
  return from_device(*tiny.backend, pruned.rows.rows.view());
}

// Layers that a model of two or three layers has.
std::vector<PruneOption> options_for(const std::string& method) {
  if (method == "fastv") return {{"layer", 1}};
  if (method == "corematching") return {{"layer", 0}};
  if (method == "flowcut") return {{"llm_layer", 0}};
  return {};
}

bool on_patches(const Pruner& pruner, const PrunedModel& model) {
  for (const Hook& hook : pruner.hooks(model)) {
    if (hook.point != HookPoint::kAfterProjector && hook.point != HookPoint::kBeforeLlm) {
      return true;
    }
  }
  return false;
}

struct Case {
  std::string family, method;
};
std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const char* family : kTinyFamilies) {
    for (const PrunerRow& row : pruner_table()) out.push_back({family, std::string(row.name)});
  }
  return out;
}

class PrunedPrompt : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    tiny_ = std::make_unique<TinyLmm>(GetParam().family);
    std::vector<PruneOption> options = options_for(GetParam().method);
    // Three stages do not fit two layers.
    const std::int64_t layers = tiny_->spec.model.transformer.layers;
    if (GetParam().method == "sparsevlm" && layers < 4) {
      GTEST_SKIP() << "three cuts need four layers";
    }
    pruner_ = make_pruner(GetParam().method, options);
  }
  // Whether this family's tokens are patches of its encoder.
  bool served() const {
    const bool whole = tiny_->spec.describe->tower.projector.cell > 1 ||
                       tiny_->spec.describe->policy.max_map_tiles > 0 ||
                       tiny_->spec.describe->tower.vit.class_token_feature;
    return !whole || !on_patches(*pruner_, facts_of(*tiny_, 1));
  }

  std::unique_ptr<TinyLmm> tiny_;
  std::unique_ptr<Pruner> pruner_;
};

TEST_P(PrunedPrompt, EverythingKeptIsTheModelAsItIs) {
  if (!served()) {
    EXPECT_THROW(prune(*tiny_, pruner_.get(), {}), Error);
    return;
  }
  Pruned whole = prune(*tiny_, nullptr, {}), kept = prune(*tiny_, pruner_.get(), {});
  EXPECT_EQ(values(*tiny_, kept), values(*tiny_, whole));
  EXPECT_EQ(kept.rows.places, whole.rows.places);
  EXPECT_EQ(kept.rows.next_place, whole.rows.next_place);
  EXPECT_EQ(write(*tiny_, std::move(kept), "none", 1).tokens,
            write(*tiny_, std::move(whole), "none", 1).tokens);
}

TEST_P(PrunedPrompt, HalfIsHalfAndDraftsChangeNothing) {
  if (!served()) return;
  Budget half;
  half.ratio = 0.5;
  std::int64_t total = 0, structure = 0;
  {
    const Pruned whole = prune(*tiny_, nullptr, {});
    for (const VisualBlock& block : whole.rows.kept) {
      for (const VisualToken& token : block.tokens) {
        (token.kind == TokenKind::kPatch ? total : structure) += 1;
      }
    }
  }
  const Written plain = write(*tiny_, prune(*tiny_, pruner_.get(), half), "none", 1);
  EXPECT_LT(plain.left, total + structure);
  EXPECT_GE(plain.left, total / 3);
  EXPECT_LE(plain.left - structure, total * 2 / 3 + 2);
  for (const char* drafter : {"lookup", "recycling"}) {
    const Written drafted = write(*tiny_, prune(*tiny_, pruner_.get(), half), drafter, 5);
    EXPECT_EQ(drafted.tokens, plain.tokens) << drafter;
    EXPECT_EQ(drafted.left, plain.left);
  }
}

// Ids of kept tokens: as they were, or one after the other.
TEST_P(PrunedPrompt, PlacesFollowThePolicy) {
  if (!served()) return;
  Budget half;
  half.ratio = 0.5;
  const Pruned whole = prune(*tiny_, nullptr, {}), kept = prune(*tiny_, pruner_.get(), half);
  const bool renumbered =
      !tiny_->spec.three_axes() && kept.sessions[0]->positions() == PositionPolicy::kRenumber;
  if (renumbered) {
    for (std::size_t i = 0; i < kept.rows.places.size(); ++i) {
      EXPECT_EQ(kept.rows.places[i][0], static_cast<std::int64_t>(i));
    }
    EXPECT_EQ(kept.rows.next_place, static_cast<std::int64_t>(kept.rows.places.size()));
    return;
  }
  EXPECT_EQ(kept.rows.next_place, whole.rows.next_place);
  EXPECT_EQ(kept.rows.places.back(), whole.rows.places.back());
  for (const auto& place : kept.rows.places) {
    EXPECT_NE(std::find(whole.rows.places.begin(), whole.rows.places.end(), place),
              whole.rows.places.end());
  }
}

// VisionZip's code puts merged tokens after the others; on request the prompt does too.
TEST(VisionZipOrder, DominantTokensComeFirstWhenAsked) {
  const TinyLmm tiny("llava-1.5");
  Budget half;
  half.ratio = 0.5;
  const auto raster = make_pruner("visionzip", std::vector<PruneOption>{{"contexts", 3}});
  const auto ordered =
      make_pruner("visionzip", std::vector<PruneOption>{{"contexts", 3}, {"dominant_first", 1}});
  const Pruned a = prune(tiny, raster.get(), half), b = prune(tiny, ordered.get(), half);
  ASSERT_EQ(a.rows.rows.shape(), b.rows.rows.shape());
  EXPECT_EQ(a.rows.places, b.rows.places);  // one after the other in both
  const std::vector<float> rows_a = values(tiny, a), rows_b = values(tiny, b);
  const auto width = static_cast<std::size_t>(tiny.text->width());
  const auto row = [&](const std::vector<float>& rows, std::size_t at) {
    return std::vector<float>(rows.begin() + static_cast<std::ptrdiff_t>(at * width),
                              rows.begin() + static_cast<std::ptrdiff_t>((at + 1) * width));
  };
  // The image stands where its placeholders stood, and every other row where it was.
  const std::vector<std::int32_t> ids = tiny.ints("input_ids");
  const auto first = static_cast<std::size_t>(
      std::find(ids.begin(), ids.end(), tiny.spec.describe->image_id) - ids.begin());
  for (std::size_t i = 0; i < first; ++i) EXPECT_EQ(row(rows_a, i), row(rows_b, i));
  // Blocks hold the ids of the prompt: where a row went is seen by its values.
  const std::size_t kept = a.rows.kept[0].tokens.size();
  ASSERT_EQ(kept, 8u);
  std::vector<std::size_t> from;  // of each row of b, its number among a's
  for (std::size_t i = 0; i < kept; ++i) {
    for (std::size_t k = 0; k < kept; ++k) {
      if (row(rows_b, first + i) == row(rows_a, first + k)) from.push_back(k);
    }
  }
  ASSERT_EQ(from.size(), kept);
  EXPECT_FALSE(std::is_sorted(from.begin(), from.end()));
  EXPECT_TRUE(std::is_sorted(from.begin(), from.end() - 3));
  EXPECT_TRUE(std::is_sorted(from.end() - 3, from.end()));
  EXPECT_EQ(std::set<std::size_t>(from.begin(), from.end()).size(), kept);
}

// LLaVA-OneVision's whole views with a newline after each: everything kept is the model as it is,
// half keeps the newlines.
TEST(ImagesOfOnePrompt, ArePrunedInFrontOfTheirNewlines) {
  const TinyLmm tiny("llava-onevision");
  const Pruned whole = prune(tiny, nullptr, {}, true);
  Budget half;
  half.ratio = 0.5;
  for (const PrunerRow& row : pruner_table()) {
    const std::string method(row.name);
    SCOPED_TRACE(method);
    if (method == "sparsevlm") continue;  // three cuts need four layers
    const auto pruner = make_pruner(method, options_for(method));
    EXPECT_EQ(values(tiny, prune(tiny, pruner.get(), {}, true)), values(tiny, whole));
    Pruned pruned = prune(tiny, pruner.get(), half, true);
    const bool inside = pruned.rows.cuts != nullptr;
    EXPECT_LT(write(tiny, std::move(pruned), "none", 1).left, 10);
    if (inside) continue;  // gone inside the model, with the rows
    const Pruned again = prune(tiny, pruner.get(), half, true);
    for (const VisualBlock& block : again.rows.kept) {
      EXPECT_EQ(block.tokens.back().kind, TokenKind::kNewline);
    }
  }
}

// An image so thin that some of its tiles show nothing but padding.
TEST(ThinImages, TilesOfPaddingAloneGoThroughTheEncoder) {
  const TinyLmm tiny("llava-next");
  int empty_tiles = 0;
  for (const auto& [width, height] : {std::pair{200, 1}, std::pair{1, 200}, std::pair{90, 2}}) {
    DecodedImage thin(width, height, 3, "PNG");
    for (std::size_t i = 0; i < thin.pixels.size(); ++i) {
      thin.pixels[i] = static_cast<std::uint8_t>(i * 37 % 251);
    }
    const PreprocessedImage image = preprocess(tiny.spec.describe->policy, thin);
    const VisualBlock whole = tiny.images->encode(image, false, nullptr).block;
    std::set<std::int32_t> shown;
    std::int64_t patches = 0;
    for (const VisualToken& token : whole.tokens) {
      if (token.kind != TokenKind::kPatch) continue;
      shown.insert(token.tile);
      ++patches;
    }
    empty_tiles += static_cast<int>(image.plan.views) - static_cast<int>(shown.size());
    for (const PrunerRow& row : pruner_table()) {
      SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(width));
      const auto pruner = make_pruner(row.name, options_for(std::string(row.name)));
      if (!on_patches(*pruner, facts_of(tiny, image.views.size()))) continue;
      Budget half;
      half.ratio = 0.5;
      PruneSession session(*pruner, facts_of(tiny, image.views.size()), half, 1, 0);
      const VisualRows rows = tiny.images->encode(image, false, &session);
      std::int64_t left = 0;
      for (const VisualToken& token : rows.block.tokens) left += token.kind == TokenKind::kPatch;
      EXPECT_GT(left, 0);
      if (row.name != "flowcut") {  // which cuts again later
        EXPECT_LT(left, patches);
      }
    }
  }
  EXPECT_GT(empty_tiles, 0) << "such images were looked at";
}

// A number of tokens is the whole image's, however many tiles it has.
TEST(SharedBudgets, TilesShareANumberOfTokens) {
  const TinyLmm tiny("llava-next");
  const PreprocessedImage image = preprocess(tiny.spec.describe->policy, tiny.image(0));
  ASSERT_GT(image.views.size(), 2u);
  const auto patches = [&](PruneSession* session) {
    std::int64_t count = 0;
    for (const VisualToken& token : tiny.images->encode(image, false, session).block.tokens) {
      count += token.kind == TokenKind::kPatch;
    }
    return count;
  };
  Budget third;
  third.tokens = patches(nullptr) / 3;
  third.shared = true;
  for (const PrunerRow& row : pruner_table()) {
    SCOPED_TRACE(row.name);
    const auto pruner = make_pruner(row.name, options_for(std::string(row.name)));
    const PrunedModel facts = facts_of(tiny, image.views.size());
    if (!on_patches(*pruner, facts) || row.name == "flowcut") continue;  // which cuts again later
    PruneSession session(*pruner, facts, third, 1, 0);
    const std::int64_t left = patches(&session);
    if (row.kept == KeptCount::kAtMost) {
      EXPECT_LE(left, *third.tokens);
      EXPECT_GT(left, *third.tokens - facts.tiles);
    } else {
      EXPECT_EQ(left, *third.tokens);
    }
  }
}

TEST(Refusals, LayersThatAreNotThere) {
  const TinyLmm tiny("llava-next");
  const auto code = [&](const std::string& method, std::vector<PruneOption> options,
                        std::int64_t views) -> std::string {
    try {
      const auto pruner = make_pruner(method, options);
      PruneSession(*pruner, facts_of(tiny, static_cast<std::size_t>(views)), {}, 1, 0);
    } catch (const Error& error) {
      return error.info().code;
    }
    return "";
  };
  const int feature = pruned_model_of(tiny.spec.describe->tower, 1).feature_layer;
  EXPECT_EQ(code("correlation", {{"local_layer", feature + 0.0}}, 5), "");
  EXPECT_EQ(code("correlation", {{"local_layer", feature + 1.0}}, 5), "E_PRUNE_LAYERS");
  EXPECT_EQ(code("correlation", {{"local_layer", 1000}}, 1), "E_PRUNE_LAYERS");
  EXPECT_EQ(code("flowcut", {}, 1), "");
  EXPECT_EQ(code("flowcut", {}, 5), "E_PRUNE_LAYERS") << "its second stage is in the two layers";
}

INSTANTIATE_TEST_SUITE_P(All, PrunedPrompt, ::testing::ValuesIn(all_cases()), [](const auto& one) {
  return test_name(one.param.family) + "_" + one.param.method;
});

}  // namespace
}  // namespace tessera::pruned_prompt_test
