// The drafts after the last committed token, each with the distribution it was drawn from. What decides
// correctness of every method that keeps the distribution: when a draft is tested, it must be
// distributed as its recorded distribution, given everything that its left neighbours are and ever were.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/sampling/grammar.h"

namespace tessera {

// How a draft came to be.
enum class DistributionKind : std::uint8_t {
  kPoint,    // no chance in it: all mass on the draft
  kUniform,  // every code alike
  kDense,    // drawn from a row of probabilities
};

// The recorded distribution of one draft, borrowed from its window.
template <typename Real>
struct DraftDistribution {
  DistributionKind kind = DistributionKind::kPoint;
  std::int32_t token = 0;       // kPoint
  std::span<const Real> dense;  // kDense: [V]
  Real uniform = 0;             // kUniform: 1 / codes
  // kUniform: ids from here on are control ids.
  std::int32_t codes = std::numeric_limits<std::int32_t>::max();
  std::int32_t guest = -1;  // kDense on a device: the row at which a draft model's verify keeps it

  Real prob(std::int32_t id) const {
    if (kind == DistributionKind::kDense) return nth(dense, id);
    if (kind == DistributionKind::kUniform) return id < codes ? uniform : Real{0};
    return id == token ? Real{1} : Real{0};
  }
};

// A draft that the redraft policy made of a row.
template <typename Real>
struct Redraft {
  std::int32_t token = 0;
  std::span<const Real> probs;  // its distribution, where the host has it
  std::int32_t dist_row = -1;    // else the row of the device's last pass that has it
  std::int32_t allowed = 0;     // ids that that one allows
};

// Where the dense distributions of a window are.
enum class DraftDistributions : std::uint8_t {
  kForgotten,  // nowhere, drafts are recorded as points: the equality rule never asks for distributions
  kHere,
  kOfRows,  // with whoever ran the last pass, known by the number of its row
};

template <typename Real>
class DraftWindow {
 public:
  // Room for `capacity` drafts of a stream.
  DraftWindow(std::size_t capacity, const VocabularyGrammar& grammar, DraftDistributions dists)
      : codes_(grammar.codes),
        vocabulary_(grammar.vocabulary()),
        dists_(dists),
        tokens_(capacity),
        kinds_(capacity),
        awaited_(capacity, -1),
        dist_rows_(dists == DraftDistributions::kOfRows ? capacity : 0) {
    if (dists == DraftDistributions::kHere) dense_.resize(capacity * vocabulary_);
  }

  std::size_t capacity() const { return tokens_.size(); }
  std::size_t size() const { return size_; }
  bool keeps_dists() const { return dists_ == DraftDistributions::kHere; }
  std::span<const std::int32_t> tokens() const { return {tokens_.data(), size_}; }
  std::int32_t token(std::size_t i) const { return tokens_[i]; }
  DistributionKind kind(std::size_t i) const { return kinds_[i]; }
  // The row of the last pass that is the distribution of a dense draft; 0 of others.
  std::int32_t dist_row(std::size_t i) const {
    const bool known = dists_ == DraftDistributions::kOfRows && kinds_[i] == DistributionKind::kDense;
    return known ? dist_rows_[i] : 0;
  }

  DraftDistribution<Real> dist(std::size_t i) const {
    return {kinds_[i], tokens_[i], keeps_dists() ? row(i) : std::span<const Real>(),
            Real{1} / static_cast<Real>(codes_), narrow<std::int32_t>(codes_)};
  }

  void append_point(std::int32_t token) { set(grow(), token, DistributionKind::kPoint, {}); }
  void append_uniform(std::int32_t token) { set(grow(), token, DistributionKind::kUniform, {}); }
  // probs [V]: the distribution that `token` was drawn from.
  void append_dense(std::int32_t token, std::span<const Real> probs) {
    set(grow(), token, DistributionKind::kDense, probs);
  }
  // A draft whose distribution a draft model's verify keeps at a row; dist_row() gives ~row.
  void append_guest(std::int32_t token, std::int32_t row) {
    expects(dists_ != DraftDistributions::kHere, "distributions on a device");
    const std::size_t i = grow();
    replace(i, token, ~row);
  }
  // A draft that a device draws from the distribution that its verifier's memory keeps at a row; its token is
  // told later.
  void append_kept(std::int32_t row) {
    append_guest(-1, row);
    awaited_[size_ - 1] = row;
  }
  // Where the memory keeps the distribution of a draft without a token; -1 of others.
  std::int32_t awaited(std::size_t i) const { return awaited_[i]; }
  void tell(std::size_t i, std::int32_t token) {
    tokens_[i] = token;
    awaited_[i] = -1;
  }
  // Overwrites draft i.
  void replace(std::size_t i, std::int32_t token, std::span<const Real> probs) {
    expects(i < size_, "a draft of the window");
    set(i, token, DistributionKind::kDense, probs);
  }
  // The same with a distribution that is known by its row of the last pass.
  void replace(std::size_t i, std::int32_t token, std::int32_t dist_row) {
    expects(i < size_, "a draft of the window");
    tell(i, token);
    if (dists_ != DraftDistributions::kOfRows) {
      kinds_[i] = DistributionKind::kPoint;
      return;
    }
    kinds_[i] = DistributionKind::kDense;
    dist_rows_[i] = dist_row;
  }
  void replace(std::size_t i, const Redraft<Real>& draft) {
    draft.dist_row >= 0 ? replace(i, draft.token, draft.dist_row)
                       : replace(i, draft.token, draft.probs);
  }
  void resize(std::size_t size) {
    expects(size <= capacity(), "drafts fit the window");
    size_ = size;
  }
  void clear() { size_ = 0; }

 private:
  std::size_t grow() {
    expects(size_ < capacity(), "drafts fit the window");
    return size_++;
  }
  std::span<const Real> row(std::size_t i) const {
    return {dense_.data() + i * vocabulary_, vocabulary_};
  }
  void set(std::size_t i, std::int32_t token, DistributionKind kind, std::span<const Real> probs) {
    tell(i, token);
    expects(kind != DistributionKind::kDense || dists_ != DraftDistributions::kOfRows,
            "a distribution of the last pass's rows");
    kinds_[i] = kind == DistributionKind::kDense && !keeps_dists() ? DistributionKind::kPoint : kind;
    if (kind != DistributionKind::kDense || !keeps_dists()) return;
    expects(probs.size() == vocabulary_, "a distribution has one probability an id");
    std::copy(probs.begin(), probs.end(), dense_.begin() + to_index(i * vocabulary_));
  }

  std::size_t codes_, vocabulary_;
  DraftDistributions dists_;
  std::size_t size_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<DistributionKind> kinds_;
  std::vector<std::int32_t> awaited_, dist_rows_;
  std::vector<Real> dense_;  // [capacity, V]
};

}  // namespace tessera
