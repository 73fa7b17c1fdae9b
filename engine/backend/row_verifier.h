// The seam for sampling and acceptance on a device, for drafts in a line and for drafts that
// branch. Per pass and row of a window: guidance, forced ids, temperature, the cuts, softmax, the
// test of the row's draft or of the candidates after it, the draw after a failed test, the token
// after a window that was right as a whole, and what the tail makes of the rows after a refused
// draft. The distributions of a pass stay on the device and are the draft distributions of the next one, whose
// candidates are drawn there too; what comes back is one small record a row and an id a candidate.
//
// Plain data alone, and the same decisions as the host's (engine/sampling, engine/decoding), bit
// for bit, where logits and keys are the same: the arithmetic is that of engine/core/dist_math.h,
// keyed_noise.h and acceptance_math.h, every sum runs in the order of engine/core/row_tree.h, and
// every number of chance is addressed as engine/core/philox.h says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "engine/core/logit_edit.h"
#include "engine/core/tensor.h"

namespace tessera {

enum class VerifyRedraft : std::int32_t { kDrop, kResample, kMaximal, kGumbel };
// How the candidates of a position are verified, and thereby how they are drawn: kRecursive from the
// distribution each, and so kKSeq; kDistinct without replacement, kPoints the likeliest, kEquality by the
// position's race.
enum class VerifySiblings : std::int32_t { kNone, kRecursive, kDistinct, kKSeq, kPoints, kEquality };

// A rule as a device takes it: the name of its device function, and what that reads, in an order
// that the two agree on. Tables are the host's and read while a verifier is made.
struct DeviceRule {
  std::string_view name = "exact";
  std::array<double, 4> numbers = {};
  std::span<const float> reals = {};
  std::array<std::span<const std::int32_t>, 3> ids = {};
};

// A method's rule and tail.
struct VerifyMethod {
  DeviceRule rule;
  VerifyRedraft redraft_policy = VerifyRedraft::kDrop;
  VerifySiblings siblings =
      VerifySiblings::kNone;  // kNone: drafts stand in a line, else the rule rests
  bool budget = false;       // whether items have budgets
  bool likeliest = false;    // whether records tell the likeliest id
  bool dists = false;         // whether drafts of a pass need the distributions of the pass before
};

// The stages of an item's distribution, as DistributionSettings has them.
struct VerifiedDistribution {
  double guidance = 1, temperature = 1;
  double top_p = 1, min_p = 0, typical = 1;
  std::int64_t top_k = 0;
};

// One stream of tokens in a pass. Its rows follow one another.
struct VerifiedItem {
  VerifiedDistribution dist;
  std::array<std::uint32_t, 2> key = {};  // of its chance
  std::uint32_t pass = 0;
  std::uint32_t position = 0;        // that row 0 speaks of
  std::int32_t first = 0, rows = 0;  // of the pass's rows
  // Of total variation along `total` tokens, and what of it is spent; 0 = none. Lines alone.
  double budget = 0, spent = 0;
  std::int64_t total = 1;
  std::int32_t apart = 0;  // 1: no row stands after another, each gives a token; no drafts
};

// What the draft after a row was drawn from.
// kGuest: a distribution that another verifier of the device keeps, a draft model's.
enum class DraftKind : std::int32_t { kNone, kPoint, kUniform, kRow, kGuest };

struct VerifiedRow {
  std::int32_t item = 0;
  std::int32_t cond = 0, uncond = -1;  // rows of logits; -1 where the item has no second branch
  std::int32_t forced = -1;            // the one id that may stand there
  std::int32_t draft = -1;             // the token under test; -1 after the last row of an item
  DraftKind kind = DraftKind::kNone;   // of the draft's distribution
  std::int32_t dist_row = 0;            // kRow: of the last pass's rows; kGuest: of the guest's
  std::int32_t place = 0;              // the row speaks of the item's position + place
  std::int32_t keep = -1;              // where its distribution is kept; -1 = by the row's number
  // What logits processors make of it: of the pass's edits, one an id, and whether other ids go.
  std::int32_t edits_begin = 0, edits = 0, only = 0;
};

// A row of a tree. Its candidates share the distribution that its VerifiedRow tells; draft is the first one.
struct VerifiedNode {
  std::int32_t token = -1;    // that the row feeds
  std::int32_t child = -1;    // its first candidate: of the item's rows; -1 = none
  std::int32_t sibling = -1;  // the candidate drawn after it
};

struct VerifiedPass {
  ConstTensorView logits;  // [any, codes] f32 on the device
  std::span<const VerifiedItem> items;
  std::span<const VerifiedRow> rows;         // item by item
  std::span<const VerifiedNode> nodes = {};  // of trees: one a row; children stand after parents
  const float* guest = nullptr;            // laws() of another verifier, whose passes are over
  std::span<const LogitEdit> edits = {};
};

// What came of a row. Rows before the first refused draft and the refused one have a token that
// stands, and so has the last row of an item whose drafts were all right; rows after a refused one
// have a redraft. Of a tree, rows that the walk went through have a token, and those have a redraft
// that speak of a place after the walk's end: at each place the row below the end, first candidate
// after first candidate, else that of the path of first candidates from the root. The rest means
// nothing.
struct RowRecord {
  std::int32_t accepted = 0;
  std::int32_t token = -1, redraft = -1;
  std::int32_t unsound =
      -1;  // the first id with a logit that no distribution can be made of: cond, then uncond
  float unsound_logit = 0;
  // min(1, p/q), what the rule accepted with. Of a tree: the sum over candidates, and what the distribution
  // of the first one that counts says of it.
  float strict = 0, chance = 0;
  // Of a tree: the row where the walk goes on, -1 at its end; of its redrafts: ids that their distribution
  // allows.
  std::int32_t next = -1;
  // The token's row, as DecodeMeters counts it.
  double probability = 0, above = 0, mean = 0, spread = 0;
  // Where the method asks for it, of rows that have a token: the likeliest id, the lowest of equal
  // ones; -1 where the token was forced.
  std::int32_t likeliest = -1;
};

struct VerifiedCount {
  std::int32_t sound = 0;   // rows before the first unsound one
  std::int32_t tested = 0;  // drafts; of a tree, places with candidates
  std::int32_t right = 0;   // of them
  std::int32_t last = 0;    // of a tree: the row at which the walk ended
};

// Candidates of one node of the next tree, by a distribution of the last pass.
struct VerifiedDraw {
  std::array<std::uint32_t, 2> key = {};
  std::uint32_t pass = 0, position = 0;  // the next pass; what the candidates stand for
  std::int32_t dist_row = 0;              // of the last pass's rows, or of the guest's
  std::int32_t lane = 0;                 // of the first one's chance, where every one has its own
  std::int32_t count = 0;
  std::int32_t without = -1;  // an id that stands already and is not drawn again
  std::int32_t asked = -1;    // an id whose probability is wanted
};
struct DrawnId {
  std::int32_t token = -1;  // -1: the distribution has no more
  float probability = 0;
};

// A distribution of the last pass that outlives it.
struct KeptDistribution {
  std::int32_t from = 0;  // of the last pass's rows
  std::int32_t to = 0;    // of the memory's
};

// Distributions of a stream's past next to those of passes, for drafts that are drawn from them.
class DistributionMemory {
 public:
  virtual ~DistributionMemory() = default;
  // Enqueues copies of distributions of the last pass; no two go to one place.
  virtual void keep(std::span<const KeptDistribution> dists) = 0;
  // The winner of each position's own race over the logarithms of the kept distribution `dist_row`, and what
  // that distribution says of it; waits. At most a pass's rows; they live until the next call. What a draw
  // says next to key, position and dist_row is not read.
  virtual std::span<const DrawnId> race(std::span<const VerifiedDraw> draws) = 0;
  // [VerifyLimits::remembered, codes] on the device: a pass's guest.
  virtual const float* kept() const = 0;
};

class RowVerifier {
 public:
  virtual ~RowVerifier() = default;
  // Enqueues a pass. Its arrays are read during the call.
  virtual void verify(const VerifiedPass& pass) = 0;
  // Waits for it. Both live until the next pass.
  virtual std::span<const RowRecord> rows() = 0;
  virtual std::span<const VerifiedCount> items() = 0;
  // Draws candidates and waits, by distributions of the last pass or of `guest`, laws() of another verifier
  // whose passes are over. Draw d has entries d (width + 1) and on: what was asked, then `count`
  // candidates. They live until the next call.
  virtual std::span<const DrawnId> draw(std::span<const VerifiedDraw> draws, const float* guest) = 0;
  // [kept, codes] on the device: the distributions of rows, where these were notified to be kept.
  virtual const float* dists() const = 0;
  // Null where no distributions are to be remembered, or none can be.
  virtual DistributionMemory* memory() { return nullptr; }
};

// Ids of a row that a device verifies at most: more than any published captioner has.
inline constexpr std::int64_t kMaxVerifiedCodes = 262144;
inline constexpr std::int64_t kMaxSiblings = 64;

struct VerifyLimits {
  std::int64_t codes = 1;            // at most kMaxVerifiedCodes
  std::int64_t rows = 1, items = 1;  // of a pass
  std::int64_t kept = 0;             // distributions that are kept, at least `rows`; 0 = `rows`
  std::int64_t width = 0;            // trees: candidates of a node at most, up to kMaxSiblings
  std::int64_t remembered = 0;       // lines: distributions that outlive passes

  std::int64_t dist_rows() const { return kept > rows ? kept : rows; }
  // Of the device: a row's logits under verdict and its distribution, four bytes an id each, and where
  // distributions outlive a pass those of the pass before. 152,064 ids take 1.2 MB a row, or 1.8. Trees take
  // a row an item next to that, and what is remembered a row a distribution.
  std::size_t bytes(bool dists) const {
    const std::int64_t all =
        rows + dist_rows() * (dists ? 2 : 1) + (width > 0 ? items : 0) + remembered;
    return static_cast<std::size_t>(codes * all) * sizeof(float);
  }
};

class RowVerifierMaker {
 public:
  virtual ~RowVerifierMaker() = default;
  // Null where the device has no function for the rule. Error kMemory.
  virtual std::unique_ptr<RowVerifier> make(const VerifyMethod& method, const VerifyLimits& limits) = 0;
};

}  // namespace tessera
