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
  JudgedItem stream = judged_item(law_.settings(), random_, first_, count);
  stream.position = position();
  stream.budget = std::max(0.0, parts_.tv_budget);
  stream.spent = meters_.excess;
  stream.total = static_cast<std::int64_t>(total_);
  batch.items.push_back(stream);
  for (std::int32_t j = 0; j < count; ++j) {
    const auto depth = static_cast<std::size_t>(j);
    JudgedRow row = judged_row(law_.settings(), item, cond + j, uncond + j);
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
  const std::size_t before = tokens_.size();
  settle(Records{*this, records}, static_cast<std::size_t>(item.sound));
  kept_laws_.clear();
  if (columns_ == 0) return;
  // The newest code of a column counts. Row j spoke of the position j places behind `before`.
  for (std::size_t place = before; place < tokens_.size(); ++place) {
    if (grammar().forced(place)) continue;
    const KeptLaw law{first_ + static_cast<std::int32_t>(place - before),
                      static_cast<std::int32_t>(item_ * columns_ + grammar().column(place))};
    const auto same = std::find_if(kept_laws_.begin(), kept_laws_.end(),
                                   [&](const KeptLaw& other) { return other.to == law.to; });
    if (same != kept_laws_.end()) {
      same->from = law.from;
    } else {
      kept_laws_.push_back(law);
    }
  }
}

void JudgedChain::remember(std::vector<KeptLaw>& laws) {
  laws.insert(laws.end(), kept_laws_.begin(), kept_laws_.end());
  kept_laws_.clear();
}

void JudgedChain::wish(std::vector<JudgedDraw>& draws) {
  wishes_.clear();
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    if (drafts_.awaited(i) < 0) continue;
    draws.push_back({.key = random_.key(),
                     .position = position() + static_cast<std::uint32_t>(i),
                     .law_row = drafts_.awaited(i)});
    wishes_.push_back(i);
  }
}

void JudgedChain::take_drawn(std::span<const DrawnId> drawn) {
  for (std::size_t k = 0; k < wishes_.size(); ++k) drafts_.tell(wishes_[k], drawn[k].token);
}

}  // namespace tessera
