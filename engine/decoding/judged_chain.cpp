#include "engine/decoding/judged_chain.h"

#include <algorithm>
#include <optional>

namespace tessera {

// The rows of a judged pass, as settle() asks for them.
struct JudgedChain::Records {
  JudgedChain& chain;
  std::span<const RowRecord> records;

  Verdict<float> test(std::size_t depth) const {
    const RowRecord& record = records[depth];
    return {{record.accepted != 0, record.token, record.strict, record.chance},
            figures_of(record),
            nullptr,
            record.likeliest};
  }
  Verdict<float> last(std::size_t depth) const {
    Verdict<float> out;
    out.judgement.token = records[depth].token;
    out.figures = figures_of(records[depth]);
    out.likeliest = records[depth].likeliest;
    return out;
  }
  void redraft(std::size_t j, std::size_t to, bool) const {
    chain.drafts_.replace(to, records[j].redraft, chain.first_ + static_cast<std::int32_t>(j));
  }
};

void JudgedChain::describe(std::int32_t cond, std::int32_t uncond, JudgedBatch& batch) {
  begin_pass();
  const auto count = static_cast<std::int32_t>(this->rows());
  const auto item = static_cast<std::int32_t>(batch.items.size());
  first_ = static_cast<std::int32_t>(batch.rows.size());
  batch.items.push_back({.law = judged_law(law_.settings()),
                         .key = random_.key(),
                         .pass = random_.pass(),
                         .position = position(),
                         .first = first_,
                         .rows = count,
                         .budget = std::max(0.0, parts_.tv_budget),
                         .spent = meters_.excess,
                         .total = static_cast<std::int64_t>(total_)});
  for (std::int32_t j = 0; j < count; ++j) {
    const auto depth = static_cast<std::size_t>(j);
    JudgedRow row{.item = item, .cond = cond + j};
    if (law_.settings().guided()) row.uncond = uncond + j;
    const std::optional<std::int32_t> forced = grammar().forced(tokens_.size() + depth);
    if (forced) row.forced = *forced;
    if (j + 1 < count) {
      row.draft = drafts_.token(depth);
      row.kind = draft_kind(drafts_.kind(depth));
      row.law_row = drafts_.law_row(depth);
      if (row.law_row < 0) {
        row.kind = DraftKind::kGuest;
        row.law_row = ~row.law_row;
      }
    }
    row.place = j;
    batch.rows.push_back(row);
  }
}

void JudgedChain::take(std::span<const RowRecord> records, const JudgedCount& item) {
  settle(Records{*this, records}, static_cast<std::size_t>(item.sound));
}

}  // namespace tessera
