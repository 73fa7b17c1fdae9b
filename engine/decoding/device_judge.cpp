#include "engine/decoding/device_judge.h"

namespace tessera {

DeviceJudge::DeviceJudge(std::unique_ptr<RowJudge> judge, std::int64_t items, std::int64_t rows)
    : judge_(std::move(judge)) {
  items_.reserve(static_cast<std::size_t>(items));
  rows_.reserve(static_cast<std::size_t>(rows));
}

std::unique_ptr<DeviceJudge> DeviceJudge::make(Backend& backend, const Parts& parts,
                                               const VocabularyGrammar& grammar, std::int64_t items,
                                               std::int64_t window) {
  RowJudgeMaker* maker = backend.row_judges();
  if (maker == nullptr || parts.shape() != PassShape::kLine || parts.tv_budget > 0) return nullptr;
  if (parts.drafter != nullptr && parts.drafter->reads_rows()) return nullptr;
  JudgeMethod method;
  if (!parts.rule->describe(method) || !parts.tail->describe(method)) return nullptr;
  if (grammar.codes > static_cast<std::size_t>(kMostJudgedCodes)) return nullptr;
  method.laws = window > 1 && parts.needs_laws();
  const JudgeLimits limits{static_cast<std::int64_t>(grammar.codes), items * window, items};
  return std::unique_ptr<DeviceJudge>(
      new DeviceJudge(maker->make(method, limits), items, limits.rows));
}

void DeviceJudge::begin() {
  items_.clear();
  rows_.clear();
}

std::size_t DeviceJudge::add(JudgedChain& chain, std::int64_t cond, std::int64_t uncond) {
  chain.describe(static_cast<std::int32_t>(cond), static_cast<std::int32_t>(uncond), items_, rows_);
  return items_.size() - 1;
}

void DeviceJudge::run(ConstTensorView logits) {
  judge_->judge({logits, items_, rows_});
  row_records_ = judge_->rows();
  item_records_ = judge_->items();
}

std::span<const RowRecord> DeviceJudge::rows(std::size_t number) const {
  const JudgedItem& item = items_[number];
  return row_records_.subspan(static_cast<std::size_t>(item.first),
                              static_cast<std::size_t>(item.rows));
}

}  // namespace tessera
