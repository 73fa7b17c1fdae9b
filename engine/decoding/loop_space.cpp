#include "engine/decoding/loop_space.h"
#include "engine/core/index.h"

namespace tessera {

LoopSpace::LoopSpace(std::size_t number, const VocabularyGrammar& grammar,
                     const StreamLimits& limits)
    : number_(number), grammar_(grammar) {
  const auto slots = to_size(limits.items);
  jobs_.reserve(slots);
  tree_jobs_.reserve(slots);
  drafted_.reserve(slots);
}

void LoopSpace::use(Backend& backend, const LoopParts& parts, const StreamLimits& limits) {
  expects(limits.dists || limits.window == 1 || !parts.needs_dists(), "distributions fit the limits");
  expects(limits.shape == parts.shape(), "the shape of passes fits the limits");
  parts_ = parts;
  verifier_.reset();  // before the new one: both together may not fit
  verifier_ = make_verifier(backend, parts, grammar_, limits.items, limits.window);
  const auto slots = to_size(limits.items);
  if (parts.drafter != nullptr) parts.drafter->start(slots);
  if (parts.tree.source != nullptr) parts.tree.source->start(slots);
}

void LoopSpace::renew(std::size_t slot) {
  if (parts_.drafter != nullptr) parts_.drafter->renew(slot);
  if (parts_.tree.source != nullptr) parts_.tree.source->renew(slot);
}

void LoopSpace::draft(std::span<StreamSlot> slots, std::size_t most) {
  jobs_.clear();
  drafted_.clear();
  for (StreamSlot& slot : slots) {
    if (!slot.decodes || slot.space != number_) continue;
    jobs_.push_back(slot.sequence->draft_job(drafts() ? most : 1));
    drafted_.push_back(slot.sequence.get());
  }
  if (jobs_.empty()) return;
  if (parts_.drafter != nullptr) parts_.drafter->extend(jobs_);
  grow_trees();
}

void LoopSpace::grow_trees() {
  while (true) {
    verifier_->complete(drafted_);
    tree_jobs_.clear();
    for (LoopSequence* const sequence : drafted_) {
      const TreeJob<float> wanted = sequence->grow();
      if (!wanted.wanted.empty()) tree_jobs_.push_back(wanted);
    }
    if (tree_jobs_.empty()) return;
    parts_.tree.source->answer(tree_jobs_);
  }
}

void LoopSpace::read_logits(std::span<StreamSlot> slots, ModelPass& pass) {
  verifier_->begin();
  std::size_t count = 0;
  for (StreamSlot& slot : slots) {
    if (!slot.in_pass || slot.space != number_) continue;
    slot.verified = count++;
    verifier_->add({slot.sequence.get(), slot.first_row, slot.window_rows});
  }
  // The pass is waited for once at least.
  if (count > 0 || number_ == 0) verifier_->read(pass, number_);
}

}  // namespace tessera
