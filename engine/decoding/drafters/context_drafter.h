// The code that usually stands between these two neighbours, left and above: a table shipped next to
// the model. No chance in it: recorded as a point.
#pragma once

#include <memory>

#include "engine/core/index.h"
#include "engine/decoding/draft_table.h"
#include "engine/decoding/drafters/simple_drafters.h"

namespace tessera {

inline std::int64_t draft_table_bytes(const DecodeAids& aids) {
  const auto codes = to_index(aids.grammar.codes);
  return 2 * codes * (codes + 2);
}

inline constexpr MethodPart kContextPart{
    .name = "context",
    .needs = [](const SettingValues&,
                const VocabularyGrammar&) { return PartNeeds{.drafts = DraftUse::kNeeded}; },
    .bytes = [](const SettingValues&, const DecodeAids& aids,
                std::int64_t) { return draft_table_bytes(aids); },
    .for_rows = true,
    .instead = kUniformPart.name};

template <typename Real, typename Random>
class ContextDrafter final : public SlotDrafter<Real, Random> {
 public:
  ContextDrafter(const VocabularyGrammar& grammar, std::shared_ptr<const DraftTable> table)
      : SlotDrafter<Real, Random>(grammar), table_(std::move(table)) {}
  static std::unique_ptr<Drafter<Real, Random>> make(const SettingValues&, const DecodeAids& aids) {
    return std::make_unique<ContextDrafter>(aids.grammar, aids.drafts);
  }
  std::string_view name() const override { return kContextPart.name; }
  DraftSignals needs() const override { return {}; }

 private:
  bool fill(DraftJob<Real, Random>& job) override {
    const std::size_t position = job.next_position();
    const std::optional<std::size_t> left = this->grammar().left(position);
    const std::optional<std::size_t> above = this->grammar().above(position);
    // The first code of a later grid has neither.
    if (const auto earlier = this->grammar().earlier(position); !left && !above && earlier) {
      job.window->append_point(job.token(*earlier));
      return true;
    }
    job.window->append_point(
        table_->draft(left ? job.token(*left) : -1, above ? job.token(*above) : -1));
    return true;
  }

  std::shared_ptr<const DraftTable> table_;
};

}  // namespace tessera
