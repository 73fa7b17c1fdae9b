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
#include "engine/decoding/draft_line.h"

namespace tessera {

template <typename Real, typename Random>
class RowSequence final : public TokenSequence<Real, Random> {
 public:
  // lead >= 1, in tokens of a row; `window` rows of a pass for each row of the grid, one more than its
  // drafts.
  RowSequence(const DistributionSettings& dist, const VocabularyGrammar& grammar, std::size_t lead,
              std::size_t window, const ChainParts<Real, Random>& parts, Random random,
              std::size_t item)
      : Base(dist, grammar, random, item),
        lead_(lead),
        most_(std::min(max_rows(grammar, window), total_)),
        parts_(parts),
        nothing_(0, grammar, DraftDistributions::kForgotten),
        grid_(total_, -1),
        slot_of_(total_, -1),
        filled_(row_count(grammar), 0),
        fed_(filled_.size(), 0) {
    if (this->processes()) {
      fed_grid_.reserve(total_);
      fed_tokens_.reserve(max_rows(grammar, window));
    }
    lines_.reserve(filled_.size());
    kept_.reserve(max_rows(grammar, window));
    owner_.reserve(max_rows(grammar, window));
    drafts_.reserve(filled_.size());
    for (std::size_t row = 0; row < filled_.size(); ++row) {
      drafts_.emplace_back(window - 1, grammar, parts, DraftDistributions::kHere);
    }
    if (parts.rule->reads_warm()) this->dist_.keep_warm();
    meters_.start(total_, max_rows(grammar, window));
  }
  RowSequence(const RowSequence&) = delete;

  // Of one pass: no position is fed twice, but what stands in.
  static std::size_t max_rows(const VocabularyGrammar& grammar, std::size_t window = 1) {
    const std::size_t rows = row_count(grammar);
    return std::min(rows * window, grammar.length() + rows);
  }

  std::size_t rows() const override { return tokens_.empty() ? 1 : owner_.size(); }

  std::size_t line(std::size_t row, PassLine& out) const override {
    const Line& line = lines_[owner_[row]];
    out.position = line.position;
    out.shared = in_order_;
    out.seen.clear();
    for (std::size_t i = in_order_; i < line.position; ++i) {
      if (slot_of_[i] >= 0) out.seen.push_back(slot_of_[i]);
    }
    out.tokens.assign(1, line.token);
    const std::span<const std::int32_t> drafts = drafts_of(line);
    out.tokens.insert(out.tokens.end(), drafts.begin(), drafts.end());
    return out.tokens.size();
  }

  DraftJob<Real, Random> draft_job(std::size_t) override {
    this->begin_pass();
    lines_.clear();
    owner_.clear();
    for (std::size_t row = 0; row < filled_.size(); ++row) add_line(row);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      Line& line = lines_[i];
      line.first_row = owner_.size();
      // Rows of this pass follow those that are cached; what stands in, and drafts, are seen by their own
      // line alone.
      if (!line.stands_in) slot_of_[line.position] = narrow<std::int32_t>(cached_ + line.first_row);
      owner_.insert(owner_.end(), 1 + draft(i), i);
    }
    return {item_, tokens_, 0, &nothing_, &random_};
  }

  std::span<const std::int32_t> kept_rows() const override { return kept_; }

  // Nobody asks for the token of a row that gives none: no distribution is made of it.
  void describe(VerifiedItem& item, std::vector<VerifiedRow>& rows,
                std::vector<VerifiedNode>&) const override {
    item.apart = 1;
    for (std::size_t j = 0; j < this->rows(); ++j) {
      const auto gives = tokens_.empty() ? std::optional<std::size_t>(0) : lines_[owner_[j]].gives;
      VerifiedRow row{.place = narrow<std::int32_t>(gives.value_or(0))};
      const auto forced = gives ? this->grammar().forced(*gives) : std::optional<std::int32_t>(0);
      if (forced) row.forced = *forced;
      rows.push_back(row);
    }
  }

  void verify(RawRows<Real> raw, std::size_t usable) override {
    this->begin_rows();
    HostRows rows(*this, raw);
    settle(rows, usable);
  }

  void settle(Verdicts<Real>& rows, std::size_t usable) override {
    this->begin_pass();
    kept_.clear();
    std::size_t brought = 0;
    if (tokens_.empty()) {
      take(rows.draw(0, 0), 0);
      ++brought;
    } else {
      std::size_t tested = 0, right = 0;
      for (Line& line : lines_) {
        const std::size_t sound = usable > line.first_row ? usable - line.first_row : 0;
        const Tested of_line = sound > 0 && line.gives ? settle(rows, line, sound) : Tested{};
        if (sound > 0 && line.gives) brought += of_line.right() + 1;
        tested += of_line.count;
        right += of_line.right();
        keep(line, sound > 0 ? 1 + of_line.right() : 0);
      }
      this->count_tests(to_index(tested), to_index(right));
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

  using Tested = typename DraftLine<Real, Random>::Tested;

  // A token that a pass feeds, and the drafts after it.
  struct Line {
    std::size_t position = 0;
    std::int32_t token = 0;
    std::optional<std::size_t> gives;  // the position whose distribution its row is, if that is wanted
    bool stands_in = false;
    std::size_t first_row = 0;  // of the pass
    std::size_t drafts = 0;     // of the row that `gives` is in
  };

  struct HostRows final : Base::HostVerdicts {
    HostRows(RowSequence& of, RawRows<Real> rows) : Base::HostVerdicts(of, rows), grid(of) {}

    Verdict<Real> test(std::size_t j) override {
      const Line& line = grid.lines_[grid.owner_[j]];
      const std::size_t depth = j - line.first_row, position = *line.gives + depth;
      this->target = grid.process(position, this->raw(j), j);
      return this->by_row(grid.drafts_[grid.row_of(position)].test(
          this->target, depth, position, grid.grammar().forced(position), Real{1}, grid.random_,
          grid.scratch_));
    }
    Redraft<Real> redraft(std::size_t j, std::size_t position) override {
      const DraftLine<Real, Random>& drafts = grid.drafts_[grid.row_of(position)];
      const TargetRow<Real> row = grid.process(position, this->raw(j), j, drafts.needs_probs());
      return drafts.redraft(row, j - grid.lines_[grid.owner_[j]].first_row, position, grid.random_,
                            grid.scratch_);
    }

    RowSequence& grid;
  };

  void note_rows() override {
    fed_grid_.assign(grid_.begin(), grid_.end());
    fed_tokens_.clear();
    for (const Line& line : lines_) {
      fed_tokens_.push_back(line.token);
      const std::span<const std::int32_t> drafts = drafts_of(line);
      fed_tokens_.insert(fed_tokens_.end(), drafts.begin(), drafts.end());
    }
  }
  // Tokens of this pass are not known yet, wherever they stand; drafts before the row are, in its line.
  void stand_before(std::size_t row, std::size_t position,
                    std::vector<std::int32_t>& out) const override {
    const std::size_t begin = out.size();
    out.insert(out.end(), fed_grid_.begin(), fed_grid_.begin() + to_index(position));
    if (owner_.empty()) return;
    const Line& line = lines_[owner_[row]];
    for (std::size_t fed = line.first_row + 1; fed <= row; ++fed) {
      out[begin + line.position + (fed - line.first_row)] = fed_tokens_[fed];
    }
  }

  static std::size_t row_count(const VocabularyGrammar& grammar) {
    return (grammar.length() + grammar.stride() - 1) / grammar.stride();
  }
  std::size_t first_of(std::size_t row) const { return row * this->grammar().stride(); }
  std::size_t length_of(std::size_t row) const {
    return std::min(this->grammar().stride(), total_ - first_of(row));
  }
  bool whole(std::size_t row) const { return filled_[row] == length_of(row); }
  std::size_t row_of(std::size_t position) const { return position / this->grammar().stride(); }
  std::span<const std::int32_t> drafts_of(const Line& line) const {
    if (line.drafts == 0) return {};
    return drafts_[row_of(*line.gives)].drafts().tokens().first(line.drafts);
  }

  void add_line(std::size_t row) {
    const std::size_t first = first_of(row);
    if (filled_[row] > fed_[row]) {
      // It waits for the row above, which it may have come up with.
      if (row > 0 && !whole(row - 1) && filled_[row] >= filled_[row - 1]) return;
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

  // Drafts of a line: within its row, and where the row above has tokens already. Returns their number.
  std::size_t draft(std::size_t number) {
    Line& line = lines_[number];
    line.drafts = 0;
    if (!line.gives || line.stands_in) return 0;
    const std::size_t row = row_of(*line.gives), column = *line.gives - first_of(row);
    DraftWindow<Real>& window = drafts_[row].drafts();
    const std::size_t until = row == 0 ? length_of(0) : std::min(length_of(row), filled_[row - 1]);
    // Each line has a row of the pass; what is left goes to drafts, upper rows first.
    const std::size_t left = most_ - owner_.size() - (lines_.size() - number);
    const std::size_t want =
        std::min({window.capacity(), until - std::min(until, column + 1), left});
    if (window.size() > want) window.resize(want);
    if (parts_.drafter != nullptr && window.size() < want) {
      const std::span<const std::int32_t> standing = std::span(grid_).first(*line.gives);
      DraftJob<Real, Random> job{item_, standing, want, &window, &random_};
      parts_.drafter->extend({&job, 1});
    }
    return line.drafts = window.size();
  }

  // Tokens of a line whose first `sound` rows can be used.
  Tested settle(Verdicts<Real>& rows, Line& line, std::size_t sound) {
    DraftLine<Real, Random>& drafts = drafts_[row_of(*line.gives)];
    drafts.drafts().resize(std::min(line.drafts, sound - 1));
    const std::size_t first = *line.gives;
    std::size_t position = first;
    const Tested tested =
        drafts.test_all(rows, line.first_row, meters_, [&](const Verdict<Real>& verdict) {
          take(verdict, position++);
          return true;
        });
    if (tested.accepted) {
      take(rows.draw(line.first_row + tested.count, position), position);
      drafts.drafts().clear();
    } else {
      const std::size_t row = row_of(first);
      drafts.keep(rows, line.first_row, first, tested.count, length_of(row) - filled_[row]);
    }
    return tested;
  }

  void take(const Verdict<Real>& drawn, std::size_t position) {
    this->count_token(drawn.figures, drawn.token, narrow<std::uint32_t>(position));
    grid_[position] = drawn.token;
    ++filled_[row_of(position)];
  }

  // What of a line stays cached: its first `right` tokens. Lines that broke are fed again.
  void keep(const Line& line, std::size_t right) {
    if (line.stands_in) return;
    slot_of_[line.position] = -1;
    for (std::size_t i = 0; i < right; ++i) {
      slot_of_[line.position + i] = narrow<std::int32_t>(cached_);
      kept_.push_back(narrow<std::int32_t>(line.first_row + i));
      ++fed_[row_of(line.position + i)];
      ++cached_;
    }
  }

  std::vector<Line> lines_;  // of the next pass; none before the first one
  std::vector<std::size_t> owner_;  // of each row of the pass, its line
  std::size_t lead_, most_;  // rows of a pass
  ChainParts<Real, Random> parts_;
  std::vector<DraftLine<Real, Random>> drafts_;  // of each row of the grid
  DraftWindow<Real> nothing_;
  std::vector<std::int32_t> grid_;         // [total] tokens by position, -1 = not yet
  std::vector<std::int32_t> fed_grid_;     // the same before the pass, where processors read it
  std::vector<std::int32_t> fed_tokens_;   // likewise, of each row of the pass
  std::vector<std::int32_t> slot_of_;      // [total] cached image row of a position, -1 = none
  std::vector<std::size_t> filled_, fed_;  // [rows] tokens that stand, tokens that are cached
  std::size_t cached_ = 0;                 // image rows
  std::size_t in_order_ = 0;               // of them, first ones whose place is their position
  std::vector<std::int32_t> kept_;
};

}  // namespace tessera
