// Drafters that remember what followed what. Prompt lookup (Saxena 2023): copy what followed the
// last earlier occurrence of the newest tokens. Token recycling (arXiv 2408.08696): the likeliest
// successor of the previous code in the newest row that followed it. No chance in either: recorded
// as points.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/drafter.h"
#include "engine/decoding/method_part.h"

namespace tessera {

inline constexpr MethodPart kLookupPart{.name = "lookup", .for_texts = true};

template <typename Real, typename Random>
class LookupDrafter final : public SlotDrafter<Real, Random> {
 public:
  // Matches at most `longest` tokens, at least one.
  explicit LookupDrafter(const VocabularyGrammar& grammar, std::size_t longest = 3)
      : SlotDrafter<Real, Random>(grammar), longest_(longest) {}
  std::string_view name() const override { return kLookupPart.name; }
  DraftSignals needs() const override { return {}; }

 private:
  bool fill(DraftJob<Real, Random>& job) override {
    // Places count from the first id in front of the stream.
    const std::size_t front = job.before.size();
    const auto token = [&](std::size_t place) {
      return place < front ? job.before[place] : job.token(place - front);
    };
    const std::size_t end = front + job.next_position(), known = front + job.committed.size();
    for (std::size_t length = std::min(longest_, known - 1); length >= 1; --length) {
      for (std::size_t at = known - 1; at >= length; --at) {
        std::size_t same = 0;
        while (same < length && token(at - 1 - same) == token(end - 1 - same)) ++same;
        if (same < length || at == end) continue;
        if (at >= front && this->grammar().forced(at - front)) continue;
        job.window->append_point(token(at));
        return true;
      }
    }
    return false;
  }

  std::size_t longest_;
};

inline constexpr MethodPart kRecyclingPart{
    .name = "recycling",
    .bytes = [](const SettingValues&, const DecodeAids& aids,
                std::int64_t streams) { return to_index(4 * aids.grammar.codes) * streams; },
    .for_texts = true};

template <typename Real, typename Random>
class RecyclingDrafter final : public SlotDrafter<Real, Random> {
 public:
  explicit RecyclingDrafter(const VocabularyGrammar& grammar)
      : SlotDrafter<Real, Random>(grammar), codes_(grammar.codes) {}
  std::string_view name() const override { return kRecyclingPart.name; }
  DraftSignals needs() const override { return {.likeliest = true}; }
  void start(std::size_t items) override { next_.assign(items * codes_, -1); }
  void renew(std::size_t item) override {
    std::fill_n(next_.begin() + to_index(item * codes_), codes_, -1);
  }

 private:
  void learn(const Commitment<Real>& done) override {
    if (done.position == 0) return;
    entry(done.item, done.tokens[this->grammar().code_before(done.position)]) =
        done.row != nullptr ? likeliest_of(*done.row) : done.likeliest;
  }
  static std::int32_t likeliest_of(const TargetRow<Real>& row) {
    const auto best = std::max_element(row.probs.begin(), row.probs.end());
    return narrow<std::int32_t>(best - row.probs.begin());
  }
  std::int32_t& entry(std::size_t item, std::int32_t code) {
    return next_[item * codes_ + to_size(code)];
  }
  bool fill(DraftJob<Real, Random>& job) override {
    const std::int32_t last = job.token(this->grammar().code_before(job.next_position()));
    const std::int32_t known = entry(job.item, last);
    job.window->append_point(known >= 0 ? known : last);
    return true;
  }

  std::size_t codes_;
  std::vector<std::int32_t> next_;  // [items, codes], -1 = never seen
};

}  // namespace tessera
