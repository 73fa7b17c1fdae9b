// The code at the same place one grid earlier: what stands still in a video is drafted right. No
// chance in it: recorded as a point. The first grid has none before it; another drafter drafts
// there.
#pragma once

#include <memory>

#include "engine/decoding/drafters/context_drafter.h"

namespace tessera {

inline constexpr MethodPart kPreviousFramePart{
    .name = "previous-frame",
    .needs =
        [](const SettingValues&, const VocabularyGrammar& grammar) {
          return PartNeeds{.drafts = grammar.grids > 1 ? DraftUse::kIfThere : DraftUse::kNone};
        },
    .bytes =
        [](const SettingValues&, const DecodeAids& aids, std::int64_t) {
          return aids.drafts != nullptr ? draft_table_bytes(aids) : std::int64_t{0};
        }};

template <typename Real, typename Random>
class PreviousFrameDrafter final : public SlotDrafter<Real, Random> {
 public:
  PreviousFrameDrafter(const VocabularyGrammar& grammar,
                       std::unique_ptr<Drafter<Real, Random>> first)
      : SlotDrafter<Real, Random>(grammar), first_(std::move(first)) {}
  // In the first grid there is no frame before: there the draft table helps, if there is one.
  static std::unique_ptr<Drafter<Real, Random>> make(const SettingValues& values,
                                                     const DecodeAids& aids) {
    std::unique_ptr<Drafter<Real, Random>> first;
    if (aids.drafts != nullptr) {
      first = ContextDrafter<Real, Random>::make(values, aids);
    } else {
      first = std::make_unique<UniformDrafter<Real, Random>>(aids.grammar);
    }
    return std::make_unique<PreviousFrameDrafter>(aids.grammar, std::move(first));
  }
  std::string_view name() const override { return kPreviousFramePart.name; }
  DraftSignals needs() const override { return first_->needs(); }
  void start(std::size_t items) override { first_->start(items); }
  void renew(std::size_t item) override { first_->renew(item); }

 private:
  void learn(const Commitment<Real>& done) override { first_->commit(done); }

  bool fill(DraftJob<Real, Random>& job) override {
    const std::size_t before = job.window->size();
    if (const auto earlier = this->grammar().earlier(job.next_position())) {
      job.window->append_point(job.token(*earlier));
      return true;
    }
    DraftJob<Real, Random> one = job;
    one.want = before + 1;
    first_->extend({&one, 1});
    return job.window->size() > before;
  }

  std::unique_ptr<Drafter<Real, Random>> first_;
};

}  // namespace tessera
