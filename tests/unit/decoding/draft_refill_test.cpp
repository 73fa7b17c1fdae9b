// Slots that go from stream to stream while a draft model has drafts in flight for others: images
// and texts, guided or not, in lines and in trees. What a stream says, and how many passes it
// takes, is what it says and takes alone.
#include <gtest/gtest.h>

#include <random>

#include "engine/decoding/drafters/model_drafter.h"
#include "engine/decoding/method_parts.h"
#include "engine/decoding/model_pass.h"
#include "tests/support/draft_streams.h"
#include "tests/unit/decoding/text_run.h"
#include "tests/unit/decoding/tiny_run.h"

namespace tessera::draft_refill_test {
namespace {

using Random = std::mt19937;

std::int64_t below(Random& random, std::int64_t end) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(end));
}

// A stream as the target is asked for it, and as the draft model is.
struct Asked {
  DraftStreamItem target, draft;
  bool heard = true;  // the drafter is notified of it
  std::uint64_t item = 0;
};

struct Outcome {
  Tokens tokens;
  std::int64_t passes = 0;
  bool operator==(const Outcome&) const = default;
};

// The passes of a loop, put together by hand for slots that are filled at any time.
class Slots {
 public:
  Slots(const TokenModel& model, const LoopParts& parts, ModelDrafter* drafter, std::size_t items,
        std::size_t window, std::int64_t tokens)
      : parts_(parts),
        drafter_(drafter),
        window_(window),
        pass_(model, limits(static_cast<std::int64_t>(items), static_cast<std::int64_t>(window),
                            tokens)),
        slots_(items) {
    if (drafter_ != nullptr) drafter_->start(items);
  }

  bool free(std::size_t slot) const { return slots_[slot].sequence == nullptr; }
  bool idle() const {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const Slot& slot) { return slot.sequence == nullptr; });
  }

  void add(std::size_t number, Asked stream) {
    Slot& slot = slots_[number];
    slot = {};
    if (drafter_ != nullptr) {
      drafter_->renew(number);
      if (stream.heard) drafter_->set_stream(number, std::move(stream.draft));
    }
    slot.stream = std::move(stream);
    const DraftStreamItem& asked = slot.stream.target;
    slot.sequence = make_sequence(asked.dist, asked.grammar, window_, parts_,
                                  KeyedRandom(11, slot.stream.item), number);
    slot.sequence->stop_after(asked.stops);
    for (std::size_t branch = 0; branch < 2; ++branch) {
      pass_.cache().truncate(sequence(number, branch), 0);
    }
  }
  void drop(std::size_t number) { slots_[number] = {}; }

  // One pass; streams that are done go to `done`, by item.
  void step(std::map<std::uint64_t, Outcome>& done) {
    std::vector<std::size_t> fresh;
    jobs_.clear();
    for (std::size_t number = 0; number < slots_.size(); ++number) {
      if (free(number)) continue;
      if (slots_[number].prefilled) {
        jobs_.push_back(slots_[number].sequence->draft_job(window_));
      } else {
        fresh.push_back(number);
      }
    }
    draft();
    run();
    for (const std::size_t number : fresh) prefill(number);
    for (std::size_t number = 0; number < slots_.size(); ++number) {
      Slot& slot = slots_[number];
      if (free(number) || !slot.sequence->done()) continue;
      done[slot.stream.item] = {slot.sequence->tokens(), slot.sequence->meters().passes};
      slot = {};
    }
  }

 private:
  struct Slot {
    Asked stream;
    std::unique_ptr<TokenSequence<float, KeyedRandom>> sequence;  // null = free
    bool prefilled = false;
    std::int64_t first_row = 0, cached = 0;
    std::size_t rows = 0;
    std::size_t branches() const { return stream.target.branches.size(); }
  };

  static ModelPass::Limits limits(std::int64_t items, std::int64_t window, std::int64_t tokens) {
    return {.sequences = 2 * items,
            .capacity = 80 + tokens,
            .logit_rows = 2 * items * window,
            .token_rows = 2 * items * window,
            .prompt_rows = 2 * 80,
            .branch_rows = window,
            .branch_seen = window};
  }
  static std::int32_t sequence(std::size_t number, std::size_t branch) {
    return static_cast<std::int32_t>(2 * number + branch);
  }

  void draft() {
    if (drafter_ == nullptr || jobs_.empty()) return;
    if (parts_.drafter != nullptr) parts_.drafter->extend(jobs_);
    while (true) {
      trees_.clear();
      for (const auto& job : jobs_) {
        const TreeJob<float> wanted = slots_[job.item].sequence->grow();
        if (!wanted.wanted.empty()) trees_.push_back(wanted);
      }
      if (trees_.empty()) return;
      parts_.tree.source->answer(trees_);
    }
  }

  void run() {
    if (jobs_.empty()) return;
    pass_.begin();
    for (const auto& job : jobs_) {
      Slot& slot = slots_[job.item];
      slot.rows = slot.sequence->rows();
      slot.first_row = pass_.rows();
      slot.cached = pass_.cache().length(sequence(job.item, 0)) -
                    slot.stream.target.branches[0].length();
      for (std::size_t branch = 0; branch < slot.branches(); ++branch) add_rows(job.item, branch);
    }
    pass_.run();
    pass_.fetch_logits();
    for (const auto& job : jobs_) {
      verify(job.item);
      Slot& slot = slots_[job.item];
      for (std::size_t branch = 0; branch < slot.branches(); ++branch) {
        const std::int64_t before = slot.stream.target.branches[branch].length() + slot.cached;
        std::vector<std::int64_t> kept;
        for (const std::int32_t row : slot.sequence->kept_rows()) kept.push_back(before + row);
        pass_.cache().compact(sequence(job.item, branch), kept, before);
      }
    }
  }

  void add_rows(std::size_t number, std::size_t branch) {
    const Slot& slot = slots_[number];
    const StreamPrompt& prompt = slot.stream.target.branches[branch];
    const std::int64_t rows = prompt.length();
    const std::int64_t place = prompt.first_position();
    for (std::size_t row = 0; row < slot.rows;) {
      const std::size_t count = slot.sequence->line(row, line_);
      for (std::int32_t& seen : line_.seen) seen += static_cast<std::int32_t>(rows);
      pass_.add_line(sequence(number, branch),
                     {place + static_cast<std::int64_t>(line_.position),
                      rows + static_cast<std::int64_t>(line_.shared), line_.seen, line_.tokens});
      row += count;
    }
  }

  void prefill(std::size_t number) {
    Slot& slot = slots_[number];
    pass_.begin();
    std::int64_t end = 0;
    std::array<std::int64_t, 2> last{};
    for (std::size_t branch = 0; branch < slot.branches(); ++branch) {
      const StreamPrompt& prompt = slot.stream.target.branches[branch];
      if (prompt.rows == nullptr) {
        pass_.add_prompt(sequence(number, branch), prompt.ids);
      } else {
        pass_.add_prompt_rows(sequence(number, branch), prompt.rows->view(), prompt.positions);
      }
      end += prompt.length();
      last[branch] = end - 1;
    }
    pass_.run_layers();
    for (std::size_t branch = 0; branch < slot.branches(); ++branch) {
      pass_.run_head(last[branch], 1, static_cast<std::int64_t>(branch));
    }
    pass_.fetch_logits();
    slot.prefilled = true;
    slot.first_row = 0;
    slot.rows = 1;
    verify(number);
  }

  void verify(std::size_t number) {
    Slot& slot = slots_[number];
    slot.sequence->verify(
        [&](std::size_t row) {
          const std::int64_t cond = slot.first_row + static_cast<std::int64_t>(row);
          const std::int64_t uncond = cond + static_cast<std::int64_t>(slot.rows);
          return RawRow<float>{pass_.logits(cond), slot.branches() == 2
                                                       ? pass_.logits(uncond)
                                                       : std::span<const float>()};
        },
        slot.rows);
  }

  LoopParts parts_;
  ModelDrafter* drafter_;
  std::size_t window_;
  ModelPass pass_;
  std::vector<Slot> slots_;
  std::vector<DraftJob<float, KeyedRandom>> jobs_;
  std::vector<TreeJob<float>> trees_;
  PassLine line_;
};

// What the streams of a kind are made of. Streams are made anew for every run, as prompts are read
// once.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual const TokenModel& target() const = 0;
  virtual const TokenModel& draft(bool other) const = 0;
  virtual Asked stream(std::uint64_t item) const = 0;
  virtual VocabularyGrammar grammar() const = 0;  // of the longest stream
};

// Three rows of codes after prompts of 3 to 7 ids, every other one guided.
class Images final : public Kind {
 public:
  Images() {
    opened_ = open_model("test:tiny");
    opened_.spec.model.grid_rows = 3;
  }
  const TokenModel& target() const override { return tiny_.model; }
  const TokenModel& draft(bool) const override { return tiny_.model; }
  VocabularyGrammar grammar() const override { return opened_.spec.model.grammar(); }
  Asked stream(std::uint64_t item) const override {
    Stream asked = tiny_.item(static_cast<int>(item));
    if (item % 2 == 1) asked.dist.guidance = 1;
    Asked out{draft_stream(asked, grammar()), draft_stream(asked, grammar())};
    // Drafts that are right for a while and then are not; a guided stream may have drafts without.
    out.draft.dist.temperature += 0.3 * static_cast<double>(item % 3);
    if (item % 4 == 2) {
      out.draft.dist.guidance = 1;
      out.draft.branches.pop_back();
    }
    out.item = item;
    return out;
  }

 private:
  TinyRun tiny_;
  OpenedModel opened_;
};

// Texts of 8 to 29 tokens after embedded prompts, some with stops, every third one guided.
class Texts final : public Kind {
 public:
  const TokenModel& target() const override { return small_.model; }
  const TokenModel& draft(bool other) const override { return (other ? other_ : small_).model; }
  VocabularyGrammar grammar() const override { return VocabularyGrammar::line(40, 29); }
  Asked stream(std::uint64_t item) const override {
    const Question q = questions(small_.model, static_cast<int>(item) + 1).back();
    Asked out{make(q), make(q)};
    out.draft.dist.temperature += 0.2 * static_cast<double>(item % 2);
    out.item = item;
    return out;
  }

 private:
  DraftStreamItem make(const Question& q) const {
    DraftStreamItem out = draft_stream(item_of(small_.model, q), grammar());
    if (q.item % 3 != 1) return out;
    out.dist.guidance = 2;
    Question other = q;
    other.prompt = {q.prompt.back(), 7};
    out.branches.push_back(draft_stream(item_of(small_.model, other), grammar()).branches[0]);
    return out;
  }

  SmallText small_ = small_text(), other_ = small_text(small_text_spec(), 1, 99);
};

struct Method {
  const char* rule;       // in a line
  const char* tree = "";  // else
  bool exact = false;     // the tokens depend on the drafts
  std::int64_t width = 2;
};

// What a method runs with.
struct Parts {
  Parts(const Method& method, std::int64_t window, const VocabularyGrammar& grammar) {
    DecodeMethod asked;
    asked.drafter = kModelDrafter;
    asked.rule = method.rule;
    asked.window = window;
    asked.tree = *method.tree == 0 ? "none" : method.tree;
    asked.set(setting::kTreeWidth, static_cast<double>(method.width));
    asked.set(setting::kTreeDepth, 2);
    DecodeAids aids;
    aids.grammar = grammar;
    aids.draft_model = true;
    owned.emplace(asked, aids);
  }
  LoopParts with(ModelDrafter* drafter) const {
    LoopParts out = owned->parts();
    if (out.tree.rule != nullptr) {
      out.tree.source = drafter;
    } else {
      out.drafter = drafter;
    }
    return out;
  }
  std::optional<OwnedParts<float, KeyedRandom>> owned;
};

DraftLimits limits_of(const Kind& kind, std::size_t items, std::size_t window, bool trees) {
  return {.items = static_cast<std::int64_t>(items),
          .prompt_rows = 64,
          .tokens = static_cast<std::int64_t>(kind.grammar().length()),
          .window = static_cast<std::int64_t>(window),
          .trees = trees};
}

class DraftStreams : public ::testing::Test {
 protected:
  // A stream by itself; `window` 1 is plain decoding.
  Outcome alone(const Kind& kind, Asked stream, const Method& method, std::size_t window,
                bool other) {
    const std::uint64_t item = stream.item;
    const Method own = window == 1 ? Method{"gumbel"} : method;
    const Parts parts(own, static_cast<std::int64_t>(window), kind.grammar());
    std::optional<ModelDrafter> drafter;
    if (window > 1) {
      drafter.emplace(kind.draft(other), limits_of(kind, 1, window, *method.tree != 0));
    }
    Slots slots(kind.target(), parts.with(drafter ? &*drafter : nullptr),
                drafter ? &*drafter : nullptr, 1, window,
                static_cast<std::int64_t>(kind.grammar().length()));
    std::map<std::uint64_t, Outcome> done;
    slots.add(0, std::move(stream));
    while (!slots.idle()) slots.step(done);
    return done.at(item);
  }

};

class DraftRefills : public DraftStreams, public ::testing::WithParamInterface<int> {
 protected:
  void run_schedule(const Kind& kind, std::uint32_t seed);

  std::int64_t dropped_ = 0, helped_ = 0, refilled_ = 0;
};

void DraftRefills::run_schedule(const Kind& kind, std::uint32_t seed) {
  static constexpr Method kMethods[] = {{"gumbel"},
                                        {"gumbel", "gumbel"},
                                        {"exact", "", true},
                                        {"exact", "rsd", true},
                                        {"exact", "dyspec", true}};
  Random random(seed);
  const Method& method = kMethods[seed % 5];
  const auto window = static_cast<std::size_t>(2 + below(random, 6));
  const auto items = static_cast<std::size_t>(1 + below(random, 4));
  const bool other = below(random, 2) == 1;
  DraftLimits limits = limits_of(kind, items, window, *method.tree != 0);
  limits.chunk = below(random, 2) == 0 ? 256 : 1 + below(random, 40);
  ModelDrafter drafter(kind.draft(other), limits);
  const Parts parts(method, static_cast<std::int64_t>(window), kind.grammar());
  Slots slots(kind.target(), parts.with(&drafter), &drafter, items, window,
              static_cast<std::int64_t>(kind.grammar().length()));
  // How each stream is to be asked; the same again when it runs alone.
  const auto asked = [&](std::uint64_t item) {
    Asked out = kind.stream(item);
    out.heard = (item + seed) % 7 != 0;
    out.draft.in_parts = !method.exact && (item + seed) % 2 == 0;
    return out;
  };
  constexpr std::uint64_t kStreams = 7;
  std::map<std::uint64_t, Outcome> done;
  std::map<std::size_t, std::uint64_t> at;
  std::vector<std::uint64_t> expected;
  std::vector<bool> used(items, false);
  for (std::uint64_t next = 0; next < kStreams || !slots.idle();) {
    for (std::size_t slot = 0; slot < items; ++slot) {
      if (!slots.free(slot) && below(random, 40) == 0) {
        slots.drop(slot);
        ++dropped_;
      }
      if (!slots.free(slot) || next == kStreams || below(random, 3) != 0) continue;
      refilled_ += used[slot] && !slots.idle() ? 1 : 0;
      used[slot] = true;
      slots.add(slot, asked(next));
      ++next;
    }
    slots.step(done);
  }
  for (const auto& [item, outcome] : done) {
    const Outcome plain = alone(kind, asked(item), method, 1, other);
    const std::string what = "schedule " + std::to_string(seed) + ", stream " +
                             std::to_string(item) + ", " + method.rule + " " + method.tree +
                             ", window " + std::to_string(window);
    if (!method.exact) {
      ASSERT_EQ(outcome.tokens, plain.tokens) << what;
      ASSERT_LE(outcome.passes, plain.passes) << what;
    }
    if (!asked(item).draft.in_parts) {
      ASSERT_EQ(outcome, alone(kind, asked(item), method, window, other)) << what;
    }
    helped_ += plain.passes - outcome.passes;
  }
}

// 200 schedules each; the parameter is a tenth of them.
TEST_P(DraftRefills, OfImagesChangeNothing) {
  const Images images;
  for (int i = 0; i < 20; ++i) {
    run_schedule(images, static_cast<std::uint32_t>(20 * GetParam() + i));
  }
  EXPECT_GT(dropped_, 5);
  EXPECT_GT(refilled_, 20);
  EXPECT_GT(helped_, 300) << "drafts that are never right would prove nothing";
}

TEST_P(DraftRefills, OfTextsChangeNothing) {
  const Texts texts;
  for (int i = 0; i < 20; ++i) {
    run_schedule(texts, static_cast<std::uint32_t>(1000 + 20 * GetParam() + i));
  }
  EXPECT_GT(dropped_, 5);
  EXPECT_GT(refilled_, 20);
  EXPECT_GT(helped_, 300) << "drafts that are never right would prove nothing";
}

// The target drafts for itself under its own settings: every pass brings a whole window, guided or
// not, in a line or in a tree of one candidate a node.
TEST_F(DraftStreams, OfTheTargetItselfAreAlwaysRight) {
  const Images images;
  const Texts texts;
  for (const Kind* kind : {static_cast<const Kind*>(&images), static_cast<const Kind*>(&texts)}) {
    for (std::uint64_t item = 0; item < 6; ++item) {
      const auto asked = [&] {
        Asked out = kind->stream(item);
        out.draft = kind->stream(item).target;
        return out;
      };
      const Outcome plain = alone(*kind, asked(), {"gumbel"}, 1, false);
      const auto total = static_cast<std::int64_t>(plain.tokens.size());
      for (const std::int64_t window : {2, 5}) {
        const Outcome wanted{plain.tokens, 1 + (total - 1 + window - 1) / window};
        for (const Method& method : {Method{"gumbel"}, Method{"gumbel", "gumbel", false, 1}}) {
          const Outcome twin =
              alone(*kind, asked(), method, static_cast<std::size_t>(window), false);
          EXPECT_EQ(twin.tokens, wanted.tokens) << item << ", window " << window << method.tree;
          EXPECT_EQ(twin.passes, wanted.passes) << item << ", window " << window << method.tree;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tenths, DraftRefills, ::testing::Range(0, 10));

}  // namespace
}  // namespace tessera::draft_refill_test
