// Texts against writing them by hand, and against each other: whatever stands next to a text,
// however its prompt came in and whoever drafted, it says the same.
#include "engine/decoding/stream_loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "engine/decoding/decode_method.h"
#include "engine/decoding/method_parts.h"
#include "tests/support/stream_run.h"
#include "tests/unit/decoding/text_run.h"

namespace tessera::stream_texts_test {
namespace {

// Everything anew for each token, without a cache that outlives it.
Tokens by_hand(const StreamModel& model, const Question& q) {
  Tokens out;
  DistributionPipeline<float> dist(q.dist, model.config().vocab);
  KeyedRandom random(5, q.item);
  while (static_cast<std::int64_t>(out.size()) < q.max_tokens) {
    Tokens all = q.prompt;
    all.insert(all.end(), out.begin(), out.end());
    dist.process(logits_after(model, all), {});
    out.push_back(random.race(static_cast<std::uint32_t>(out.size()),
                              LogitRow<float>{dist.support(), dist.support_logits()}));
    if (std::find(q.stops.begin(), q.stops.end(), out.back()) != q.stops.end()) break;
  }
  return out;
}

struct Setting {
  std::int64_t items = 1, window = 1, chunk = 256;
  std::string drafter = "none", redraft_policy = "drop", rule = "exact", tree = "none";
  bool guided = false;
};

std::map<std::uint64_t, StreamResult> write(const StreamModel& model, std::vector<Stream> items,
                                            const Setting& setting) {
  DecodeMethod method;
  method.drafter = setting.drafter;
  method.redraft_policy = setting.redraft_policy;
  method.rule = setting.rule;
  method.window = setting.window;
  method.tree = setting.tree;
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(model.config().vocab), 64);
  const OwnedParts<float, KeyedRandom> owned(method, aids);
  std::int64_t longest = 1;
  for (const Stream& item : items) longest = std::max(longest, item.prompt.length());
  StreamLoop loop(model,
                  text_limits(model, 64,
                              {.items = setting.items,
                               .prompt_rows = longest,
                               .window = setting.window,
                               .guided = setting.guided,
                               .budget = setting.chunk,
                               .dists = owned.parts().needs_dists(),
                               .shape = owned.parts().shape()}),
                  owned.parts());
  Gatherer gatherer;
  std::size_t next = 0;
  while (next < items.size() || !loop.idle()) {
    // One new text a pass: prompts come while others write.
    if (next < items.size() && !loop.full()) {
      const std::uint64_t item = items[next].item;
      gatherer.item_of_slot[loop.add(std::move(items[next++]))] = item;
    }
    loop.step(gatherer);
  }
  return std::move(gatherer.done);
}

TEST(StreamTexts, EqualsWritingByHand) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 10);
  const auto done = write(small.model, items_of(small.model, list), {});
  std::set<std::int32_t> seen;
  int stopped = 0;
  for (const Question& q : list) {
    const StreamResult& result = done.at(q.item);
    EXPECT_EQ(result.tokens, by_hand(small.model, q)) << q.item;
    EXPECT_EQ(result.passes, static_cast<std::int64_t>(result.tokens.size()));
    EXPECT_EQ(result.stopped,
              static_cast<std::int64_t>(result.tokens.size()) < q.max_tokens ||
                  std::find(q.stops.begin(), q.stops.end(), result.tokens.back()) != q.stops.end());
    stopped += result.stopped ? 1 : 0;
    seen.insert(result.tokens.begin(), result.tokens.end());
  }
  EXPECT_GT(seen.size(), 10u) << "texts of one word would prove nothing";
  EXPECT_GT(stopped, 0);
  EXPECT_LT(stopped, 10);
}

TEST(StreamTexts, NeitherNeighboursNorPartsNorThreadsMatter) {
  std::vector<Tokens> alone;
  for (const int threads : {1, 2, 3}) {
    const SmallText small = small_text(small_text_spec(), threads);
    const std::vector<Question> list = questions(small.model, 12);
    if (alone.empty()) {
      for (const Question& q : list) {
        alone.push_back(write(small.model, items_of(small.model, {q}), {}).at(q.item).tokens);
      }
    }
    for (const std::int64_t items : {2, 5, 12}) {
      for (const std::int64_t chunk : {1, 3, 16, 256}) {
        const auto done =
            write(small.model, items_of(small.model, list), {.items = items, .chunk = chunk});
        for (std::size_t i = 0; i < list.size(); ++i) {
          ASSERT_EQ(done.at(i).tokens, alone[i])
              << threads << " threads, " << items << " at once, parts of " << chunk << ", text "
              << i;
        }
      }
    }
  }
}

TEST(StreamTexts, DraftsChangeNothingButPasses) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 9);
  const auto plain = write(small.model, items_of(small.model, list), {});
  std::int64_t fewer = 0;
  for (const char* drafter : {"lookup", "recycling", "left"}) {
    for (const char* redraft_policy : {"drop", "gumbel"}) {
      for (const std::int64_t window : {2, 5, 16}) {
        const auto done = write(small.model, items_of(small.model, list),
                                {4, window, 7, drafter, redraft_policy, "gumbel"});
        for (std::size_t i = 0; i < list.size(); ++i) {
          ASSERT_EQ(done.at(i).tokens, plain.at(i).tokens)
              << drafter << " " << redraft_policy << " window " << window << ", text " << i;
          ASSERT_LE(done.at(i).passes, plain.at(i).passes);
          fewer += plain.at(i).passes - done.at(i).passes;
        }
      }
    }
  }
  EXPECT_GT(fewer, 20) << "drafts that are never right would prove nothing";
}

// A greedy text under the exact rule is the plain one too.
TEST(StreamTexts, ExactDraftsKeepGreedyTexts) {
  const SmallText small = small_text();
  std::vector<Question> list = questions(small.model, 6);
  for (Question& q : list) q.dist = {.temperature = 0.0};
  const auto plain = write(small.model, items_of(small.model, list), {});
  for (const char* drafter : {"lookup", "recycling"}) {
    const auto done =
        write(small.model, items_of(small.model, list), {3, 6, 256, drafter, "drop", "exact"});
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(done.at(i).tokens, plain.at(i).tokens) << drafter << ", text " << i;
    }
  }
}

// What stands before a text is copied from: a prompt that goes round makes a text that follows it
// round cost few passes.
TEST(StreamTexts, LooksUpInThePrompt) {
  const SmallText small = small_text();
  Question q;
  q.dist.temperature = 0;
  q.prompt = small_prompt(small.model, 9, 4);
  q.max_tokens = 40;
  const Tokens text = by_hand(small.model, q);
  // The same text's own tokens as the context of a second run.
  Stream item = item_of(small.model, q);
  item.before = text;
  item.before.insert(item.before.end(), q.prompt.begin(), q.prompt.end());
  std::vector<Stream> items;
  items.push_back(std::move(item));
  const auto done = write(small.model, std::move(items), {1, 8, 256, "lookup", "drop", "gumbel"});
  EXPECT_EQ(done.at(0).tokens, text);
  const auto bare = write(small.model, items_of(small.model, {q}), {1, 1, 256});
  EXPECT_LT(2 * done.at(0).passes, bare.at(0).passes);
}

// Three axes: an image of 2 x 3 places in the prompt, text after it at the highest id plus one.
TEST(StreamTexts, PlacesOfThreeAxesAreFollowed) {
  const SmallText small = small_text(small_text_spec(40, true));
  Question q;
  q.prompt = small_prompt(small.model, 11, 6);
  q.max_tokens = 12;
  Stream item = item_of(small.model, q);
  for (std::size_t i = 2; i < 8; ++i) {
    const auto k = static_cast<std::int64_t>(i - 2);
    item.prompt.positions[i] = {2, 2 + k / 3, 2 + k % 3};
  }
  for (std::size_t i = 8; i < 11; ++i)
    item.prompt.positions[i].fill(static_cast<std::int64_t>(i - 3));
  item.prompt.next_position = 8;
  const auto places = item.prompt.positions;
  std::vector<Stream> items;
  items.push_back(std::move(item));
  const Tokens got = write(small.model, std::move(items), {1, 1, 4}).at(0).tokens;
  // By one pass over everything that was written.
  Tokens all = q.prompt;
  all.insert(all.end(), got.begin(), got.end() - 1);
  auto own = places;
  for (std::size_t i = 0; i + 1 < got.size(); ++i) {
    own.push_back({});
    own.back().fill(8 + static_cast<std::int64_t>(i));
  }
  const auto count = static_cast<std::int64_t>(all.size());
  const ModelConfig& config = small.model.transformer().config();
  KvCache cache(small.model.backend(), {config.layers, config.kv_heads, config.head_dim, count, 1});
  Backend& backend = small.model.backend();
  Arena arena = make_arena(backend, small.model.scratch_bytes(count) + 4096);
  const Tensor rows = embedded(small.model, all);
  Tensor hidden = backend.allocate(DType::kF32, rows.shape());
  const std::vector<std::int64_t> positions(all.size(), 0);
  const std::vector<std::int32_t> sequences(all.size(), 0);
  small.model.transformer().forward(
      {.rows = rows.view(), .sequences = sequences, .positions = positions, .places = own}, cache,
      arena, hidden.view());
  Tensor device_logits = backend.allocate(DType::kF32, Shape{count, small.model.config().vocab});
  small.model.logits(hidden.view(), arena, device_logits.view());
  const std::vector<float> logits = from_device(backend, device_logits.view());
  DistributionPipeline<float> dist(q.dist, small.model.config().vocab);
  KeyedRandom random(5, 0);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto row = static_cast<std::int64_t>(q.prompt.size() + i) - 1;
    dist.process({logits.data() + row * small.model.config().vocab,
                 static_cast<std::size_t>(small.model.config().vocab)},
                {});
    EXPECT_EQ(got[i], random.race(static_cast<std::uint32_t>(i),
                                  LogitRow<float>{dist.support(), dist.support_logits()}))
        << i;
  }
}

TEST(StreamTexts, CutsThatKeepEverythingChangeNothing) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 5);
  const auto plain = write(small.model, items_of(small.model, list), {});
  std::vector<PlannedCuts> cuts(list.size());
  std::vector<Stream> items = items_of(small.model, list);
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::vector<std::int64_t> all(list[i].prompt.size());
    std::iota(all.begin(), all.end(), 0);
    cuts[i].keeps = {{1, all}, {2, all}};
    items[i].prompt.cuts = &cuts[i];
  }
  const auto done = write(small.model, std::move(items), {3});
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(done.at(i).tokens, plain.at(i).tokens);
}

TEST(StreamTexts, CutPromptsAreWrittenAlikeWithDraftsAndNeighbours) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 8);
  const auto cut_items = [&](std::vector<PlannedCuts>& cuts) {
    cuts.assign(list.size(), {});
    std::vector<Stream> items = items_of(small.model, list);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto length = static_cast<std::int64_t>(list[i].prompt.size());
      std::vector<std::int64_t> some, few;
      for (std::int64_t row = 0; row < length; ++row) {
        if (row % 3 != 1 || row + 1 == length) some.push_back(row);
        if (row % 3 == 0 || row + 1 == length) few.push_back(row);
      }
      cuts[i].keeps = {{1, some}, {2, few}};
      if (i % 4 != 3) items[i].prompt.cuts = &cuts[i];  // some are not cut
    }
    return items;
  };
  std::vector<PlannedCuts> cuts;
  const auto plain = write(small.model, cut_items(cuts), {});
  const auto whole = write(small.model, items_of(small.model, list), {});
  int changed = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    changed += plain.at(i).tokens != whole.at(i).tokens ? 1 : 0;
  }
  EXPECT_GE(changed, 3) << "cuts that change no text would prove nothing";
  for (const std::int64_t window : {2, 7}) {
    for (const char* drafter : {"lookup", "recycling"}) {
      const auto done =
          write(small.model, cut_items(cuts), {4, window, 5, drafter, "gumbel", "gumbel"});
      for (std::size_t i = 0; i < list.size(); ++i) {
        ASSERT_EQ(done.at(i).tokens, plain.at(i).tokens) << drafter << " " << window << " " << i;
      }
    }
  }
}

// --- guidance -----------------------------------------------------------------------------------

// A question, and what its text is led away from.
struct GuidedQuestion {
  Question question;
  Tokens unconditional;
};

std::vector<GuidedQuestion> guided_questions(const StreamModel& model, int count) {
  std::vector<GuidedQuestion> out;
  for (const Question& q : questions(model, count)) {
    const auto seed = static_cast<std::uint32_t>(90 + q.item);
    out.push_back({q, small_prompt(model, 1 + static_cast<std::int64_t>(q.item * 5 % 17), seed)});
    out.back().question.dist.guidance = 1.5 + 0.5 * static_cast<double>(q.item % 3);
  }
  return out;
}

Tokens guided_by_hand(const StreamModel& model, const GuidedQuestion& guided) {
  const Question& q = guided.question;
  Tokens out;
  DistributionPipeline<float> dist(q.dist, model.config().vocab);
  KeyedRandom random(5, q.item);
  while (static_cast<std::int64_t>(out.size()) < q.max_tokens) {
    Tokens cond = q.prompt, uncond = guided.unconditional;
    for (Tokens* branch : {&cond, &uncond}) branch->insert(branch->end(), out.begin(), out.end());
    dist.process(logits_after(model, cond), logits_after(model, uncond));
    out.push_back(random.race(static_cast<std::uint32_t>(out.size()),
                              LogitRow<float>{dist.support(), dist.support_logits()}));
    if (std::find(q.stops.begin(), q.stops.end(), out.back()) != q.stops.end()) break;
  }
  return out;
}

std::vector<Stream> guided_items(const StreamModel& model, const std::vector<GuidedQuestion>& list) {
  std::vector<Stream> items;
  for (const GuidedQuestion& guided : list) {
    Stream& item = items.emplace_back(item_of(model, guided.question));
    if (guided.question.item % 2 == 0) {
      item.unconditional.ids = guided.unconditional;
    } else {
      item.unconditional = {.ids = {},
                            .rows = std::make_shared<Tensor>(embedded(model, guided.unconditional)),
                            .positions = places_in_line(guided.unconditional.size()),
                            .next_position =
                                static_cast<std::int64_t>(guided.unconditional.size())};
    }
  }
  return items;
}

TEST(StreamTexts, GuidedTextsEqualTwoBranchesByHand) {
  const SmallText small = small_text();
  const std::vector<GuidedQuestion> list = guided_questions(small.model, 9);
  std::vector<Tokens> truth;
  int led = 0;
  for (const GuidedQuestion& guided : list) {
    truth.push_back(guided_by_hand(small.model, guided));
    Question alone = guided.question;
    alone.dist.guidance = 1;
    led += by_hand(small.model, alone) != truth.back() ? 1 : 0;
  }
  EXPECT_GE(led, 5) << "guidance that changes no text would prove nothing";
  for (const std::int64_t items : {1, 4}) {
    for (const std::int64_t chunk : {2, 5, 256}) {
      for (const std::int64_t window : {1, 6}) {
        const Setting setting{.items = items,
                              .window = window,
                              .chunk = chunk,
                              .drafter = window > 1 ? "lookup" : "none",
                              .rule = window > 1 ? "gumbel" : "exact",
                              .guided = true};
        const auto done = write(small.model, guided_items(small.model, list), setting);
        for (std::size_t i = 0; i < list.size(); ++i) {
          ASSERT_EQ(done.at(i).tokens, truth[i])
              << items << " at once, parts of " << chunk << ", window " << window << ", text " << i;
        }
      }
    }
  }
}

// A branch that is cut inside the model, next to one that is not.
TEST(StreamTexts, ABranchOfAGuidedTextMayBeCut) {
  const SmallText small = small_text();
  const std::vector<GuidedQuestion> list = guided_questions(small.model, 6);
  const auto cut = [&](std::vector<PlannedCuts>& cuts, bool everything) {
    cuts.assign(list.size(), {});
    std::vector<Stream> items = guided_items(small.model, list);
    for (std::size_t i = 0; i < items.size(); ++i) {
      StreamPrompt& prompt = i % 2 == 0 ? items[i].prompt : items[i].unconditional;
      for (std::int64_t row = 0; row < prompt.length(); ++row) {
        const bool stays = everything || row % 3 != 1 || row + 1 == prompt.length();
        if (stays) cuts[i].keeps[1].push_back(row);
      }
      prompt.cuts = &cuts[i];
    }
    return items;
  };
  std::vector<PlannedCuts> cuts;
  const auto whole = write(small.model, guided_items(small.model, list), {.guided = true});
  const auto kept = write(small.model, cut(cuts, true), {.items = 3, .chunk = 5, .guided = true});
  const auto alone = write(small.model, cut(cuts, false), {.guided = true});
  const auto together =
      write(small.model, cut(cuts, false), {.items = 4, .chunk = 7, .guided = true});
  int changed = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(kept.at(i).tokens, whole.at(i).tokens) << i;
    EXPECT_EQ(together.at(i).tokens, alone.at(i).tokens) << i;
    changed += alone.at(i).tokens != whole.at(i).tokens ? 1 : 0;
  }
  EXPECT_GE(changed, 2) << "cuts that change no text would prove nothing";
}

// --- trees --------------------------------------------------------------------------------------

TEST(StreamTexts, TreesKeepGreedyTexts) {
  const SmallText small = small_text();
  std::vector<GuidedQuestion> list = guided_questions(small.model, 8);
  for (GuidedQuestion& guided : list) guided.question.dist.temperature = 0;
  const auto plain = write(small.model, guided_items(small.model, list), {.guided = true});
  std::int64_t fewer = 0;
  for (const std::string_view tree : tree_names()) {
    if (tree == "none" || tree == "dyspec") continue;
    for (const char* drafter : {"lookup", "recycling"}) {
      const Setting setting{.items = 3,
                            .window = 9,
                            .chunk = 6,
                            .drafter = drafter,
                            .redraft_policy = tree == "gumbel" ? "gumbel" : "maximal",
                            .rule = std::string(rule_of_tree(tree)),
                            .tree = std::string(tree),
                            .guided = true};
      const auto done = write(small.model, guided_items(small.model, list), setting);
      for (std::size_t i = 0; i < list.size(); ++i) {
        ASSERT_EQ(done.at(i).tokens, plain.at(i).tokens) << tree << " " << drafter << " " << i;
        fewer += plain.at(i).passes - done.at(i).passes;
      }
    }
  }
  EXPECT_GT(fewer, 20) << "drafts that are never right would prove nothing";
}

TEST(StreamTexts, BrokenLogitsFailOneTextAlone) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 4);
  const auto plain = write(small.model, items_of(small.model, list), {});
  std::vector<Stream> items = items_of(small.model, list);
  own_rows(items[2]).f32()[5] = std::nanf("");
  const auto done = write(small.model, std::move(items), {4});
  EXPECT_EQ(done.at(2).status, StreamStatus::kFailed);
  EXPECT_EQ(done.at(2).error.code, std::string("E_LOGITS"));
  EXPECT_NE(done.at(2).error.where.find("text token 0"), std::string::npos);
  for (const std::uint64_t i : {0, 1, 3}) EXPECT_EQ(done.at(i).tokens, plain.at(i).tokens) << i;
}

TEST(StreamTexts, ADroppedTextLeavesItsPlace) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 3);
  const auto plain = write(small.model, items_of(small.model, list), {});
  const OwnedParts<float, KeyedRandom> owned(DecodeMethod{}, DecodeAids{});
  StreamLoop loop(small.model,
                  text_limits(small.model, 64, {.items = 1, .prompt_rows = 64, .budget = 4}),
                  owned.parts());
  Gatherer gatherer;
  std::vector<Stream> items = items_of(small.model, list);
  const std::size_t slot = loop.add(std::move(items[1]));
  loop.step(gatherer);
  EXPECT_TRUE(loop.full());
  loop.drop(slot);
  EXPECT_TRUE(loop.idle());
  gatherer.streamed.clear();
  gatherer.item_of_slot[loop.add(std::move(items[2]))] = 2;
  while (!loop.idle()) loop.step(gatherer);
  EXPECT_EQ(gatherer.done.at(2).tokens, plain.at(2).tokens);
}

}  // namespace
}  // namespace tessera::stream_texts_test
