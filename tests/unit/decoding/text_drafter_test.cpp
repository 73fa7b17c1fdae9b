// Draft models of texts: the target as its own draft is always right, to the pass; any other model,
// prompt, place or part changes passes, never a text, and under the exact rule never its distribution.
#include "engine/decoding/drafters/model_drafter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/decoding/method_parts.h"
#include "tests/support/draft_streams.h"
#include "tests/unit/decoding/text_run.h"

namespace tessera::text_drafter_test {
namespace {

struct Setting {
  std::int64_t items = 1, window = 4, chunk = 256, draft_chunk = 256;
  const char* rule = "gumbel";
  const char* redraft_policy = "drop";
  bool adaptive = false;
  std::int64_t every = 1;  // passes of a text from one with drafts to the next
};

// Drafts in some passes only, so that texts grow unseen in between.
class Pausing final : public Drafter<float, KeyedRandom> {
 public:
  Pausing(LoopDrafter& inner, std::int64_t every) : inner_(inner), every_(every) {}
  std::string_view name() const override { return "pausing"; }
  void start(std::size_t items) override { inner_.start(items); }
  void renew(std::size_t item) override {
    inner_.renew(item);
    calls_ = 0;
  }
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override {
    if (calls_++ % every_ == 0) inner_.extend(jobs);
  }

 private:
  LoopDrafter& inner_;
  std::int64_t every_, calls_ = 0;
};

// Gives a text to the drafter, or nothing.
using Tell = std::function<std::optional<DraftStreamItem>(std::size_t number)>;
using Results = std::map<std::uint64_t, StreamResult>;

constexpr std::int64_t kVocab = 40;  // of small_text()

// Texts are as long as a loop of so many tokens allows, unless they say otherwise.
DraftStreamItem draft_of(const Stream& item, std::int64_t vocab = kVocab, std::size_t tokens = 64) {
  return draft_stream(item, VocabularyGrammar::line(static_cast<std::size_t>(vocab), tokens));
}

OwnedParts<float, KeyedRandom> parts_of(const StreamModel& model, const Setting& setting) {
  DecodeMethod method;
  method.drafter = kModelDrafter;
  method.redraft_policy = setting.redraft_policy;
  method.rule = setting.rule;
  method.window = setting.window;
  DecodeAids aids;
  aids.grammar = VocabularyGrammar::line(static_cast<std::size_t>(model.config().vocab), 64);
  aids.draft_model = true;
  return {method, aids};
}

Results write(const StreamModel& model, std::vector<Stream> items, const StreamModel& draft,
              const Tell& tell, const Setting& setting) {
  OwnedParts<float, KeyedRandom> owned = parts_of(model, setting);
  const StreamLimits limits = text_limits(model, 64,
                                          {.items = setting.items,
                                           .prompt_rows = 80,
                                           .window = setting.window,
                                           .budget = setting.chunk,
                                           .dists = owned.parts().needs_dists()});
  DraftLimits own = draft_limits(limits);
  own.chunk = setting.draft_chunk;
  auto made = std::make_unique<ModelDrafter>(draft, own);
  ModelDrafter* drafter = made.get();
  owned.set_drafter(std::move(made));
  WindowController controller(setting.window);
  Pausing pausing(*drafter, setting.every);
  LoopParts parts = owned.parts();
  if (setting.every > 1) parts.drafter = &pausing;
  StreamLoop loop(model, limits, parts, setting.adaptive ? &controller : nullptr);
  Gatherer gatherer;
  std::size_t next = 0;
  while (next < items.size() || !loop.idle()) {
    if (next < items.size() && !loop.full()) {
      const std::uint64_t item = items[next].item;
      const std::size_t slot = loop.add(std::move(items[next]));
      gatherer.item_of_slot[slot] = item;
      if (auto text = tell(next)) drafter->set_stream(slot, std::move(*text));
      ++next;
    }
    loop.step(gatherer);
  }
  return std::move(gatherer.done);
}

Results plain(const StreamModel& model, const std::vector<Question>& list) {
  return write(model, items_of(model, list), model, [](std::size_t) { return std::nullopt; },
               {.window = 1});
}

// Passes of a text of so many tokens when every draft is right.
std::int64_t fewest(std::size_t tokens, std::int64_t window) {
  return 1 + (static_cast<std::int64_t>(tokens) - 1 + window - 1) / window;
}

TEST(TextDrafts, TheTargetAsItsOwnDraftIsAlwaysRight) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 9);
  const Results truth = plain(small.model, list);
  for (const std::int64_t items : {1, 3}) {  // fewer places than texts: they are used again
    for (const std::int64_t window : {1, 2, 3, 4, 5, 9}) {
      const Results done =
          write(small.model, items_of(small.model, list), small.model,
                [&](std::size_t i) { return draft_of(item_of(small.model, list[i])); },
                {.items = items, .window = window});
      for (std::size_t i = 0; i < list.size(); ++i) {
        ASSERT_EQ(done.at(i).tokens, truth.at(i).tokens) << items << " " << window << " " << i;
        EXPECT_EQ(done.at(i).passes, fewest(truth.at(i).tokens.size(), window))
            << items << " at once, window " << window << ", text " << i;
      }
    }
  }
}

// Processors that read prompt, stops and length, and a draft model that has them too.
TEST(TextDrafts, LogitsProcessorsAreTheDraftModelsToo) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 9);
  const auto processed = [&](std::size_t i) {
    Stream item = item_of(small.model, list[i]);
    item.processed = list[i].prompt;
    item.dist.repetition_penalty = 1.6;
    item.dist.no_repeat_ngram = 3;
    item.dist.min_new_tokens = 5;
    item.dist.min_length = 20;
    item.dist.bad_words = "3,9 4";  // 3 is a stop of some
    item.dist.sequence_bias = "4:0.5,9 4:-1.5,7 3:2";
    item.dist.forced_eos = "25,17";
    item.dist.length_decay_start = 6;
    item.dist.length_decay = 1.2;
    return item;
  };
  std::vector<Stream> items;
  for (std::size_t i = 0; i < list.size(); ++i) items.push_back(processed(i));
  const Results truth = write(small.model, items, small.model, [](std::size_t) { return std::nullopt; },
                              {.window = 1});
  EXPECT_NE(truth.at(0).tokens, plain(small.model, list).at(0).tokens);
  for (const std::int64_t window : {2, 5, 9}) {
    const auto told = [&](std::size_t i) {
      const Stream item = processed(i);
      DraftStreamItem out = draft_of(item, kVocab, static_cast<std::size_t>(item.max_tokens));
      out.processed = item.processed;
      return out;
    };
    for (const char* rule : {"gumbel", "exact"}) {
      const Results done = write(small.model, items, small.model, told,
                                 {.items = 2, .window = window, .rule = rule});
      for (std::size_t i = 0; i < list.size(); ++i) {
        ASSERT_EQ(done.at(i).tokens, truth.at(i).tokens) << rule << ' ' << window << ' ' << i;
        EXPECT_EQ(done.at(i).passes, fewest(truth.at(i).tokens.size(), window))
            << rule << ", window " << window << ", text " << i;
        const Tokens& text = done.at(i).tokens;
        ASSERT_GE(text.size(), 5u);
        if (static_cast<std::int64_t>(text.size()) == list[i].max_tokens) {
          EXPECT_TRUE(text.back() == 25 || text.back() == 17) << i;
        }
      }
    }
  }
}

// How many passes a text takes whose drafts come of whole passes over the draft's prompt, what
// stands and what is drafted, without any cache; `own` is the question as the draft is asked.
std::int64_t passes_by_hand(const Tokens& text, const StreamModel& draft, const Question& own,
                            std::int64_t window, std::int64_t every) {
  const auto length = static_cast<std::int64_t>(text.size());
  DistributionPipeline<float> dist(own.dist, draft.config().vocab);
  KeyedRandom random(5, own.item);
  std::int64_t passes = 1;
  for (std::int64_t stands = 1; stands < length; ++passes) {
    const bool drafts = (passes - 1) % every == 0;
    const std::int64_t want = drafts ? std::min(window, own.max_tokens - stands) - 1 : 0;
    Tokens ids = own.prompt;
    ids.insert(ids.end(), text.begin(), text.begin() + stands);
    std::int64_t right = 0;
    for (std::int64_t depth = 0; depth < want && right == depth; ++depth) {
      dist.process(logits_after(draft, ids), {});
      const auto position = static_cast<std::uint32_t>(stands + depth);
      ids.push_back(random.race(position, LogitRow<float>{dist.support(), dist.support_logits()}));
      if (stands + depth < length && ids.back() == text[position]) ++right;
    }
    stands += right + 1;
  }
  return passes;
}

// Refused drafts leave nothing after: what is drafted next follows what stands, to the pass.
TEST(TextDrafts, DraftsFollowWhatStandsAfterRefusals) {
  const SmallText small = small_text(), other = small_text(small_text_spec(), 1, 99);
  std::vector<Question> list = questions(small.model, 9);
  for (Question& q : list) q.max_tokens = 40;
  const Results truth = plain(small.model, list);
  std::int64_t accepted = 0, refused = 0;
  for (const SmallText* draft : {&small, &other}) {
    std::vector<Question> own = list;
    for (Question& q : own) q.prompt.erase(q.prompt.begin());  // less than the target knows
    for (const auto& [items, every] : {std::pair{1, 1}, {3, 1}, {1, 2}, {1, 3}, {1, 20}}) {
      for (const std::int64_t window : {2, 3, 5}) {
        const Results done =
            write(small.model, items_of(small.model, list), draft->model,
                  [&](std::size_t i) { return draft_of(item_of(draft->model, own[i])); },
                  {.items = items, .window = window, .every = every});
        for (std::size_t i = 0; i < list.size(); ++i) {
          const Tokens& text = truth.at(i).tokens;
          ASSERT_EQ(done.at(i).tokens, text);
          EXPECT_EQ(done.at(i).passes, passes_by_hand(text, draft->model, own[i], window, every))
              << (draft == &small ? "same" : "other") << " model, " << items << " at once, window "
              << window << ", text " << i;
          accepted += truth.at(i).passes - done.at(i).passes;
          refused += done.at(i).passes - fewest(text.size(), window);
        }
      }
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 200);
}

// Its prompt takes some calls; until then the text grows by one token a pass.
TEST(TextDrafts, PromptsEnterInParts) {
  const SmallText small = small_text();
  Question q = questions(small.model, 5)[3];
  q.stops = {};
  q.dist = {.temperature = 0};
  q.max_tokens = 40;
  const Results truth = plain(small.model, {q});
  const auto prompt = static_cast<std::int64_t>(q.prompt.size());
  ASSERT_GT(prompt, 30);
  for (const std::int64_t chunk : {2, 7, 13, 64}) {
    const Results done = write(small.model, items_of(small.model, {q}), small.model,
                               [&](std::size_t) { return draft_of(item_of(small.model, q)); },
                               {.window = 4, .draft_chunk = chunk});
    EXPECT_EQ(done.at(q.item).tokens, truth.at(q.item).tokens);
    const std::int64_t alone = (prompt + chunk - 1) / chunk - 1;
    EXPECT_EQ(done.at(q.item).passes, alone + fewest(40 - static_cast<std::size_t>(alone), 4))
        << "parts of " << chunk;
  }
}

TEST(TextDrafts, AnotherModelChangesPassesNeverTheText) {
  const SmallText small = small_text(), other = small_text(small_text_spec(), 1, 99);
  const std::vector<Question> list = questions(small.model, 9);
  const Results truth = plain(small.model, list);
  // Another model with prompts of its own lengths.
  const Tell tell = [&](std::size_t i) {
    Question own = list[i];
    own.prompt = small_prompt(other.model, 1 + 17 * static_cast<std::int64_t>((i + 2) % 4), 70);
    return draft_of(item_of(other.model, own));
  };
  std::int64_t fewer = 0;
  for (const std::int64_t items : {1, 3}) {
    for (const std::int64_t window : {1, 2, 3, 4, 5}) {
      for (const std::int64_t chunk : {3, 256}) {
        for (const bool keeps_redraft : {false, true}) {
          const Results done = write(small.model, items_of(small.model, list), other.model, tell,
                                     {.items = items,
                                      .window = window,
                                      .chunk = chunk,
                                      .draft_chunk = chunk,
                                      .redraft_policy = keeps_redraft ? "gumbel" : "drop",
                                      .adaptive = keeps_redraft});
          for (std::size_t i = 0; i < list.size(); ++i) {
            ASSERT_EQ(done.at(i).tokens, truth.at(i).tokens)
                << items << " at once, window " << window << ", parts of " << chunk << ", text "
                << i;
            ASSERT_LE(done.at(i).passes, truth.at(i).passes);
            fewer += truth.at(i).passes - done.at(i).passes;
          }
        }
      }
    }
  }
  EXPECT_GT(fewer, 20) << "drafts that are never right would prove nothing";
}

TEST(TextDrafts, TheExactRuleKeepsGreedyTexts) {
  const SmallText small = small_text(), other = small_text(small_text_spec(), 1, 99);
  std::vector<Question> list = questions(small.model, 6);
  for (Question& q : list) q.dist = {.temperature = 0};
  const Results truth = plain(small.model, list);
  for (const SmallText* draft : {&small, &other}) {
    const Results done =
        write(small.model, items_of(small.model, list), draft->model,
              [&](std::size_t i) { return draft_of(item_of(draft->model, list[i])); },
              {.items = 3, .window = 4, .rule = "exact"});
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(done.at(i).tokens, truth.at(i).tokens);
      if (draft == &small) {
        EXPECT_EQ(done.at(i).passes, fewest(truth.at(i).tokens.size(), 4));
      }
    }
  }
}

// Three axes: an image of 2 x 3 places in the prompt, so that text goes on at 8 after 11 rows.
TEST(TextDrafts, PlacesGoOnAfterItsOwnPrompt) {
  const SmallText axes = small_text(small_text_spec(40, true)), line = small_text();
  Question q;
  q.prompt = small_prompt(axes.model, 11, 6);
  q.dist.temperature = 0;
  const auto with_image = [&] {
    Stream item = item_of(axes.model, q);
    for (std::size_t i = 2; i < 8; ++i) {
      const auto k = static_cast<std::int64_t>(i - 2);
      item.prompt.positions[i] = {2, 2 + k / 3, 2 + k % 3};
    }
    for (std::size_t i = 8; i < 11; ++i)
      item.prompt.positions[i].fill(static_cast<std::int64_t>(i - 3));
    item.prompt.next_position = 8;
    return item;
  };
  const auto one = [&](Stream item) {
    std::vector<Stream> out;
    out.push_back(std::move(item));
    return out;
  };
  const auto nothing = [](std::size_t) { return std::nullopt; };
  const Tokens truth =
      write(axes.model, one(with_image()), axes.model, nothing, {.window = 1}).at(0).tokens;
  const StreamResult twin =
      write(axes.model, one(with_image()), axes.model,
            [&](std::size_t) { return draft_of(with_image()); }, {.window = 5})
          .at(0);
  EXPECT_EQ(twin.tokens, truth);
  EXPECT_EQ(twin.passes, fewest(truth.size(), 5));
  // One axis drafts for three, and the other way round.
  const Results mixed =
      write(axes.model, one(with_image()), line.model,
            [&](std::size_t) { return draft_of(item_of(line.model, q)); }, {.window = 3});
  EXPECT_EQ(mixed.at(0).tokens, truth);
  const Tokens other = plain(line.model, {q}).at(0).tokens;
  const Results turned =
      write(line.model, items_of(line.model, {q}), axes.model,
            [&](std::size_t) { return draft_of(with_image()); }, {.window = 3});
  EXPECT_EQ(turned.at(0).tokens, other);
}

// Rows that leave between layers of the draft: cut like the target it is the target.
TEST(TextDrafts, ItsPromptsAreCutBetweenLayers) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 6);
  std::vector<PlannedCuts> cuts(2 * list.size());  // of targets, then of drafts
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const auto length = static_cast<std::int64_t>(list[i % list.size()].prompt.size());
    for (std::int64_t row = 0; row < length; ++row) {
      if (row % 3 != 1 || row + 1 == length) cuts[i].keeps[1].push_back(row);
      if (row % 3 == 0 || row + 1 == length) cuts[i].keeps[2].push_back(row);
    }
  }
  const auto targets = [&](bool cut) {
    std::vector<Stream> items = items_of(small.model, list);
    for (std::size_t i = 0; cut && i < items.size(); ++i) items[i].prompt.cuts = &cuts[i];
    return items;
  };
  const Tell cut_drafts = [&](std::size_t i) {
    DraftStreamItem text = draft_of(item_of(small.model, list[i]));
    text.branches[0].cuts = &cuts[list.size() + i];
    return text;
  };
  const auto nothing = [](std::size_t) { return std::nullopt; };
  const Results cut_truth = write(small.model, targets(true), small.model, nothing, {.window = 1});
  const Results truth = write(small.model, targets(false), small.model, nothing, {.window = 1});
  const Results twins = write(small.model, targets(true), small.model, cut_drafts, {.window = 4});
  const Results helped =
      write(small.model, targets(false), small.model, cut_drafts, {.items = 3, .window = 4});
  std::int64_t fewer = 0, refused = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(twins.at(i).tokens, cut_truth.at(i).tokens);
    EXPECT_EQ(twins.at(i).passes, fewest(cut_truth.at(i).tokens.size(), 4)) << i;
    EXPECT_EQ(helped.at(i).tokens, truth.at(i).tokens);
    fewer += truth.at(i).passes - helped.at(i).passes;
    refused += helped.at(i).passes - fewest(truth.at(i).tokens.size(), 4);
  }
  EXPECT_GT(fewer, 5);
  EXPECT_GT(refused, 0) << "cuts that change nothing would prove nothing";
}

// A place of the loop that goes to another text holds nothing of the first one.
TEST(TextDrafts, ATextThatItWasNotHeardOfIsWrittenWithoutDrafts) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 6);
  const Results truth = plain(small.model, list);
  const Results done = write(small.model, items_of(small.model, list), small.model,
                             [&](std::size_t i) -> std::optional<DraftStreamItem> {
                               if (i % 2 == 1) return std::nullopt;
                               return draft_of(item_of(small.model, list[i]));
                             },
                             {.items = 1, .window = 4});
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(done.at(i).tokens, truth.at(i).tokens);
    EXPECT_EQ(done.at(i).passes,
              i % 2 == 1 ? truth.at(i).passes : fewest(truth.at(i).tokens.size(), 4))
        << i;
  }
}

TEST(TextDrafts, ABrokenDraftModelFailsNothing) {
  const SmallText small = small_text();
  const std::vector<Question> list = questions(small.model, 4);
  const Results truth = plain(small.model, list);
  const Results done = write(small.model, items_of(small.model, list), small.model,
                             [&](std::size_t i) {
                               Stream item = item_of(small.model, list[i]);
                               if (i == 1) own_rows(item).f32()[3] = std::nanf("");
                               return draft_of(std::move(item));
                             },
                             {.items = 4, .window = 4});
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(done.at(i).status, StreamStatus::kDone);
    EXPECT_EQ(done.at(i).tokens, truth.at(i).tokens);
    EXPECT_EQ(done.at(i).passes, i == 1 ? truth.at(i).passes : fewest(truth.at(i).tokens.size(), 4))
        << i;
  }
}

TEST(TextDrafts, ItsCacheIsCounted) {
  const SmallText small = small_text();
  const ModelConfig& model = small.model.config().transformer;
  const auto bytes = [&](const DraftLimits& limits) {
    const std::size_t scratch = small.model.scratch_bytes(ModelDrafter::max_rows(limits));
    return ModelDrafter::bytes(model, kVocab, scratch, *small.backend, limits);
  };
  const DraftLimits limits{
      .items = 3, .prompt_rows = 40, .tokens = 24, .window = 4, .guided = false};
  DraftLimits longer = limits;
  longer.tokens += 8;
  const std::int64_t row = 2 * model.layers * model.kv_heads * model.head_dim;
  EXPECT_EQ(bytes(longer) - bytes(limits), static_cast<std::size_t>(3 * 8 * row) * sizeof(float));
  EXPECT_GT(bytes(limits), static_cast<std::size_t>(3 * (40 + 24 + 4) * row) * sizeof(float));
}

// --- the distribution under the exact rule ----------------------------------------------------------------

constexpr std::int64_t kIds = 4, kTokens = 3;

// Records drafts under another distribution than theirs.
class Misrecorded final : public Drafter<float, KeyedRandom> {
 public:
  explicit Misrecorded(ModelDrafter& inner) : inner_(inner) {}
  std::string_view name() const override { return "misrecorded"; }
  void start(std::size_t items) override { inner_.start(items); }
  void renew(std::size_t item) override { inner_.renew(item); }
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override {
    inner_.extend(jobs);
    for (auto& job : jobs) {
      const Tokens drafts(job.window->tokens().begin(), job.window->tokens().end());
      job.window->clear();
      for (const std::int32_t token : drafts) job.window->append_uniform(token);
    }
  }

 private:
  ModelDrafter& inner_;
};

// How often each text came, by its ids as digits.
std::vector<double> count_texts(const SmallText& target, const SmallText& draft, const Question& q,
                                std::uint64_t texts, bool misrecorded) {
  constexpr std::int64_t kAtOnce = 64;
  OwnedParts<float, KeyedRandom> owned =
      parts_of(target.model, {.window = kTokens, .rule = "exact"});
  const StreamLimits limits =
      text_limits(target.model, kTokens,
                  {.items = kAtOnce, .prompt_rows = 16, .window = kTokens, .dists = true});
  ModelDrafter drafter(draft.model, draft_limits(limits));
  Misrecorded wrong(drafter);
  LoopParts parts = owned.parts();
  parts.drafter = &drafter;
  if (misrecorded) parts.drafter = &wrong;
  StreamLoop loop(target.model, limits, parts);
  struct Counter final : StreamListener {
    std::vector<double> counts = std::vector<double>(kIds * kIds * kIds);
    void on_done(std::size_t, StreamResult&& result) override {
      std::size_t at = 0;
      for (const std::int32_t token : result.tokens) {
        at = at * kIds + static_cast<std::size_t>(token);
      }
      counts[at] += 1;
    }
  } counter;
  for (std::uint64_t next = 0; next < texts || !loop.idle();) {
    for (; next < texts && !loop.full(); ++next) {
      Stream item = item_of(target.model, q);
      item.item = next;
      DraftStreamItem text = draft_of(item_of(draft.model, q), kIds);
      drafter.set_stream(loop.add(std::move(item)), std::move(text));
    }
    loop.step(counter);
  }
  return counter.counts;
}

// (chi-square / degrees of freedom - 1) in its standard deviations.
double deviation(const std::vector<double>& counts, const SmallText& target, const Question& q,
                 double texts) {
  std::vector<double> dist{1.0};
  for (std::int64_t position = 0; position < kTokens; ++position) {
    std::vector<double> longer;
    for (std::size_t prefix = 0; prefix < dist.size(); ++prefix) {
      Tokens ids = q.prompt;
      for (std::int64_t back = position; back > 0; --back) {
        const auto unit = static_cast<std::size_t>(std::pow(kIds, back - 1));
        ids.push_back(static_cast<std::int32_t>(prefix / unit % kIds));
      }
      DistributionPipeline<float> row(q.dist, kIds);
      row.process(logits_after(target.model, ids), {});
      for (const float p : row.probabilities()) longer.push_back(dist[prefix] * p);
    }
    dist = std::move(longer);
  }
  double chi = 0;
  for (std::size_t i = 0; i < dist.size(); ++i) {
    const double expected = dist[i] * texts;
    EXPECT_GT(expected, 5.0) << "too rare to count";
    chi += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  const double freedom = static_cast<double>(dist.size()) - 1;
  return (chi / freedom - 1) / std::sqrt(2 / freedom);
}

TEST(TextDrafts, TheExactRuleKeepsTheDistribution) {
  const SmallText target = small_text(small_text_spec(kIds)),
                  draft = small_text(small_text_spec(kIds), 1, 99);
  Question q;
  q.prompt = small_prompt(target.model, 6, 3);
  q.dist.temperature = 1.5;
  q.max_tokens = kTokens;
  constexpr std::uint64_t kTexts = 16000;
  const double right = deviation(count_texts(target, draft, q, kTexts, false), target, q, kTexts);
  const double wrong = deviation(count_texts(target, draft, q, kTexts, true), target, q, kTexts);
  EXPECT_LT(std::abs(right), 4) << "texts follow another distribution than the target's";
  EXPECT_GT(wrong, 8) << "a wrong record would not be seen";
  RecordProperty("right", std::to_string(right));
  RecordProperty("wrong", std::to_string(wrong));
}

}  // namespace
}  // namespace tessera::text_drafter_test
