// One stream of tokens, an image's or a text's, while it is decoded, whatever shape its passes
// have: what is committed, and the bookkeeping of a token that is committed. The part of the decode
// loop between two forward passes, and all of it that chance enters; a template on the scalar and
// on the source of randomness, so that tests enumerate every outcome of this very code.
//
// A shape says once how its passes are laid out: line() for the model, describe() for a device that
// verifies. settle() takes the outcomes of a pass, wherever they come from.
//
// A pass runs rows: row 0 is the last committed token, every other row a draft after an earlier
// row. A row's result is the distribution of the tokens after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/backend/row_verifier.h"
#include "engine/core/function_ref.h"
#include "engine/core/index.h"
#include "engine/decoding/drafter.h"
#include "engine/decoding/meters.h"
#include "engine/decoding/token_logprobs.h"
#include "engine/decoding/trace.h"
#include "engine/decoding/trees/tree_dist_source.h"
#include "engine/sampling/dist.h"
#include "engine/sampling/processors.h"

namespace tessera {

// Both guidance branches of one row, [codes] each; `uncond` is empty without guidance.
template <typename Real>
struct RawRow {
  std::span<const Real> cond, uncond;
};

// Rows of a pass that follow one another. Image rows are counted from the first one that is
// cached; those of the pass itself follow the cached ones.
struct PassLine {
  std::size_t position = 0;        // of the first token, in the stream
  std::size_t shared = 0;          // cached rows seen from the first one on, in order
  std::vector<std::int32_t> seen;  // further rows that are seen, in order
  std::vector<std::int32_t> tokens;
};

// How a device names the distribution that a draft was drawn from.
inline DraftKind draft_kind(DistributionKind kind) {
  if (kind == DistributionKind::kDense) return DraftKind::kRow;
  return kind == DistributionKind::kUniform ? DraftKind::kUniform : DraftKind::kPoint;
}

template <typename Real>
using RawRows = FunctionRef<RawRow<Real>(std::size_t)>;

// What became of the position that a row speaks of.
template <typename Real>
struct Verdict {
  bool accepted = false;   // the draft that was tested, or one of several
  std::int32_t token = 0;  // that is committed
  // What the exact rule would have accepted with, and what this one did; of a tree the chance is
  // what the distribution of the candidates said of the first one.
  Real strict = 0, chance = 0;
  std::int32_t next = -1;  // of a tree: the row of the candidate that was accepted
  RowFigures figures;
  const TargetRow<Real>* row = nullptr;  // null where drafters do not read it
  std::int32_t likeliest = -1;           // of the row, where it is null and a drafter asks
};

// The outcomes of the rows of one pass. A row is asked once for a token, and once for a redraft.
template <typename Real>
class Verdicts {
 public:
  virtual ~Verdicts() = default;
  // On the drafts after a row, which stand for the next position.
  virtual Verdict<Real> test(std::size_t row) = 0;
  // The token of a position by a row after which no draft is tested.
  virtual Verdict<Real> draw(std::size_t row, std::size_t position) = 0;
  virtual Redraft<Real> redraft(std::size_t row, std::size_t position) = 0;
};

template <typename Real, typename Random>
class TokenSequence {
 public:
  TokenSequence(const DistributionSettings& dist, const VocabularyGrammar& grammar, Random random,
                std::size_t item)
      : dist_(dist, grammar),
        processors_(dist, grammar),
        random_(random),
        scratch_(2 * grammar.vocabulary()),
        total_(grammar.length()),
        item_(item) {
    tokens_.reserve(total_);
  }
  virtual ~TokenSequence() = default;

  // Before the first pass: the stream begins with these, which nobody drew.
  void begin_with(std::span<const std::int32_t> given) {
    expects(meters_.passes == 0 && given.size() < total_, "given tokens are the first of a stream");
    tokens_.assign(given.begin(), given.end());
  }

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  bool done() const { return stopped_ || tokens_.size() == total_; }
  // For texts. Tokens after which the stream ends before it is full, and the ids that stand before
  // it, which drafters may copy from. Both borrowed.
  void stop_after(std::span<const std::int32_t> ids) { stops_ = ids; }
  void stand_after(std::span<const std::int32_t> ids) { before_ = ids; }
  // The prompt's ids as logits processors see them; before the first pass.
  void process_after(std::span<const std::int32_t> prompt) { processors_.begin(prompt); }
  const DecodeMeters& meters() const { return meters_; }
  // When no pass follows.
  DecodeMeters take_meters() { return std::move(meters_); }
  // Borrowed, with room for the stream: where the outcome of every token is written down.
  void trace_to(DecodeTrace* trace) { trace_ = trace; }
  // Borrowed: where the verifier, which has the rows, writes down log probabilities.
  void record_to(LogprobRecord* record) { record_ = record; }
  LogprobRecord* record() const { return record_; }  // null = nobody asks
  // Drafts that the last pass tested, and how many of them were right.
  std::int64_t last_tested() const { return last_tested_; }
  std::int64_t last_accepted() const { return last_accepted_; }

  // Rows of the next pass: the last committed token (none before the first pass) and the drafts.
  virtual std::size_t rows() const = 0;
  // The line that begins with a row; returns how many rows it has.
  virtual std::size_t line(std::size_t row, PassLine& out) const = 0;

  // The job that brings the next pass to `most` rows, no more than are missing.
  virtual DraftJob<Real, Random> draft_job(std::size_t most) = 0;
  // When the drafter is through, and again whenever the distributions it asked for were kept: what
  // it wants to know before its rows are complete; nothing wanted = complete.
  virtual TreeJob<Real> grow() { return {}; }

  // Verifies a pass on the host: `raw(j)` gives row j. Only the first `usable` rows are looked at,
  // 1 to rows(); drafts after them are forgotten.
  virtual void verify(RawRows<Real> raw, std::size_t usable) {
    begin_rows();
    HostVerdicts verdicts(*this, raw);
    settle(verdicts, usable);
  }
  // The same by outcomes that come from elsewhere.
  virtual void settle(Verdicts<Real>& verdicts, std::size_t usable) = 0;
  // Whether rows of a pass that break are left out, and the rest is used. Else they fail the
  // stream, as the first row always does.
  virtual bool bears_broken_rows() const { return true; }

  // Rows of the verified pass that stay cached, ascending; none of the first pass.
  virtual std::span<const std::int32_t> kept_rows() const = 0;

  // For a device that verifies: what each row of the next pass is about. Appends rows, and for
  // trees as many nodes; fills in `item` what is not its distribution, key or place in the pass.
  virtual void describe(VerifiedItem& item, std::vector<VerifiedRow>& rows,
                        std::vector<VerifiedNode>& nodes) const = 0;
  // The drafts of the next pass in a line; null where there are none.
  virtual DraftWindow<Real>* window() { return nullptr; }

  // What logits processors make of the row of the next pass that gives the token of a position.
  // After begin_rows(), which comes after all drafts; lives until the next call.
  bool processes() const { return processors_.on(); }
  void begin_rows() {
    standing_ = tokens_.size();
    if (processes()) note_rows();
  }
  RowEdits edits_of(std::size_t row, std::size_t position) {
    stand_before(row, position, processors_.prefix());
    return processors_.edit(position, stops_);
  }

  std::size_t slot() const { return item_; }
  const DistributionSettings& dist() const { return dist_.settings(); }
  const VocabularyGrammar& grammar() const { return dist_.grammar(); }
  const Random& random() const { return random_; }
  std::uint32_t position() const { return narrow<std::uint32_t>(tokens_.size()); }
  void begin_pass() { random_.begin_pass(narrow<std::uint32_t>(meters_.passes) + 1); }

 protected:
  // Rows of logits on the host. Tokens are drawn alike in every shape; what is tested and redrafted
  // is for shapes to say.
  struct HostVerdicts : Verdicts<Real> {
    HostVerdicts(TokenSequence& of, RawRows<Real> rows) : sequence(of), raw(rows) {}

    Verdict<Real> test(std::size_t) override {
      expects(false, "a shape without drafts");
      return {};
    }
    Verdict<Real> draw(std::size_t j, std::size_t position) override {
      target = sequence.process(position, raw(j), j);
      Verdict<Real> out;
      out.token = sequence.random_.race(narrow<std::uint32_t>(position), target.logits);
      return by_row(out);
    }
    Redraft<Real> redraft(std::size_t, std::size_t) override {
      expects(false, "a shape without drafts");
      return {};
    }
    // With what its row says of the token.
    Verdict<Real> by_row(Verdict<Real> verdict) {
      verdict.figures = figures_of(target, verdict.token);
      verdict.row = &target;
      return verdict;
    }

    TokenSequence& sequence;
    RawRows<Real> raw;
    TargetRow<Real> target;
  };

  // The pass of the prompt, whose last row is the distribution of the first token that is drawn.
  bool first_pass() const { return meters_.passes == 0; }
  std::size_t missing() const { return total_ - tokens_.size(); }

  // Before verification overwrites it: what the rows of the pass stand after.
  virtual void note_rows() {}
  // Appends the tokens that a row of the pass was computed after, up to the position whose token it
  // gives: those that stood when the pass began, and drafts. -1 for one that is not known.
  virtual void stand_before(std::size_t /*row*/, std::size_t /*position*/,
                            std::vector<std::int32_t>& out) const {
    out.insert(out.end(), tokens_.begin(), tokens_.begin() + to_index(standing_));
  }

  // The distribution of a position of the stream: the one that `raw`, a row of the pass, was
  // computed for, at a depth of d in the pass d positions after what stood when it began.
  // Probabilities cost an exponential an id; a caller that needs none is spared them.
  TargetRow<Real> process(std::size_t position, const RawRow<Real>& raw, std::size_t row,
                          bool with_probs = true) {
    dist_.process_at(position, raw.cond, raw.uncond,
                     processes() ? edits_of(row, position) : RowEdits{});
    return {{dist_.support(), dist_.support_logits()},
            with_probs ? dist_.probabilities() : std::span<const Real>(), dist_.warm()};
  }

  // A token that is committed at a position of the stream.
  void count_token(const RowFigures& of_row, std::int32_t token, std::uint32_t place) {
    const TokenFigures figures =
        meters_.count_token(of_row, random_.uniform({Purpose::kMeter, place}));
    if (trace_ == nullptr) return;
    trace_->marks[place] = {token, narrow<std::int32_t>(meters_.passes) + 1,
                            to_float(figures.probability), to_float(figures.entropy)};
  }
  void count_pass(std::size_t brought) {
    meters_.count_pass(brought);
    if (trace_ != nullptr) trace_->committed.push_back(narrow<std::int32_t>(brought));
  }

  void commit(const Verdict<Real>& verdict, Drafter<Real, Random>* drafter) {
    count_token(verdict.figures, verdict.token, position());
    tokens_.push_back(verdict.token);
    stopped_ = stopped_ || std::find(stops_.begin(), stops_.end(), verdict.token) != stops_.end();
    if (drafter == nullptr) return;
    drafter->commit(
        {item_, tokens_.size() - 1, verdict.token, tokens_, verdict.row, verdict.likeliest});
  }

  void count_tests(std::int64_t tested, std::int64_t accepted) {
    last_tested_ = tested;
    last_accepted_ = accepted;
  }

  DistributionPipeline<Real> dist_;
  LogitProcessors processors_;
  Random random_;
  std::vector<Real> scratch_;  // [2 V]
  DecodeMeters meters_;
  std::size_t total_, item_;
  std::vector<std::int32_t> tokens_;
  std::size_t standing_ = 0;  // of them, when the pass at hand began
  std::span<const std::int32_t> before_;

 private:
  std::int64_t last_tested_ = 0, last_accepted_ = 0;
  DecodeTrace* trace_ = nullptr;
  LogprobRecord* record_ = nullptr;
  std::span<const std::int32_t> stops_;
  bool stopped_ = false;
};

}  // namespace tessera
