// A draft from the distribution that a neighbour had: the position one row above (in the first row, and past
// what has a distribution yet, the last committed one). Drawn with the position's own noise, recorded as
// that distribution, therefore exact. Keeps the distributions of one row of the image: columns x V numbers an item,
// or, where a device verifies, has that device keep and draw from them.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/drafter.h"
#include "engine/decoding/method_part.h"

namespace tessera {

inline constexpr MethodPart kNeighbourDistributionPart{
    .name = "neighbour-law",
    .bytes = [](const SettingValues&, const DecodeAids& aids, std::int64_t streams) {
      return to_index(4 * aids.grammar.vocabulary() * (aids.grammar.columns + 2)) * streams;
    }};

template <typename Real, typename Random>
class NeighbourDistributionDrafter final : public SlotDrafter<Real, Random> {
 public:
  explicit NeighbourDistributionDrafter(const VocabularyGrammar& grammar)
      : SlotDrafter<Real, Random>(grammar),
        columns_(grammar.columns),
        vocabulary_(grammar.vocabulary()) {}
  std::string_view name() const override { return kNeighbourDistributionPart.name; }
  DraftSignals needs() const override { return {.rows = true, .kept_dists = columns_}; }

  void start(std::size_t items) override {
    places_.assign(items * columns_, Place::kNowhere);
    dists_.assign(items * columns_ * vocabulary_, Real{0});
    scratch_.resize(items);
    for (Scratch& scratch : scratch_) {
      scratch.ids.resize(vocabulary_);
      scratch.logits.resize(vocabulary_);
    }
  }

  void renew(std::size_t item) override {
    std::fill_n(places_.begin() + to_index(item * columns_), columns_, Place::kNowhere);
  }

 private:
  // Of the distribution of a column; nowhere where no code of it was drawn.
  enum class Place : std::uint8_t { kNowhere, kHere, kOnDevice };

  struct Scratch {
    std::vector<std::int32_t> ids;
    std::vector<Real> logits;
  };

  void learn(const Commitment<Real>& done) override {
    const std::size_t number = slot(done.item, done.position);
    places_[number] = done.row != nullptr ? Place::kHere : Place::kOnDevice;
    if (done.row == nullptr) return;
    const std::span<Real> dist = dist_of(number);
    std::copy(done.row->probs.begin(), done.row->probs.end(), dist.begin());
  }

  // Of the position of a code.
  std::size_t slot(std::size_t item, std::size_t position) const {
    return item * columns_ + this->grammar().column(position);
  }
  std::span<Real> dist_of(std::size_t slot) {
    return {dists_.data() + slot * vocabulary_, vocabulary_};
  }

  bool fill(DraftJob<Real, Random>& job) override {
    const std::size_t position = job.next_position(), known = job.committed.size();
    const std::optional<std::size_t> above = this->grammar().above(position);
    const std::size_t last = this->grammar().code_before(known);
    std::size_t number = slot(job.item, above && *above < known ? *above : last);
    // Of a code that was given and never drawn.
    if (places_[number] == Place::kNowhere) number = slot(job.item, last);
    if (places_[number] == Place::kNowhere) return false;
    if (places_[number] == Place::kOnDevice) {
      job.window->append_kept(static_cast<std::int32_t>(number));
      return true;
    }
    Scratch& scratch = scratch_[job.item];
    const std::span<const Real> dist = dist_of(number);
    const std::size_t kept = read_dist(dist, scratch);
    const LogitRow<Real> row{{scratch.ids.data(), kept}, {scratch.logits.data(), kept}};
    job.window->append_dense(job.random->race(narrow<std::uint32_t>(position), row), dist);
    return true;
  }

  // The ids of a distribution with their logits; how many.
  std::size_t read_dist(std::span<const Real> dist, Scratch& scratch) const {
    std::size_t kept = 0;
    for (std::size_t id = 0; id < vocabulary_; ++id) {
      if (!(dist[id] > 0)) continue;
      scratch.ids[kept] = static_cast<std::int32_t>(id);
      scratch.logits[kept++] = static_cast<Real>(fixed_log(to_double(dist[id])));
    }
    return kept;
  }

  std::size_t columns_, vocabulary_;
  std::vector<Place> places_;  // [items, columns]
  std::vector<Real> dists_;     // [items, columns, V]
  std::vector<Scratch> scratch_;
};

}  // namespace tessera
