#include "engine/decoding/device_judge.h"

#include "engine/decoding/judged_chain.h"
#include "engine/decoding/judged_rows.h"
#include "engine/decoding/trees/judged_tree.h"

namespace tessera {

DeviceJudge::DeviceJudge(std::unique_ptr<RowJudge> judge, const JudgeLimits& limits)
    : judge_(std::move(judge)), width_(static_cast<std::size_t>(limits.width)) {
  batch_.items.reserve(static_cast<std::size_t>(limits.items));
  batch_.rows.reserve(static_cast<std::size_t>(limits.rows));
  draws_.reserve(static_cast<std::size_t>(limits.rows));
  first_draws_.reserve(static_cast<std::size_t>(limits.items) + 1);
  if (limits.remembered > 0) kept_laws_.reserve(static_cast<std::size_t>(limits.rows));
  if (width_ == 0) return;
  batch_.nodes.reserve(static_cast<std::size_t>(limits.rows));
}

std::unique_ptr<DeviceJudge> DeviceJudge::make(Backend& backend, const Parts& parts,
                                               const VocabularyGrammar& grammar, std::int64_t items,
                                               std::int64_t window) {
  RowJudgeMaker* maker = backend.row_judges();
  const bool tree = parts.shape() == PassShape::kTree;
  if (maker == nullptr) return nullptr;
  if (parts.judges != nullptr) maker = parts.judges;
  const bool by_model = tree && parts.tree.source != nullptr;
  const RowJudge* guest = nullptr;
  if (by_model) guest = parts.tree.source->judge_on(backend);
  if (parts.drafter != nullptr) guest = parts.drafter->judge_on(backend);
  const DraftSignals needs = parts.drafter != nullptr ? parts.drafter->needs() : DraftSignals{};
  std::int64_t kept = 0;  // laws an item
  if (needs.rows && guest == nullptr && parts.shape() == PassShape::kLine) {
    kept = static_cast<std::int64_t>(needs.kept_laws);
  }
  if ((by_model || needs.rows) && guest == nullptr && kept == 0) return nullptr;
  JudgeMethod method;
  if (tree) {
    if (parts.tree.settings.width > kMostSiblings || !parts.tree.rule->describe(method)) {
      return nullptr;
    }
  } else if (parts.shape() == PassShape::kLine && !parts.rule->describe(method)) {
    return nullptr;
  }
  if (parts.shape() != PassShape::kRows && !parts.tail->describe(method)) return nullptr;
  if (grammar.codes > static_cast<std::size_t>(kMostJudgedCodes)) return nullptr;
  method.laws = window > 1 && parts.needs_laws() && !by_model;
  method.likeliest = needs.likeliest;
  method.budget = !tree && parts.tv_budget > 0;
  const JudgeLimits limits{.codes = static_cast<std::int64_t>(grammar.codes),
                           .rows = items * window,
                           .items = items,
                           .width = tree ? parts.tree.settings.width : 0,
                           .remembered = items * kept};
  std::unique_ptr<RowJudge> judge = maker->make(method, limits);
  if (judge == nullptr) return nullptr;
  std::unique_ptr<DeviceJudge> out(new DeviceJudge(std::move(judge), limits));
  out->guest_ = guest;
  out->memory_ = out->judge_->memory();
  if (kept > 0 && out->memory_ == nullptr) return nullptr;
  return out;
}

DeviceJudge::Made DeviceJudge::make_sequence(const LawSettings& law,
                                             const VocabularyGrammar& grammar, std::size_t rows,
                                             const Parts& parts, KeyedRandom random,
                                             std::size_t item) {
  const auto made = [](auto sequence) {
    JudgedSequence* const judged = sequence.get();
    return Made{std::move(sequence), judged};
  };
  if (parts.shape() == PassShape::kTree) {
    return made(std::make_unique<JudgedTree>(law, grammar, rows, parts.tree, parts.tail,
                                             parts.drafter, random, item));
  }
  if (parts.shape() == PassShape::kRows) {
    return made(std::make_unique<JudgedRows>(law, grammar, parts.row_lead, random, item));
  }
  return made(std::make_unique<JudgedChain>(law, grammar, rows, parts, random, item));
}

void DeviceJudge::grow(std::span<JudgedSequence* const> sequences) {
  if (width_ == 0 && memory_ == nullptr) return;
  kept_laws_.clear();
  draws_.clear();
  first_draws_.assign(1, 0);
  for (JudgedSequence* const sequence : sequences) {
    sequence->remember(kept_laws_);
    sequence->wish(draws_);
    first_draws_.push_back(draws_.size());
  }
  std::span<const DrawnId> drawn;
  if (!kept_laws_.empty()) memory_->keep(kept_laws_);
  if (!draws_.empty()) {
    drawn = memory_ != nullptr ? memory_->race(draws_) : judge_->draw(draws_, guest_laws());
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::size_t first = first_draws_[i] * (width_ + 1);
    sequences[i]->take_drawn(drawn.subspan(first, first_draws_[i + 1] * (width_ + 1) - first));
  }
}

void DeviceJudge::begin() { batch_.clear(); }

std::size_t DeviceJudge::add(JudgedSequence& sequence, std::int64_t cond, std::int64_t uncond) {
  sequence.describe(static_cast<std::int32_t>(cond), static_cast<std::int32_t>(uncond), batch_);
  return batch_.items.size() - 1;
}

void DeviceJudge::run(ConstTensorView logits) {
  judge_->judge({logits, batch_.items, batch_.rows, batch_.nodes, guest_laws()});
  row_records_ = judge_->rows();
  item_records_ = judge_->items();
}

std::span<const RowRecord> DeviceJudge::rows(std::size_t number) const {
  const JudgedItem& item = batch_.items[number];
  return row_records_.subspan(static_cast<std::size_t>(item.first),
                              static_cast<std::size_t>(item.rows));
}

}  // namespace tessera
