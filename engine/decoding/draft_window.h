// The drafts behind the last committed token, each with the law it was drawn from. What decides
// correctness of every method that keeps the distribution: when a draft is tested, it must be
// distributed as its recorded law, given everything that its left neighbours are and ever were.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/core/error.h"
#include "engine/sampling/grammar.h"

namespace tessera {

// How a draft came to be.
enum class LawKind : std::uint8_t {
  kPoint,    // no chance in it: all mass on the draft
  kUniform,  // every code alike
  kDense,    // drawn from a row of probabilities
};

// The recorded law of one draft, borrowed from its window.
template <typename Real>
struct DraftLaw {
  LawKind kind = LawKind::kPoint;
  std::int32_t token = 0;       // kPoint
  std::span<const Real> dense;  // kDense: [V]
  Real uniform = 0;             // kUniform: 1 / codes
  // kUniform: ids from here on are control ids.
  std::int32_t codes = std::numeric_limits<std::int32_t>::max();

  Real prob(std::int32_t id) const {
    if (kind == LawKind::kDense) return dense[static_cast<std::size_t>(id)];
    if (kind == LawKind::kUniform) return id < codes ? uniform : Real{0};
    return id == token ? Real{1} : Real{0};
  }
};

template <typename Real>
class DraftWindow {
 public:
  // Room for `capacity` drafts of a stream. Without `keeps_laws` no dense law can be kept (they are
  // recorded as points), which the equality rule never asks for.
  DraftWindow(std::size_t capacity, const VocabularyGrammar& grammar, bool keeps_laws)
      : codes_(grammar.codes),
        vocabulary_(grammar.vocabulary()),
        keeps_laws_(keeps_laws),
        tokens_(capacity),
        kinds_(capacity) {
    if (keeps_laws) dense_.resize(capacity * vocabulary_);
  }

  std::size_t capacity() const { return tokens_.size(); }
  std::size_t size() const { return size_; }
  bool keeps_laws() const { return keeps_laws_; }
  std::span<const std::int32_t> tokens() const { return {tokens_.data(), size_}; }
  std::int32_t token(std::size_t i) const { return tokens_[i]; }

  DraftLaw<Real> law(std::size_t i) const {
    return {kinds_[i], tokens_[i], keeps_laws_ ? row(i) : std::span<const Real>(),
            Real{1} / static_cast<Real>(codes_), static_cast<std::int32_t>(codes_)};
  }

  void append_point(std::int32_t token) { set(grow(), token, LawKind::kPoint, {}); }
  void append_uniform(std::int32_t token) { set(grow(), token, LawKind::kUniform, {}); }
  // probs [V]: the law that `token` was drawn from.
  void append_dense(std::int32_t token, std::span<const Real> probs) {
    set(grow(), token, LawKind::kDense, probs);
  }
  // Overwrites draft i.
  void replace(std::size_t i, std::int32_t token, std::span<const Real> probs) {
    expects(i < size_, "a draft of the window");
    set(i, token, LawKind::kDense, probs);
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
  void set(std::size_t i, std::int32_t token, LawKind kind, std::span<const Real> probs) {
    tokens_[i] = token;
    kinds_[i] = kind == LawKind::kDense && !keeps_laws_ ? LawKind::kPoint : kind;
    if (kind != LawKind::kDense || !keeps_laws_) return;
    expects(probs.size() == vocabulary_, "a law has one probability an id");
    std::copy(probs.begin(), probs.end(),
              dense_.begin() + static_cast<std::ptrdiff_t>(i * vocabulary_));
  }

  std::size_t codes_, vocabulary_;
  bool keeps_laws_;
  std::size_t size_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<LawKind> kinds_;
  std::vector<Real> dense_;  // [capacity, V]
};

}  // namespace tessera
