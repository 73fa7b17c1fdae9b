// Draft models in whole captioning models: whatever drafts, of whatever family and however little
// of the images it sees, the text is the target's own, pruned or not.
#include <gtest/gtest.h>

#include <map>

#include "engine/decoding/drafters/model_drafter.h"
#include "engine/decoding/method_parts.h"
#include "tests/support/stream_run.h"
#include "tests/support/tiny_lmm.h"

namespace tessera::text_draft_test {
namespace {

constexpr std::int64_t kTokens = 24;

// How the images of a prompt are pruned.
struct Seen {
  const Pruner* pruner = nullptr;
  double ratio = 1;
  bool blind = false;  // the question alone
};

struct Asked {
  std::vector<std::unique_ptr<PruneSession>> sessions;
  PromptRows rows;
};

Asked ask(const TinyLmm& tiny, const Seen& seen) {
  Asked out;
  if (seen.blind) {
    out.rows =
        build_prompt(*tiny.text, tiny.ints("text.input_ids"), tiny.spec.describe->image_id, {});
    return out;
  }
  Budget budget;
  budget.ratio = seen.ratio;
  std::vector<PromptImage> images;
  for (int i = 0; i < 2; ++i) {
    const PreprocessedImage image = preprocess(tiny.spec.describe->policy, tiny.image(i));
    PromptImage& visual = images.emplace_back();
    if (seen.pruner != nullptr) {
      const ModelConfig& language = tiny.spec.model.transformer;
      PrunedModel facts =
          pruned_model_of(tiny.spec.describe->tower, static_cast<std::int64_t>(image.views.size()));
      facts.llm_layers = static_cast<int>(language.layers);
      facts.rope = {language.head_dim, language.rope.theta, language.rope.sections};
      out.sessions.push_back(std::make_unique<PruneSession>(*seen.pruner, facts, budget, 7,
                                                            static_cast<std::uint64_t>(i)));
      visual.session = out.sessions.back().get();
    }
    visual.visual = tiny.images->encode(image, tiny.spec.three_axes(), visual.session);
  }
  out.rows = build_prompt(*tiny.text, tiny.ints("input_ids"), tiny.spec.describe->image_id,
                          std::move(images));
  return out;
}

struct Setting {
  std::int64_t items = 1, window = 4, chunk = 256;
  double temperature = 0;
  const char* rule = "gumbel";
};

struct Written {
  std::map<std::uint64_t, std::vector<std::int32_t>> tokens;
  std::int64_t passes = 0;
};

// The same question `texts` times under keys of their own; `draft` null writes plainly.
Written write(const TinyLmm& tiny, const Seen& seen, const TinyLmm* draft, const Seen& draft_sees,
              const Setting& setting, std::size_t texts = 1) {
  struct Keep final : StreamListener {
    std::map<std::size_t, std::uint64_t> item_of_slot;
    Written out;
    void on_done(std::size_t slot, StreamResult&& result) override {
      out.tokens[item_of_slot.at(slot)] = result.tokens;
      out.passes += result.passes;
    }
  } keep;
  DecodeMethod method;
  if (draft != nullptr) method.drafter = kModelDrafter;
  method.rule = draft != nullptr ? setting.rule : "exact";
  method.window = draft != nullptr ? setting.window : 1;
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(tiny.spec.model.vocab), 24);
  OwnedParts<float, KeyedRandom> owned(method, aids);
  const StreamLimits limits = text_limits(*tiny.text, kTokens,
                                          {.items = setting.items,
                                           .prompt_rows = 256,
                                           .window = method.window,
                                           .budget = setting.chunk,
                                           .dists = owned.parts().needs_dists()});
  ModelDrafter* drafter = nullptr;
  if (draft != nullptr) {
    auto made = std::make_unique<ModelDrafter>(*draft->text, draft_limits(limits));
    drafter = made.get();
    owned.set_drafter(std::move(made));
  }
  StreamLoop loop(*tiny.text, limits, owned.parts());
  std::vector<Asked> alive;
  alive.reserve(2 * texts);
  DistributionSettings dist;
  dist.temperature = setting.temperature;
  for (std::size_t next = 0; next < texts || !loop.idle();) {
    if (next < texts && !loop.full()) {
      PromptRows& rows = alive.emplace_back(ask(tiny, seen)).rows;
      Stream item = greedy_text(std::move(rows.rows), std::move(rows.places), rows.next_place,
                                rows.cuts.get(), kTokens - static_cast<std::int64_t>(next % 3) * 5);
      item.dist = dist;
      item.item = next;
      const std::size_t slot = loop.add(std::move(item));
      keep.item_of_slot[slot] = next++;
      if (drafter != nullptr) {
        PromptRows& own = alive.emplace_back(ask(*draft, draft_sees)).rows;
        Stream asked = greedy_text(std::move(own.rows), std::move(own.places), own.next_place,
                                   own.cuts.get(), kTokens);
        asked.dist = dist;
        drafter->set_stream(slot, draft_stream(asked, limits.grammar));
      }
    }
    loop.step(keep);
  }
  return std::move(keep.out);
}

std::int64_t fewest(const Written& plain, std::int64_t window) {
  std::int64_t out = 0;
  for (const auto& [item, tokens] : plain.tokens) {
    out += 1 + (static_cast<std::int64_t>(tokens.size()) - 1 + window - 1) / window;
  }
  return out;
}

class TextDraft : public ::testing::TestWithParam<const char*> {
 protected:
  // FastV before layer 1: the tiny models have two or three.
  static std::unique_ptr<Pruner> fastv() {
    const std::vector<PruneOption> options = {{"layer", 1}};
    return make_pruner("fastv", options);
  }

  const TinyLmm target_{GetParam()};
  const std::unique_ptr<Pruner> divprune_ = make_pruner("divprune", {}), fastv_ = fastv();
};

TEST_P(TextDraft, TheTargetItselfIsAlwaysRight) {
  for (const double temperature : {0.0, 1.0}) {
    const Written plain = write(target_, {}, nullptr, {}, {.temperature = temperature}, 3);
    for (const std::int64_t window : {2, 5}) {
      const Written twin =
          write(target_, {}, &target_, {}, {.window = window, .temperature = temperature}, 3);
      EXPECT_EQ(twin.tokens, plain.tokens);
      EXPECT_EQ(twin.passes, fewest(plain, window)) << "window " << window;
    }
  }
}

// A target that is pruned in front of its layers or between them, drafted for by its like.
TEST_P(TextDraft, APrunedTargetHasItsLikeAsDraft) {
  for (const Pruner* pruner : {divprune_.get(), fastv_.get()}) {
    const Seen half{pruner, 0.5};
    const Written plain = write(target_, half, nullptr, {}, {}, 2);
    const Written twin = write(target_, half, &target_, half, {.window = 4}, 2);
    EXPECT_EQ(twin.tokens, plain.tokens);
    EXPECT_EQ(twin.passes, fewest(plain, 4));
  }
}

TEST_P(TextDraft, PrunedDraftsLeaveTheTextAsItIs) {
  for (const bool pruned_target : {false, true}) {
    const Seen seen = pruned_target ? Seen{divprune_.get(), 0.4} : Seen{};
    for (const double temperature : {0.0, 1.0}) {
      const Written plain = write(target_, seen, nullptr, {}, {.temperature = temperature}, 5);
      std::int64_t window = 1;
      for (const Seen& draft :
           {Seen{divprune_.get(), 0.5}, Seen{divprune_.get(), 0.25}, Seen{divprune_.get(), 0.1},
            Seen{fastv_.get(), 0.3}, Seen{.blind = true}}) {
        for (const std::int64_t items : {1, 3}) {
          const Written drafted =
              write(target_, seen, &target_, draft,
                    {.items = items, .window = window, .chunk = 19, .temperature = temperature}, 5);
          EXPECT_EQ(drafted.tokens, plain.tokens)
              << draft.ratio << ", " << items << " at once, window " << window;
          EXPECT_LE(drafted.passes, plain.passes);
        }
        ++window;
      }
    }
  }
}

// Every family drafts for every other: other counts of visual tokens, one axis of places or three.
TEST_P(TextDraft, AnyFamilyDraftsForAnyOther) {
  const Written plain = write(target_, {}, nullptr, {}, {}, 3);
  const Written drawn = write(target_, {}, nullptr, {}, {.temperature = 1}, 3);
  std::int64_t window = 2;
  for (const char* family : kTinyFamilies) {
    const TinyLmm draft(family);
    ASSERT_EQ(draft.spec.model.vocab, target_.spec.model.vocab);
    const Seen third{divprune_.get(), 0.33};
    EXPECT_EQ(write(target_, {}, &draft, third, {.items = 3, .window = window}, 3).tokens,
              plain.tokens)
        << family;
    EXPECT_EQ(write(target_, {}, &draft, {}, {.window = window, .rule = "exact"}, 3).tokens,
              plain.tokens)
        << family;
    EXPECT_EQ(write(target_, {}, &draft, {}, {.window = window, .temperature = 1}, 3).tokens,
              drawn.tokens)
        << family;
    window = window % 5 + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TextDraft, ::testing::ValuesIn(kTinyFamilies),
                         [](const auto& family) { return test_name(family.param); });

}  // namespace
}  // namespace tessera::text_draft_test
