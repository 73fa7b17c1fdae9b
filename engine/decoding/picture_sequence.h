// One stream of tokens, a picture's or a text's, while it is decoded, whatever shape its drafts
// have: what stands, and the bookkeeping of a token that comes to stand. The part of the decode
// loop between two forward passes, and all of it that chance enters; a template on the scalar and
// on the source of randomness, so that tests enumerate every outcome of this very code.
//
// A pass runs rows: row 0 is the last committed token, every other row a draft behind an earlier
// row. A row's result is the law of the tokens behind it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/core/function_ref.h"
#include "engine/decoding/drafter.h"
#include "engine/decoding/meters.h"
#include "engine/decoding/trace.h"
#include "engine/decoding/trees/tree_law_source.h"
#include "engine/sampling/law.h"

namespace tessera {

// Both guidance branches of one row, [codes] each; `uncond` is empty without guidance.
template <typename Real>
struct RawRow {
  std::span<const Real> cond, uncond;
};

// Rows of a pass that follow one another. Picture rows are counted from the first one that is
// cached; those of the pass itself follow the cached ones.
struct PassLine {
  std::size_t position = 0;        // of the first token, in the stream
  std::size_t shared = 0;          // cached rows seen from the first one on, in order
  std::vector<std::int32_t> seen;  // further rows that are seen, in order
  std::vector<std::int32_t> tokens;
};

template <typename Real>
using RawRows = FunctionRef<RawRow<Real>(std::size_t)>;

template <typename Real, typename Random>
class PictureSequence {
 public:
  PictureSequence(const LawSettings& law, const VocabularyGrammar& grammar, Random random,
                  std::size_t item)
      : law_(law, grammar),
        random_(random),
        scratch_(2 * grammar.vocabulary()),
        total_(grammar.length()),
        item_(item) {
    tokens_.reserve(total_);
  }
  virtual ~PictureSequence() = default;

  // Before the first pass: the stream begins with these, which nobody drew.
  void begin_with(std::span<const std::int32_t> given) {
    expects(meters_.passes == 0 && given.size() < total_, "given tokens are the first of a stream");
    tokens_.assign(given.begin(), given.end());
  }

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  bool done() const { return stopped_ || tokens_.size() == total_; }
  // For texts. Tokens behind which the stream ends before it is full, and the ids that stand before
  // it, which drafters may copy from. Both borrowed.
  void stop_behind(std::span<const std::int32_t> ids) { stops_ = ids; }
  void stand_behind(std::span<const std::int32_t> ids) { before_ = ids; }
  const DecodeMeters& meters() const { return meters_; }
  // When no pass follows.
  DecodeMeters take_meters() { return std::move(meters_); }
  // Borrowed, with room for the stream: where the fate of every token is written down.
  void trace_to(DecodeTrace* trace) { trace_ = trace; }
  // Drafts that the last pass tested, and how many of them were right.
  std::int64_t last_tested() const { return last_tested_; }
  std::int64_t last_accepted() const { return last_accepted_; }

  // Rows of the next pass: the last committed token (none before the first pass) and the drafts.
  virtual std::size_t rows() const = 0;
  // The line that begins with a row; returns how many rows it has.
  virtual std::size_t line(std::size_t row, PassLine& out) const = 0;

  // The job that brings the next pass to `most` rows, no more than are missing.
  virtual DraftJob<Real, Random> draft_job(std::size_t most) = 0;
  // When the drafter is through, and again whenever the laws it asked for were kept: what it wants
  // to know before its rows are complete; nothing wanted = complete.
  virtual TreeJob<Real> grow() { return {}; }

  // Judges a pass: `raw(j)` gives row j. Only the first `usable` rows are looked at, 1 to rows();
  // drafts behind them are forgotten.
  virtual void judge(RawRows<Real> raw, std::size_t usable) = 0;

  // Rows of the judged pass that stay cached, ascending; none of the first pass.
  virtual std::span<const std::int32_t> kept_rows() const = 0;

 protected:
  // The pass of the prompt, whose one row is the law of the first token that is drawn.
  bool first_pass() const { return meters_.passes == 0; }
  std::uint32_t position() const { return static_cast<std::uint32_t>(tokens_.size()); }
  std::size_t missing() const { return total_ - tokens_.size(); }
  void begin_pass() { random_.begin_pass(static_cast<std::uint32_t>(meters_.passes) + 1); }

  const VocabularyGrammar& grammar() const { return law_.grammar(); }

  // The law of a position of the stream: the one that `raw` was computed for, at a depth of d in
  // the pass d positions behind what stood when it began. Probabilities cost an exponential an id;
  // a caller that needs none is spared them.
  TargetRow<Real> process(std::size_t position, const RawRow<Real>& raw, bool with_probs = true) {
    law_.process_at(position, raw.cond, raw.uncond);
    return {{law_.support(), law_.support_logits()},
            with_probs ? law_.probabilities() : std::span<const Real>()};
  }

  // A token that stands at a position of the stream, by its row.
  void count_token(const TargetRow<Real>& row, std::int32_t token, std::uint32_t place) {
    count_token(figures_of(row, token), token, place);
  }
  void count_token(const RowFigures& of_row, std::int32_t token, std::uint32_t place) {
    const TokenFigures figures =
        meters_.count_token(of_row, random_.uniform({Purpose::kMeter, place}));
    if (trace_ == nullptr) return;
    trace_->marks[place] = {token, static_cast<std::int32_t>(meters_.passes) + 1,
                            static_cast<float>(figures.probability),
                            static_cast<float>(figures.entropy)};
  }
  void count_pass(std::size_t brought) {
    meters_.count_pass(brought);
    if (trace_ != nullptr) trace_->committed.push_back(static_cast<std::int32_t>(brought));
  }

  void commit(const TargetRow<Real>& row, std::int32_t token, Drafter<Real, Random>* drafter) {
    commit(figures_of(row, token), token, &row, drafter);
  }
  // The same by the row's figures; `row` may be null for drafters that read no rows.
  void commit(const RowFigures& figures, std::int32_t token, const TargetRow<Real>* row,
              Drafter<Real, Random>* drafter, std::int32_t likeliest = -1) {
    count_token(figures, token, position());
    tokens_.push_back(token);
    stopped_ = stopped_ || std::find(stops_.begin(), stops_.end(), token) != stops_.end();
    if (drafter != nullptr)
      drafter->commit({item_, tokens_.size() - 1, token, tokens_, row, likeliest});
  }

  void count_tests(std::int64_t tested, std::int64_t accepted) {
    last_tested_ = tested;
    last_accepted_ = accepted;
  }

  LawPipeline<Real> law_;
  Random random_;
  std::vector<Real> scratch_;  // [2 V]
  DecodeMeters meters_;
  std::size_t total_, item_;
  std::vector<std::int32_t> tokens_;
  std::span<const std::int32_t> before_;

 private:
  std::int64_t last_tested_ = 0, last_accepted_ = 0;
  DecodeTrace* trace_ = nullptr;
  std::span<const std::int32_t> stops_;
  bool stopped_ = false;
};

}  // namespace tessera
