// The code that usually stands between these two neighbours, left and above: a table shipped beside
// the model. No chance in it: recorded as a point.
#pragma once

#include <memory>

#include "engine/decoding/drafter.h"
#include "engine/decoding/guess_table.h"

namespace tessera {

template <typename Real, typename Random>
class ContextDrafter final : public SlotDrafter<Real, Random> {
 public:
  ContextDrafter(const VocabularyGrammar& grammar, std::shared_ptr<const GuessTable> table)
      : SlotDrafter<Real, Random>(grammar), table_(std::move(table)) {}
  std::string_view name() const override { return "context"; }
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
        table_->guess(left ? job.token(*left) : -1, above ? job.token(*above) : -1));
    return true;
  }

  std::shared_ptr<const GuessTable> table_;
};

}  // namespace tessera
