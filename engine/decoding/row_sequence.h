// An image whose rows of codes are decoded side by side (ZipAR, arXiv 2412.04062): a row begins
// when the one above has `lead` tokens, and from then on every pass brings each open row one token.
// Codes see what stands above them and to their left, not what the rows above have yet to bring:
// another distribution than the model's, in about columns + lead * rows passes. With a lead of whole rows it
// is plain decoding.
//
// A row's first token needs the token before it, the last one of the row above, which is not there
// yet. Where the stream has row-end tokens that one is known; else the newest token two rows above
// stands in at its place. What stood in is forgotten after the pass, the real token is fed when it
// is there. Places that are not decoded yet are not attended to (public code reads zeros there).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/token_sequence.h"

namespace tessera {

template <typename Real, typename Random>
class RowSequence final : public TokenSequence<Real, Random> {
 public:
  // lead >= 1, in tokens of a row.
  RowSequence(const DistributionSettings& dist, const VocabularyGrammar& grammar, std::size_t lead,
              Random random, std::size_t item)
      : Base(dist, grammar, random, item),
        lead_(lead),
        grid_(total_, -1),
        slot_of_(total_, -1),
        filled_(row_count(grammar), 0),
        fed_(filled_.size(), 0) {
    if (this->processes()) fed_grid_.reserve(total_);
    lines_.reserve(filled_.size());
    kept_.reserve(filled_.size());
    meters_.start(total_, max_rows(grammar));
  }

  // Of one pass.
  static std::size_t max_rows(const VocabularyGrammar& grammar) { return row_count(grammar); }

  std::size_t rows() const override { return tokens_.empty() ? 1 : lines_.size(); }

  std::size_t line(std::size_t row, PassLine& out) const override {
    const Line& line = lines_[row];
    out.position = line.position;
    out.shared = in_order_;
    out.seen.clear();
    for (std::size_t i = in_order_; i < line.position; ++i) {
      if (slot_of_[i] >= 0) out.seen.push_back(slot_of_[i]);
    }
    out.tokens.assign(1, line.token);
    return 1;
  }

  DraftJob<Real, Random> draft_job(std::size_t) override {
    this->begin_pass();
    lines_.clear();
    for (std::size_t row = 0; row < filled_.size(); ++row) add_line(row);
    // Rows of this pass follow those that are cached; what stands in is seen by itself alone.
    for (std::size_t j = 0; j < lines_.size(); ++j) {
      if (!lines_[j].stands_in) slot_of_[lines_[j].position] = narrow<std::int32_t>(cached_ + j);
    }
    return {item_, tokens_, 0, nullptr, &random_};
  }

  std::span<const std::int32_t> kept_rows() const override { return kept_; }

  // Nobody asks for the token of a row that gives none: no distribution is made of it.
  void describe(VerifiedItem& item, std::vector<VerifiedRow>& rows,
                std::vector<VerifiedNode>&) const override {
    item.apart = 1;
    for (std::size_t j = 0; j < this->rows(); ++j) {
      const auto gives = tokens_.empty() ? std::optional<std::size_t>(0) : lines_[j].gives;
      VerifiedRow row{.place = narrow<std::int32_t>(gives.value_or(0))};
      const auto forced = gives ? this->grammar().forced(*gives) : std::optional<std::int32_t>(0);
      if (forced) row.forced = *forced;
      rows.push_back(row);
    }
  }

  void settle(Verdicts<Real>& rows, std::size_t usable) override {
    this->begin_pass();
    kept_.clear();
    std::size_t brought = 0;
    if (tokens_.empty()) {
      take(rows, 0, 0);
      ++brought;
    } else {
      for (std::size_t j = 0; j < lines_.size(); ++j) {
        if (j < usable && lines_[j].gives) {
          take(rows, j, *lines_[j].gives);
          ++brought;
        }
        keep(j, j < usable);
      }
      while (in_order_ < total_ && slot_of_[in_order_] == narrow<std::int32_t>(in_order_)) {
        ++in_order_;
      }
    }
    while (tokens_.size() < total_ && grid_[tokens_.size()] >= 0) {
      tokens_.push_back(grid_[tokens_.size()]);
    }
    this->count_pass(brought);
  }

 private:
  using Base = TokenSequence<Real, Random>;
  using Base::item_, Base::meters_, Base::random_, Base::tokens_, Base::total_;

  // One token that a pass feeds.
  struct Line {
    std::size_t position = 0;
    std::int32_t token = 0;
    std::optional<std::size_t> gives;  // the position whose distribution its row is, if that is wanted
    bool stands_in = false;
  };

  void note_rows() override { fed_grid_.assign(grid_.begin(), grid_.end()); }
  // Tokens of this pass are not known yet, wherever they stand.
  void stand_before(std::size_t, std::size_t position,
                    std::vector<std::int32_t>& out) const override {
    out.insert(out.end(), fed_grid_.begin(), fed_grid_.begin() + to_index(position));
  }

  static std::size_t row_count(const VocabularyGrammar& grammar) {
    return (grammar.length() + grammar.stride() - 1) / grammar.stride();
  }
  std::size_t first_of(std::size_t row) const { return row * this->grammar().stride(); }
  std::size_t length_of(std::size_t row) const {
    return std::min(this->grammar().stride(), total_ - first_of(row));
  }
  bool whole(std::size_t row) const { return filled_[row] == length_of(row); }

  void add_line(std::size_t row) {
    const std::size_t first = first_of(row);
    if (filled_[row] > fed_[row]) {
      const std::size_t newest = first + filled_[row] - 1;
      Line line{newest, grid_[newest], std::nullopt, false};
      // Its row speaks of the next token, unless that began the next row already.
      if (newest + 1 < total_ && grid_[newest + 1] < 0) line.gives = newest + 1;
      lines_.push_back(line);
    } else if (row > 1 && filled_[row] == 0 && !whole(row - 1) && whole(0) &&
               filled_[row - 1] >= std::min(lead_, length_of(row - 1))) {
      const std::optional<std::int32_t> forced = this->grammar().forced(first - 1);
      const std::int32_t above = grid_[first_of(row - 2) + filled_[row - 2] - 1];
      lines_.push_back({first - 1, forced ? *forced : above, first, true});
    }
  }

  void take(Verdicts<Real>& rows, std::size_t j, std::size_t position) {
    const Verdict<Real> drawn = rows.draw(j, position);
    this->count_token(drawn.figures, drawn.token, narrow<std::uint32_t>(position));
    grid_[position] = drawn.token;
    ++filled_[position / this->grammar().stride()];
  }

  // What of line j stays cached. Lines that broke are fed again.
  void keep(std::size_t j, bool sound) {
    const Line& line = lines_[j];
    if (line.stands_in) return;
    slot_of_[line.position] = sound ? narrow<std::int32_t>(cached_) : -1;
    if (!sound) return;
    kept_.push_back(narrow<std::int32_t>(j));
    ++fed_[line.position / this->grammar().stride()];
    ++cached_;
  }

  std::vector<Line> lines_;  // of the next pass; none before the first one
  std::size_t lead_;
  std::vector<std::int32_t> grid_;         // [total] tokens by position, -1 = not yet
  std::vector<std::int32_t> fed_grid_;     // the same before the pass, where processors read it
  std::vector<std::int32_t> slot_of_;      // [total] cached image row of a position, -1 = none
  std::vector<std::size_t> filled_, fed_;  // [rows] tokens that stand, tokens that are cached
  std::size_t cached_ = 0;                 // image rows
  std::size_t in_order_ = 0;               // of them, first ones whose place is their position
  std::vector<std::int32_t> kept_;
};

}  // namespace tessera
