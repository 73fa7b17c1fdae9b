#include "engine/decoding/device_verifier.h"

#include <algorithm>

#include "engine/decoding/trees/device_tree.h"

namespace tessera {

namespace {

// The records of a pass's rows, as sequences ask for them; all shapes read the same.
class RecordVerdicts final : public Verdicts<float> {
 public:
  // `first` of the pass's rows is the stream's.
  RecordVerdicts(std::span<const RowRecord> records, std::int32_t first)
      : records_(records), first_(first) {}

  Verdict<float> test(std::size_t row) override {
    const RowRecord& record = records_[row];
    Verdict<float> out = draw(row, 0);
    out.accepted = record.accepted != 0;
    out.strict = record.strict;
    out.chance = record.chance;
    out.next = record.next;
    return out;
  }
  Verdict<float> draw(std::size_t row, std::size_t) override {
    const RowRecord& record = records_[row];
    Verdict<float> out;
    out.token = record.token;
    out.figures = {record.probability, record.above, record.mean, record.spread};
    out.likeliest = record.likeliest;
    return out;
  }
  Redraft<float> redraft(std::size_t row, std::size_t) override {
    const RowRecord& record = records_[row];
    return {record.redraft, {}, first_ + static_cast<std::int32_t>(row), record.next};
  }

 private:
  std::span<const RowRecord> records_;
  std::int32_t first_;
};

// Whether a device knows the rule and the redraft policy; they write down what it needs.
bool describe(const LoopParts& parts, JudgeMethod& method) {
  switch (parts.shape()) {
    case PassShape::kRows:
    case PassShape::kBlock:
      return true;
    case PassShape::kTree:
      return parts.tree.settings.width <= kMostSiblings && parts.tree.rule->describe(method) &&
             parts.tail->describe(method);
    case PassShape::kLine:
      break;
  }
  return parts.rule->describe(method) && parts.tail->describe(method);
}

// Who draws the drafts of a model on the device.
const RowJudge* guest_of(const LoopParts& parts, const Backend& backend) {
  if (parts.drafter != nullptr) return parts.drafter->judge_on(backend);
  const bool by_model = parts.shape() == PassShape::kTree && parts.tree.source != nullptr;
  return by_model ? parts.tree.source->judge_on(backend) : nullptr;
}

}  // namespace

DeviceVerifier::DeviceVerifier(const LoopParts& parts, std::unique_ptr<RowJudge> judge,
                               const JudgeLimits& limits, std::int64_t window)
    : parts_(parts),
      judge_(std::move(judge)),
      width_(static_cast<std::size_t>(limits.width)),
      window_(static_cast<std::size_t>(window)),
      slots_(static_cast<std::size_t>(limits.items)) {
  batch_.items.reserve(slots_.size());
  batch_.rows.reserve(static_cast<std::size_t>(limits.rows));
  streams_.reserve(slots_.size());
  draws_.reserve(static_cast<std::size_t>(limits.rows));
  first_draws_.reserve(slots_.size() + 1);
  if (parts.drafter != nullptr) columns_ = parts.drafter->needs().kept_laws;
  for (Slot& slot : slots_) {
    slot.kept_laws.reserve(std::min(columns_, window_));
    slot.awaited.reserve(window_);
  }
  if (limits.remembered > 0) kept_laws_.reserve(static_cast<std::size_t>(limits.rows));
  if (width_ > 0) batch_.nodes.reserve(static_cast<std::size_t>(limits.rows));
}

std::unique_ptr<DeviceVerifier> DeviceVerifier::make(Backend& backend, const LoopParts& parts,
                                                     const VocabularyGrammar& grammar,
                                                     std::int64_t items, std::int64_t window) {
  RowJudgeMaker* maker = backend.row_judges();
  if (maker == nullptr) return nullptr;
  if (parts.judges != nullptr) maker = parts.judges;
  const bool tree = parts.shape() == PassShape::kTree;
  const bool by_model = tree && parts.tree.source != nullptr;
  const RowJudge* const guest = guest_of(parts, backend);
  const DraftSignals needs = parts.drafter != nullptr ? parts.drafter->needs() : DraftSignals{};
  std::int64_t kept = 0;  // distributions an item
  if (needs.rows && guest == nullptr && parts.shape() == PassShape::kLine) {
    kept = static_cast<std::int64_t>(needs.kept_laws);
  }
  if ((by_model || needs.rows) && guest == nullptr && kept == 0) return nullptr;
  JudgeMethod method;
  if (!describe(parts, method)) return nullptr;
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
  std::unique_ptr<DeviceVerifier> out(new DeviceVerifier(parts, std::move(judge), limits, window));
  out->guest_ = guest;
  out->memory_ = out->judge_->memory();
  if (kept > 0 && out->memory_ == nullptr) return nullptr;
  return out;
}

std::unique_ptr<LoopSequence> DeviceVerifier::make_sequence(const LawSettings& law,
                                                            const VocabularyGrammar& grammar,
                                                            KeyedRandom random, std::size_t slot) {
  expects(columns_ == 0 || grammar.columns <= columns_, "a device keeps a distribution a column");
  Slot& own = slots_[slot];
  own.tree = nullptr;
  own.kept_laws.clear();
  own.awaited.clear();
  switch (parts_.shape()) {
    case PassShape::kTree: {
      auto tree = std::make_unique<DeviceTree>(law, grammar, window_, parts_.tree, parts_.tail,
                                               parts_.drafter, random, slot);
      own.tree = tree.get();
      return tree;
    }
    case PassShape::kLine:
      return std::make_unique<ChainSequence<float, KeyedRandom>>(law, grammar, window_, parts_,
                                                                 random, slot, DraftLaws::kOfRows);
    case PassShape::kRows:
    case PassShape::kBlock:
      break;
  }
  return tessera::make_sequence(law, grammar, window_, parts_, random, slot);
}

// Drafts that are drawn from distributions that the memory keeps.
void DeviceVerifier::ask_for_drafts(LoopSequence& sequence) {
  std::vector<std::size_t>& awaited = slots_[sequence.slot()].awaited;
  awaited.clear();
  const DraftWindow<float>* const drafts = sequence.window();
  for (std::size_t i = 0; drafts != nullptr && i < drafts->size(); ++i) {
    if (drafts->awaited(i) < 0) continue;
    draws_.push_back({.key = sequence.random().key(),
                      .position = sequence.position() + static_cast<std::uint32_t>(i),
                      .law_row = drafts->awaited(i)});
    awaited.push_back(i);
  }
}

void DeviceVerifier::complete(std::span<LoopSequence* const> sequences) {
  if (width_ == 0 && memory_ == nullptr) return;
  kept_laws_.clear();
  draws_.clear();
  first_draws_.assign(1, 0);
  for (LoopSequence* const sequence : sequences) {
    Slot& slot = slots_[sequence->slot()];
    kept_laws_.insert(kept_laws_.end(), slot.kept_laws.begin(), slot.kept_laws.end());
    slot.kept_laws.clear();
    if (slot.tree != nullptr) {
      slot.tree->ask(draws_);
    } else {
      ask_for_drafts(*sequence);
    }
    first_draws_.push_back(draws_.size());
  }
  std::span<const DrawnId> drawn;
  if (!kept_laws_.empty()) memory_->keep(kept_laws_);
  if (!draws_.empty()) {
    drawn = memory_ != nullptr ? memory_->race(draws_) : judge_->draw(draws_, guest_laws());
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Slot& slot = slots_[sequences[i]->slot()];
    const std::size_t first = first_draws_[i] * (width_ + 1);
    const auto own = drawn.subspan(first, first_draws_[i + 1] * (width_ + 1) - first);
    if (slot.tree != nullptr) {
      slot.tree->take_drawn(own);
      continue;
    }
    for (std::size_t k = 0; k < slot.awaited.size(); ++k) {
      sequences[i]->window()->tell(slot.awaited[k], own[k].token);
    }
  }
}

void DeviceVerifier::begin() {
  batch_.clear();
  streams_.clear();
}

void DeviceVerifier::add(const StreamRows& rows) {
  LoopSequence& sequence = *rows.sequence;
  sequence.begin_pass();
  const auto number = static_cast<std::int32_t>(batch_.items.size());
  const auto first = static_cast<std::int32_t>(batch_.rows.size());
  slots_[sequence.slot()].first = first;
  JudgedItem item =
      judged_item(sequence.law(), sequence.random(), first, static_cast<std::int32_t>(rows.rows));
  sequence.describe(item, batch_.rows, batch_.nodes);
  batch_.items.push_back(item);
  for (std::size_t j = 0; j < rows.rows; ++j) {
    JudgedRow& row = batch_.rows[static_cast<std::size_t>(first) + j];
    const std::int64_t cond = rows.first + static_cast<std::int64_t>(j);
    row.item = number;
    row.cond = static_cast<std::int32_t>(cond);
    if (!sequence.law().guided()) continue;
    row.uncond = static_cast<std::int32_t>(cond + static_cast<std::int64_t>(rows.rows));
  }
  streams_.push_back(&sequence);
}

void DeviceVerifier::read(ModelPass& pass, std::size_t space) {
  // A pass of prompts alone leaves the distributions of the last one where they are.
  if (!streams_.empty()) read(pass.device_logits(space));
}

void DeviceVerifier::read(ConstTensorView logits) {
  judge_->judge({logits, batch_.items, batch_.rows, batch_.nodes, guest_laws()});
  row_records_ = judge_->rows();
  item_records_ = judge_->items();
}

std::optional<BrokenLogit> DeviceVerifier::settle(std::size_t number) {
  LoopSequence& sequence = *streams_[number];
  const std::span<const RowRecord> records = rows(number);
  const auto sound = static_cast<std::size_t>(item_records_[number].sound);
  const bool broken = sound == 0 || (sound < records.size() && !sequence.bears_broken_rows());
  if (broken) {
    const RowRecord& record = records[sound];
    return BrokenLogit{sound, record.unsound, record.unsound_logit};
  }
  const std::size_t before = sequence.tokens().size();
  RecordVerdicts verdicts(records, slots_[sequence.slot()].first);
  sequence.settle(verdicts, sound);
  note_laws(sequence, before);
  return std::nullopt;
}

// The newest code of a column counts. Row j spoke of the position j places after `before`.
void DeviceVerifier::note_laws(const LoopSequence& sequence, std::size_t before) {
  if (columns_ == 0 || parts_.shape() != PassShape::kLine) return;
  Slot& slot = slots_[sequence.slot()];
  const VocabularyGrammar& grammar = sequence.grammar();
  slot.kept_laws.clear();
  for (std::size_t place = before; place < sequence.tokens().size(); ++place) {
    if (grammar.forced(place)) continue;
    const KeptLaw law{
        slot.first + static_cast<std::int32_t>(place - before),
        static_cast<std::int32_t>(sequence.slot() * columns_ + grammar.column(place))};
    const auto same = std::find_if(slot.kept_laws.begin(), slot.kept_laws.end(),
                                   [&](const KeptLaw& other) { return other.to == law.to; });
    if (same != slot.kept_laws.end()) {
      same->from = law.from;
    } else {
      slot.kept_laws.push_back(law);
    }
  }
}

std::span<const RowRecord> DeviceVerifier::rows(std::size_t number) const {
  const JudgedItem& item = batch_.items[number];
  return row_records_.subspan(static_cast<std::size_t>(item.first),
                              static_cast<std::size_t>(item.rows));
}

}  // namespace tessera
