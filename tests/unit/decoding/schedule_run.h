// Random schedules for one loop: streams of every kind arrive, are dropped and end while others go
// on, their prompts in parts of any size. Each must write what it writes alone.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/decoding/method_parts.h"
#include "tests/support/made_up_methods.h"
#include "tests/support/tree_decoding.h"
#include "tests/unit/decoding/text_run.h"

namespace tessera {

// Images with and without guidance and with given tokens, texts with and without guidance and with
// stops, one whose prompt is broken: all of one small model.
class StreamPool {
 public:
  static constexpr std::int64_t kTokens = 26, kPromptRows = 20, kGiven = 6;

  explicit StreamPool(const StreamModel& model, int streams = 36) : model_(model) {
    for (int number = 0; number < streams; ++number) {
      streams_.push_back(number % 2 == 0 ? image(number) : text(number));
      // What stands by its position alone is the same for two of them.
      streams_.back().seed = static_cast<std::uint64_t>(number / 3);
      streams_.back().item = static_cast<std::uint64_t>(number);
    }
  }
  std::size_t size() const { return streams_.size(); }
  // Rows side by side take no given tokens.
  Stream stream(std::size_t number, PassShape shape) const {
    Stream out = streams_[number];
    if (shape == PassShape::kRows && !out.given.empty()) out.given.clear();
    return out;
  }
  VocabularyGrammar grammar() const {
    return VocabularyGrammar::line(codes(), static_cast<std::size_t>(kTokens));
  }
  const StreamModel& model() const { return model_; }

 private:
  std::size_t codes() const { return static_cast<std::size_t>(model_.config().vocab); }
  StreamPrompt ids(int number, int turn) const {
    return {small_prompt(model_, 1 + (number * 7 + turn * 5) % kPromptRows,
                         static_cast<std::uint32_t>(number + 40 * turn + 1))};
  }
  StreamPrompt rows(int number, int turn) const {
    const auto asked = ids(number, turn).ids;
    return {.ids = {},
            .rows = std::make_shared<Tensor>(embedded(model_, asked)),
            .positions = places_in_line(asked.size()),
            .next_position = static_cast<std::int64_t>(asked.size()),
            .keys = keys_of(asked)};
  }

  Stream image(int number) const {
    Stream out{.prompt = ids(number, 0)};
    const std::size_t sides[3][2] = {{4, 5}, {3, 4}, {2, 7}};
    const auto& side = sides[number / 2 % 3];
    out.grammar = VocabularyGrammar{.codes = codes(), .rows = side[0], .columns = side[1]};
    out.dist.top_k = number % 4 == 0 ? 0 : 9;
    if (number % 6 != 0) {
      out.dist.guidance = 2.5;
      out.unconditional = ids(number, 1);
    }
    if (number % 10 == 4) out.given = small_prompt(model_, kGiven, 77);
    out.traced = number % 4 == 2;
    return out;
  }
  Stream text(int number) const {
    Stream out{.prompt = rows(number, 0), .kind = StreamKind::kText};
    out.max_tokens = 4 + number * 5 % (kTokens - 3);
    out.dist.temperature = number % 3 == 0 ? 0.0 : 0.8;
    if (number % 4 == 1) {
      out.dist.guidance = 1.7;
      out.unconditional = number % 8 == 1 ? rows(number, 1) : ids(number, 1);
    }
    if (number % 6 == 5) out.stops = {3, 17, 25, 30};
    out.before = ids(number, 0).ids;
    if (number == 21) {
      // Its embedding is no number.
      Tensor broken = Tensor::host(DType::kF32, out.prompt.rows->shape());
      std::fill_n(broken.f32(), broken.shape().elements(), std::nanf(""));
      Tensor rows = model_.backend().allocate(DType::kF32, broken.shape());
      model_.backend().upload(broken.view(), rows.view());
      out.prompt.rows = std::make_shared<Tensor>(std::move(rows));
      out.prompt.keys.assign(out.prompt.keys.size(), {21, 0});
    }
    return out;
  }

  const StreamModel& model_;
  std::vector<Stream> streams_;
};

struct ScheduledMethod {
  std::string name;
  DecodeMethod method;
  bool adaptive = false, equality = false;
};

inline std::vector<ScheduledMethod> scheduled_methods() {
  DecodeMethod rows = combine("none", "drop", "exact", 4);
  rows.set(setting::kRowLead, 2);
  return {{"plain", combine("none", "drop", "exact", 1), false, true},
          {"gumbel", combine("uniform", "gumbel", "gumbel", 6), false, true},
          {"auto", combine("left", "gumbel", "gumbel", 5), true, true},
          {"sjd", combine("uniform", "resample", "exact", 5)},
          {"coupled", combine("neighbour-law", "maximal", "exact", 4)},
          {"recycle", combine("recycling", "drop", "exact", 5)},
          {"lookup", combine("lookup", "drop", "exact", 4)},
          {"tree", combine_tree("pac", "uniform", "maximal", {8, 3, 2})},
          {"kseq", combine_tree("kseq", "recycling", "resample", {6, 2, 2})},
          {"gumbel-tree", combine_tree("gumbel", "left", "gumbel", {8, 2, 3}), false, true},
          {"rows", rows}};
}

// Passes everything on but that a slot has another stream.
class Unrenewed final : public LoopDrafter {
 public:
  explicit Unrenewed(LoopDrafter& inner) : inner_(inner) {}
  std::string_view name() const override { return "unrenewed"; }
  DraftSignals needs() const override { return inner_.needs(); }
  void start(std::size_t items) override { inner_.start(items); }
  void extend(std::span<DraftJob<float, KeyedRandom>> jobs) override { inner_.extend(jobs); }
  void commit(const Commitment<float>& done) override { inner_.commit(done); }

 private:
  LoopDrafter& inner_;
};

class ScheduleRun {
 public:
  // What each stream writes alone, by its number in the pool.
  ScheduleRun(const StreamPool& pool, const ScheduledMethod& way)
      : pool_(pool),
        way_(way),
        owned_(way.method,
               DecodeAids{.grammar = {.codes = pool.grammar().codes, .rows = 4, .columns = 5}}) {
    for (std::size_t i = 0; i < pool.size(); ++i) {
      const Stream stream = pool.stream(i, shape());
      StreamLoop loop(pool.model(), limits(1, 256), owned_.parts());
      truth_.push_back(std::move(run_streams(loop, {&stream, 1})[0]));
    }
  }
  const std::vector<StreamResult>& truth() const { return truth_; }
  std::int64_t drops() const { return drops_; }
  std::int64_t reused() const { return reused_; }  // rows of prompts

  // Streams that came out otherwise than alone. `stale`: drafters do not hear of new streams.
  std::size_t wrong(std::uint32_t seed, bool stale = false) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t end) { return random() % end; };
    const std::int64_t budgets[] = {2, 3, 5, 8, 16, 40, 256};
    const auto items = static_cast<std::int64_t>(1 + below(16));
    LoopParts parts = owned_.parts();
    std::optional<Unrenewed> unrenewed;
    if (stale) parts.drafter = &unrenewed.emplace(*parts.drafter);
    WindowController controller(way_.method.window);
    StreamLoop loop(pool_.model(), limits(items, budgets[below(7)]), parts,
                    way_.adaptive ? &controller : nullptr);
    Heard heard(truth_, way_.adaptive);
    const std::uint32_t streams = 1 + below(static_cast<std::uint32_t>(2 * items) + 4);
    for (std::uint32_t next = 0; next < streams || !loop.idle();) {
      while (next < streams && !loop.full() && below(3) != 0) {
        const std::size_t number = below(static_cast<std::uint32_t>(pool_.size()));
        heard.begin(loop.add(pool_.stream(number, shape())), number);
        ++next;
      }
      if (!heard.at_work.empty() && below(24) == 0) {
        auto one = heard.at_work.begin();
        std::advance(one, below(static_cast<std::uint32_t>(heard.at_work.size())));
        const std::size_t slot = one->first;
        heard.end(slot, loop.drop(slot));
        ++drops_;
      }
      loop.step(heard);
    }
    EXPECT_TRUE(heard.at_work.empty()) << "a stream that never ended";
    reused_ += heard.reused;
    return heard.wrong;
  }

 private:
  // Holds results against the truth.
  struct Heard final : StreamListener {
    struct Work {
      std::size_t number = 0;
      Tokens tokens;
    };
    const std::vector<StreamResult>& truth;
    bool passes_vary;
    std::map<std::size_t, Work> at_work = {};  // by slot
    std::size_t wrong = 0;
    std::int64_t reused = 0;

    Heard(const std::vector<StreamResult>& of, bool vary) : truth(of), passes_vary(vary) {}

    void begin(std::size_t slot, std::size_t number) {
      EXPECT_TRUE(at_work.emplace(slot, Work{number, {}}).second) << "a slot is taken once";
    }
    void on_tokens(std::size_t slot, std::span<const std::int32_t> tokens) override {
      Tokens& all = at_work.at(slot).tokens;
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    void on_done(std::size_t slot, StreamResult&& result) override { end(slot, std::move(result)); }
    void end(std::size_t slot, StreamResult&& result) {
      const Work work = at_work.at(slot);
      at_work.erase(slot);
      const StreamResult& want = truth[work.number];
      const std::size_t given = result.tokens.size() - work.tokens.size();
      EXPECT_TRUE(std::equal(work.tokens.begin(), work.tokens.end(),
                             result.tokens.begin() + static_cast<std::ptrdiff_t>(given)))
          << "emitted once each";
      bool same = result.tokens.size() <= want.tokens.size() &&
                  std::equal(result.tokens.begin(), result.tokens.end(), want.tokens.begin());
      if (result.status != StreamStatus::kStopped) {
        same = same && result.tokens.size() == want.tokens.size() && result.status == want.status &&
               result.stopped == want.stopped && result.error.where == want.error.where &&
               result.prefilled + result.reused == want.prefilled &&
               (passes_vary || result.passes == want.passes) &&
               (passes_vary || result.meters.transforms == want.meters.transforms) &&
               result.trace.marks.size() == want.trace.marks.size();
      }
      reused += result.reused;
      wrong += same ? 0 : 1;
    }
  };

  PassShape shape() const { return way_.method.shape(); }
  StreamLimits limits(std::int64_t items, std::int64_t budget) const {
    const bool rows = shape() == PassShape::kRows;
    return {.items = items,
            .prompt_rows = StreamPool::kPromptRows,
            .grammar = pool_.grammar(),
            .window = way_.method.window,
            .guided = true,
            .budget = budget,
            .dists = true,
            .shape = shape(),
            .given_tokens = rows ? 0 : StreamPool::kGiven};
  }

  const StreamPool& pool_;
  ScheduledMethod way_;
  OwnedParts<float, KeyedRandom> owned_;
  std::vector<StreamResult> truth_;
  std::int64_t drops_ = 0, reused_ = 0;
};

}  // namespace tessera
