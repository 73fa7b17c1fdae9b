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
  ContextDrafter(std::size_t columns, std::shared_ptr<const GuessTable> table)
      : columns_(columns), table_(std::move(table)) {}
  std::string_view name() const override { return "context"; }

 private:
  bool fill(DraftJob<Real, Random>& job) override {
    const std::size_t position = job.next_position();
    const std::int32_t above = position >= columns_ ? job.token(position - columns_) : -1;
    const std::int32_t left = position % columns_ > 0 ? job.token(position - 1) : -1;
    job.window->append_point(table_->guess(left, above));
    return true;
  }

  std::size_t columns_;
  std::shared_ptr<const GuessTable> table_;
};

}  // namespace tessera
