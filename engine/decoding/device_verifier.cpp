#include "engine/decoding/device_verifier.h"

#include <algorithm>

#include "engine/core/index.h"
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
    return {record.redraft, {}, first_ + narrow<std::int32_t>(row), record.next};
  }

 private:
  std::span<const RowRecord> records_;
  std::int32_t first_;
};

// Whether a device knows the rule and the redraft policy; they write down what it needs.
bool describe(const LoopParts& parts, VerifyMethod& method) {
  switch (parts.shape()) {
    case PassShape::kRows:
      return parts.row_window == 1;
    case PassShape::kBlock:
      return true;
    case PassShape::kTree:
      return parts.tree.settings.width <= kMaxSiblings && parts.tree.rule->describe(method) &&
             parts.redraft_policy->describe(method);
    case PassShape::kLine:
      break;
  }
  return parts.rule->describe(method) && parts.redraft_policy->describe(method);
}

// Who draws the drafts of a model on the device.
const RowVerifier* guest_of(const LoopParts& parts, const Backend& backend) {
  if (parts.drafter != nullptr) return parts.drafter->verify_on(backend);
  const bool by_model = parts.shape() == PassShape::kTree && parts.tree.source != nullptr;
  return by_model ? parts.tree.source->verify_on(backend) : nullptr;
}

}  // namespace

DeviceVerifier::DeviceVerifier(const LoopParts& parts, std::unique_ptr<RowVerifier> verifier,
                               const VerifyLimits& limits, std::int64_t window)
    : parts_(parts),
      verifier_(std::move(verifier)),
      width_(to_size(limits.width)),
      window_(to_size(window)),
      slots_(to_size(limits.items)) {
  batch_.items.reserve(slots_.size());
  batch_.rows.reserve(to_size(limits.rows));
  streams_.reserve(slots_.size());
  draws_.reserve(to_size(limits.rows));
  first_draws_.reserve(slots_.size() + 1);
  if (parts.drafter != nullptr) columns_ = parts.drafter->needs().kept_dists;
  for (Slot& slot : slots_) {
    slot.kept_dists.reserve(std::min(columns_, window_));
    slot.awaited.reserve(window_);
  }
  if (limits.remembered > 0) kept_dists_.reserve(to_size(limits.rows));
  if (width_ > 0) batch_.nodes.reserve(to_size(limits.rows));
}

std::unique_ptr<DeviceVerifier> DeviceVerifier::make(Backend& backend, const LoopParts& parts,
                                                     const VocabularyGrammar& grammar,
                                                     std::int64_t items, std::int64_t window) {
  RowVerifierMaker* maker = backend.row_verifiers();
  if (maker == nullptr) return nullptr;
  if (parts.verifiers != nullptr) maker = parts.verifiers;
  const bool tree = parts.shape() == PassShape::kTree;
  const bool by_model = tree && parts.tree.source != nullptr;
  const RowVerifier* const guest = guest_of(parts, backend);
  const DraftSignals needs = parts.drafter != nullptr ? parts.drafter->needs() : DraftSignals{};
  std::int64_t kept = 0;  // distributions an item
  if (needs.rows && guest == nullptr && parts.shape() == PassShape::kLine) {
    kept = to_index(needs.kept_dists);
  }
  if ((by_model || needs.rows) && guest == nullptr && kept == 0) return nullptr;
  VerifyMethod method;
  if (!describe(parts, method)) return nullptr;
  if (grammar.codes > to_size(kMaxVerifiedCodes)) return nullptr;
  method.dists = window > 1 && parts.needs_dists() && !by_model;
  method.likeliest = needs.likeliest;
  method.budget = !tree && parts.tv_budget > 0;
  const VerifyLimits limits{.codes = to_index(grammar.codes),
                            .rows = items * window,
                            .items = items,
                            .width = tree ? parts.tree.settings.width : 0,
                            .remembered = items * kept};
  std::unique_ptr<RowVerifier> verifier = maker->make(method, limits);
  if (verifier == nullptr) return nullptr;
  std::unique_ptr<DeviceVerifier> out(new DeviceVerifier(parts, std::move(verifier), limits, window));
  out->guest_ = guest;
  out->memory_ = out->verifier_->memory();
  if (kept > 0 && out->memory_ == nullptr) return nullptr;
  return out;
}

std::unique_ptr<LoopSequence> DeviceVerifier::make_sequence(const DistributionSettings& dist,
                                                            const VocabularyGrammar& grammar,
                                                            KeyedRandom random, std::size_t slot) {
  expects(columns_ == 0 || grammar.columns <= columns_, "a device keeps a distribution a column");
  Slot& own = slots_[slot];
  own.tree = nullptr;
  own.kept_dists.clear();
  own.awaited.clear();
  switch (parts_.shape()) {
    case PassShape::kTree: {
      auto tree = std::make_unique<DeviceTree>(dist, grammar, window_, parts_.tree, parts_.redraft_policy,
                                               parts_.drafter, random, slot);
      own.tree = tree.get();
      return tree;
    }
    case PassShape::kLine:
      return std::make_unique<ChainSequence<float, KeyedRandom>>(dist, grammar, window_, parts_,
                                                                 random, slot, DraftDistributions::kOfRows);
    case PassShape::kRows:
    case PassShape::kBlock:
      break;
  }
  return tessera::make_sequence(dist, grammar, window_, parts_, random, slot);
}

// Drafts that are drawn from distributions that the memory keeps.
void DeviceVerifier::ask_for_drafts(LoopSequence& sequence) {
  std::vector<std::size_t>& awaited = slots_[sequence.slot()].awaited;
  awaited.clear();
  const DraftWindow<float>* const drafts = sequence.window();
  for (std::size_t i = 0; drafts != nullptr && i < drafts->size(); ++i) {
    if (drafts->awaited(i) < 0) continue;
    draws_.push_back({.key = sequence.random().key(),
                      .position = sequence.position() + narrow<std::uint32_t>(i),
                      .dist_row = drafts->awaited(i)});
    awaited.push_back(i);
  }
}

void DeviceVerifier::complete(std::span<LoopSequence* const> sequences) {
  if (width_ == 0 && memory_ == nullptr) return;
  kept_dists_.clear();
  draws_.clear();
  first_draws_.assign(1, 0);
  for (LoopSequence* const sequence : sequences) {
    Slot& slot = slots_[sequence->slot()];
    kept_dists_.insert(kept_dists_.end(), slot.kept_dists.begin(), slot.kept_dists.end());
    slot.kept_dists.clear();
    if (slot.tree != nullptr) {
      slot.tree->ask(draws_);
    } else {
      ask_for_drafts(*sequence);
    }
    first_draws_.push_back(draws_.size());
  }
  std::span<const DrawnId> drawn;
  if (!kept_dists_.empty()) memory_->keep(kept_dists_);
  if (!draws_.empty()) {
    drawn = memory_ != nullptr ? memory_->race(draws_) : verifier_->draw(draws_, guest_dists());
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
  const auto number = narrow<std::int32_t>(batch_.items.size());
  const auto first = narrow<std::int32_t>(batch_.rows.size());
  slots_[sequence.slot()].first = first;
  VerifiedItem item =
      verified_item(sequence.dist(), sequence.random(), first, narrow<std::int32_t>(rows.rows));
  sequence.describe(item, batch_.rows, batch_.nodes);
  batch_.items.push_back(item);
  for (std::size_t j = 0; j < rows.rows; ++j) {
    VerifiedRow& row = batch_.rows[to_size(first) + j];
    const std::int64_t cond = rows.first + to_index(j);
    row.item = number;
    row.cond = narrow<std::int32_t>(cond);
    if (!sequence.dist().guided()) continue;
    row.uncond = narrow<std::int32_t>(cond + to_index(rows.rows));
  }
  if (sequence.processes()) {
    add_edits_of(sequence, to_size(first), item.position);
  }
  streams_.push_back(&sequence);
}

// Rows whose id is forced are not read.
void DeviceVerifier::add_edits_of(LoopSequence& sequence, std::size_t first, std::size_t position) {
  sequence.begin_rows();
  for (std::size_t number = first; number < batch_.rows.size(); ++number) {
    const VerifiedRow& row = batch_.rows[number];
    if (row.forced >= 0) continue;
    const std::size_t place = position + to_size(row.place);
    add_edits(batch_, number, sequence.edits_of(number - first, place));
  }
}

void DeviceVerifier::read(ModelPass& pass, std::size_t space) {
  // A pass of prompts alone leaves the distributions of the last one where they are.
  fetched_ = nullptr;
  if (streams_.empty()) return;
  read(pass.device_logits(space));
  const bool recorded = std::any_of(streams_.begin(), streams_.end(), [](const LoopSequence* one) {
    return one->record() != nullptr;
  });
  if (!recorded) return;
  pass.fetch_logits(space);
  fetched_ = &pass;
  space_ = space;
}

void DeviceVerifier::read(ConstTensorView logits) {
  verifier_->verify(
      {logits, batch_.items, batch_.rows, batch_.nodes, guest_dists(), batch_.edits});
  row_records_ = verifier_->rows();
  item_records_ = verifier_->items();
}

std::optional<BrokenLogit> DeviceVerifier::settle(std::size_t number) {
  LoopSequence& sequence = *streams_[number];
  const std::span<const RowRecord> records = rows(number);
  const auto sound = to_size(item_records_[number].sound);
  const bool broken = sound == 0 || (sound < records.size() && !sequence.bears_broken_rows());
  if (broken) {
    const RowRecord& record = records[sound];
    return BrokenLogit{sound, record.unsound, record.unsound_logit};
  }
  const std::size_t before = sequence.tokens().size();
  RecordVerdicts verdicts(records, slots_[sequence.slot()].first);
  sequence.settle(verdicts, sound);
  note_dists(sequence, before);
  if (fetched_ != nullptr) record(number, before);
  return std::nullopt;
}

void DeviceVerifier::record(std::size_t number, std::size_t before) const {
  const auto first = to_size(batch_.items[number].first);
  record_committed(*streams_[number], before, [&](std::size_t place) {
    const VerifiedRow& row = batch_.rows[first + place];
    return RawRow<float>{fetched_->logits(row.cond, space_), row.uncond < 0
                                                                 ? std::span<const float>()
                                                                 : fetched_->logits(row.uncond, space_)};
  });
}

// The newest code of a column counts. Row j spoke of the position j places after `before`.
void DeviceVerifier::note_dists(const LoopSequence& sequence, std::size_t before) {
  if (columns_ == 0 || parts_.shape() != PassShape::kLine) return;
  Slot& slot = slots_[sequence.slot()];
  const VocabularyGrammar& grammar = sequence.grammar();
  slot.kept_dists.clear();
  for (std::size_t place = before; place < sequence.tokens().size(); ++place) {
    if (grammar.forced(place)) continue;
    const KeptDistribution dist{
        slot.first + narrow<std::int32_t>(place - before),
        narrow<std::int32_t>(sequence.slot() * columns_ + grammar.column(place))};
    const auto same = std::find_if(slot.kept_dists.begin(), slot.kept_dists.end(),
                                   [&](const KeptDistribution& other) { return other.to == dist.to; });
    if (same != slot.kept_dists.end()) {
      same->from = dist.from;
    } else {
      slot.kept_dists.push_back(dist);
    }
  }
}

std::span<const RowRecord> DeviceVerifier::rows(std::size_t number) const {
  const VerifiedItem& item = batch_.items[number];
  return row_records_.subspan(to_size(item.first), to_size(item.rows));
}

}  // namespace tessera
