// The seam for methods that draft the next tokens of an image. A drafter knows tokens and rows:
// neither the target's cache nor how its drafts are verified. It states the distribution that each draft was
// drawn from; if that is true, drafts can cost time but never change the distribution of an image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/decoding/acceptance.h"
#include "engine/decoding/draft_window.h"
#include "engine/sampling/grammar.h"

namespace tessera {

class Backend;

// One image's window to fill. Drafts that the tail kept are in it already.
template <typename Real, typename Random>
struct DraftJob {
  std::size_t item = 0;
  std::span<const std::int32_t> committed;  // at least one token
  std::size_t want = 0;                     // drafts the window shall hold, at most its capacity
  DraftWindow<Real>* window = nullptr;
  Random* random = nullptr;
  std::span<const std::int32_t> before = {};  // ids in front of a text

  // The token at a position of the image, committed or drafted.
  std::int32_t token(std::size_t position) const {
    return position < committed.size() ? committed[position]
                                       : window->token(position - committed.size());
  }
  // Of the next draft to append.
  std::size_t next_position() const { return committed.size() + window->size(); }
};

// Appends the next draft if its position forces an id; false if not. No chance in it, and the
// target's distribution is the same point: whoever verifies it by its record lets it stand.
template <typename Real, typename Random>
bool append_forced(DraftJob<Real, Random>& job, const VocabularyGrammar& grammar) {
  const std::optional<std::int32_t> forced = grammar.forced(job.next_position());
  if (forced) job.window->append_point(*forced);
  return forced.has_value();
}

// A token that stands, and the row it was verified by.
template <typename Real>
struct Commitment {
  std::size_t item = 0;
  std::size_t position = 0;
  std::int32_t token = 0;
  std::span<const std::int32_t> tokens;  // of the image, up to and with this one
  const TargetRow<Real>* row = nullptr;  // null where no drafter needs rows
  std::int32_t likeliest = -1;  // of the row, lowest of equal ones, where there is no row to read
};

// What a drafter needs to know of the target, beyond the tokens that every drafter is notified of.
struct DraftSignals {
  // Whole rows: commit() reads them, or extend() appends distributions that are rows on the host. Without
  // it, rows stay wherever they were computed.
  bool rows = false;
  bool likeliest = false;  // of each code's row the likeliest id, in commit()
  // Distributions an item, one a column of the grid, that a device's verifier may keep in place of rows:
  // drafts in a line are then appended by append_kept(item x columns + column). A distribution is kept of
  // every code that is committed. 0 = rows are read on the host alone.
  std::size_t kept_dists = 0;
  // Layers whose hidden states observe() is to see, ascending: number i is the residual stream that
  // enters layer i, the number of layers what the head reads.
  std::vector<std::int64_t> hidden_layers = {};
};

// Hidden states of rows that were committed: those of one branch of a stream's prompt or of its
// tokens, in a pass.
struct HiddenStates {
  std::size_t item = 0;
  int branch = 0;                        // 1: the unconditional one
  std::span<const std::int64_t> layers;  // that the drafter asked for
  std::span<const ConstTensorView>
      states;                          // of each, [rows of the pass, D] f32 on the model's device
  std::span<const std::int64_t> rows;  // of the pass, that are this branch's
  std::span<const std::int64_t> positions;  // of each: that of the row in the rotary table
};

template <typename Real, typename Random>
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  // Asked when a loop is built. Rows are the safe answer of who says nothing.
  virtual DraftSignals needs() const { return {.rows = true}; }
  // The verifier that draws its drafts where a device's target has its rows, and keeps their distributions
  // there; then it reads no rows of the target, and appends distributions by append_guest() to windows that
  // do not keep them.
  virtual const RowVerifier* verify_on(const Backend&) const { return nullptr; }
  // Before the first pass of a run over `items` images.
  virtual void start(std::size_t /*items*/) {}
  // A slot goes to another stream than before; nothing of the old one holds for it.
  virtual void renew(std::size_t /*item*/) {}
  // Appends drafts until each window holds what is wanted; may stop short.
  virtual void extend(std::span<DraftJob<Real, Random>> jobs) = 0;
  // Called for every token that is committed, in order; items in any order, from any thread.
  virtual void commit(const Commitment<Real>&) {}
  // After a pass and its commits, for a drafter that asked for hidden layers: the rows that it
  // cached. Prompts that are cut inside the model are not shown.
  virtual void observe(const HiddenStates&) {}
};

// A drafter that fills one slot at a time from what is known of one image. It deals with codes
// alone: what the stream's grammar forces is filled in here, as a point, and never learned from.
template <typename Real, typename Random>
class SlotDrafter : public Drafter<Real, Random> {
 public:
  explicit SlotDrafter(const VocabularyGrammar& grammar = {}) : grammar_(grammar) {}

  void extend(std::span<DraftJob<Real, Random>> jobs) final {
    for (DraftJob<Real, Random>& job : jobs) {
      while (job.window->size() < job.want && (append_forced(job, grammar_) || fill(job))) {
      }
    }
  }
  void commit(const Commitment<Real>& done) final {
    if (!grammar_.forced(done.position)) learn(done);
  }

 protected:
  const VocabularyGrammar& grammar() const { return grammar_; }
  // Appends one draft for a position of a code; false if it has none.
  virtual bool fill(DraftJob<Real, Random>& job) = 0;
  // Called for every code that is committed.
  virtual void learn(const Commitment<Real>&) {}

 private:
  VocabularyGrammar grammar_;
};

}  // namespace tessera
