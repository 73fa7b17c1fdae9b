// A stream that is written a block a pass (next-block prediction, Ren et al. 2025, section 3): the
// last block gives the distributions of all tokens of the next one, each drawn by itself under the
// noise of its own position. A stream that begins by itself has its first block token by token.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/token_sequence.h"
#include "engine/model/pass_model.h"

namespace tessera {

template <typename Real, typename Random>
class BlockSequence final : public TokenSequence<Real, Random> {
 public:
  BlockSequence(const DistributionSettings& dist, const VocabularyGrammar& grammar,
                const BlockReading& reading, Random random, std::size_t item)
      : Base(dist, grammar, random, item), reading_(reading), row_numbers_(to_size(reading.block)) {
    std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
    meters_.start(total_, row_numbers_.size());
  }

  // Whatever is fed, a row gives a token.
  std::size_t rows() const override { return to_size(reading_.step(standing())); }
  // What the last pass brought, in one line.
  std::size_t line(std::size_t, PassLine& out) const override {
    const std::int64_t fed = standing() - brought_;
    out.position = out.shared = to_size(reading_.rows_of(fed));
    out.seen.clear();
    out.tokens.assign(tokens_.end() - brought_, tokens_.end());
    for (std::int64_t i = 1; i <= reading_.fillers(standing()); ++i) {
      out.tokens.push_back(reading_.begin_id + narrow<std::int32_t>(i));
    }
    return out.tokens.size();
  }

  DraftJob<Real, Random> draft_job(std::size_t) override {
    this->begin_pass();
    return {item_, tokens_, 0, nullptr, &random_};
  }

  std::span<const std::int32_t> kept_rows() const override { return {row_numbers_.data(), kept_}; }
  bool bears_broken_rows() const override { return false; }

  void describe(VerifiedItem& item, std::vector<VerifiedRow>& rows,
                std::vector<VerifiedNode>&) const override {
    item.position = this->position();
    item.apart = 1;
    for (std::size_t j = 0; j < this->rows(); ++j) {
      rows.push_back({.place = narrow<std::int32_t>(j)});
    }
  }

  void settle(Verdicts<Real>& rows, std::size_t usable) override {
    expects(usable == this->rows(), "a block is drawn as a whole");
    this->begin_pass();
    kept_ = this->first_pass() ? 0 : usable;
    for (std::size_t j = 0; j < usable; ++j) {
      this->commit(rows.draw(j, tokens_.size()), nullptr);
    }
    brought_ = to_index(usable);
    this->count_pass(usable);
  }

 private:
  using Base = TokenSequence<Real, Random>;
  using Base::item_, Base::meters_, Base::random_, Base::tokens_, Base::total_;

  std::int64_t standing() const { return std::ssize(tokens_); }

  BlockReading reading_;
  std::vector<std::int32_t> row_numbers_;  // 0, 1, ...
  std::int64_t brought_ = 0;               // tokens of the last pass, which are not fed yet
  std::size_t kept_ = 0;
};

}  // namespace tessera
