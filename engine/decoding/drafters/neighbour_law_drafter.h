// A draft from the law that a neighbour had: the position one row above (in the first row, and past
// what has a law yet, the last committed one). Drawn with the position's own noise, recorded as
// that law, therefore exact. Keeps the laws of one row of the picture: columns x V numbers an item.
#pragma once

#include <cmath>
#include <vector>

#include "engine/decoding/drafter.h"

namespace tessera {

template <typename Real, typename Random>
class NeighbourLawDrafter final : public SlotDrafter<Real, Random> {
 public:
  explicit NeighbourLawDrafter(const VocabularyGrammar& grammar)
      : SlotDrafter<Real, Random>(grammar),
        columns_(grammar.columns),
        vocabulary_(grammar.vocabulary()) {}
  std::string_view name() const override { return "neighbour-law"; }

  void start(std::size_t items) override {
    laws_.assign(items * columns_ * vocabulary_, Real{0});
    scratch_.resize(items);
    for (Scratch& scratch : scratch_) {
      scratch.ids.resize(vocabulary_);
      scratch.logits.resize(vocabulary_);
    }
  }

 private:
  struct Scratch {
    std::vector<std::int32_t> ids;
    std::vector<Real> logits;
  };

  void learn(const Commitment<Real>& done) override {
    const std::span<Real> law = slot(done.item, done.position);
    std::copy(done.row->probs.begin(), done.row->probs.end(), law.begin());
  }

  // Of the position of a code.
  std::span<Real> slot(std::size_t item, std::size_t position) {
    const std::size_t column = this->grammar().column(position);
    return {laws_.data() + (item * columns_ + column) * vocabulary_, vocabulary_};
  }

  bool fill(DraftJob<Real, Random>& job) override {
    const std::size_t position = job.next_position(), known = job.committed.size();
    const std::optional<std::size_t> above = this->grammar().above(position);
    const std::size_t last = this->grammar().code_before(known);
    Scratch& scratch = scratch_[job.item];
    std::span<const Real> law = slot(job.item, above && *above < known ? *above : last);
    std::size_t kept = read_law(law, scratch);
    if (kept == 0) {  // of a code that was given and never drawn
      law = slot(job.item, last);
      kept = read_law(law, scratch);
    }
    if (kept == 0) return false;
    const LogitRow<Real> row{{scratch.ids.data(), kept}, {scratch.logits.data(), kept}};
    job.window->append_dense(job.random->race(static_cast<std::uint32_t>(position), row), law);
    return true;
  }

  // The ids of a law with their logits; how many.
  std::size_t read_law(std::span<const Real> law, Scratch& scratch) const {
    std::size_t kept = 0;
    for (std::size_t id = 0; id < vocabulary_; ++id) {
      if (!(law[id] > 0)) continue;
      scratch.ids[kept] = static_cast<std::int32_t>(id);
      scratch.logits[kept++] = static_cast<Real>(fixed_log(static_cast<double>(law[id])));
    }
    return kept;
  }

  std::size_t columns_, vocabulary_;
  std::vector<Real> laws_;  // [items, columns, V]
  std::vector<Scratch> scratch_;
};

}  // namespace tessera
