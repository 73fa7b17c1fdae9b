// How many visual tokens may stay, counted over which groups, and what becomes of tokens that are
// not patches. Structural tokens are outside the budget unless told otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "engine/core/index.h"
#include "vision/pruning/scratch.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

enum class Rounding : std::uint8_t {
  kPublished,  // the method's own rule
  kHalfEven,   // nearest, ties to even
  kFloor,
  kCeil,
};
// Nearest integer, ties to even, whatever rounding mode the caller runs under.
std::int64_t round_half_even(double value);
std::int64_t round_by(double value, Rounding rounding);

enum class Scope : std::uint8_t { kPublished, kGlobal, kPerTile, kPerFrame };

enum class TokenOutcome : std::uint8_t {
  kProtect,  // stays, outside the budget
  kDrop,     // goes
  kCompete,  // counts as a candidate like a patch
};

struct Budget {
  // Tokens to keep in each group of the scope: a number, or a fraction of the group's candidates.
  std::optional<std::int64_t> tokens;
  bool shared = false;  // `tokens` is of all groups together, which share it by their sizes
  double ratio = 1;
  Rounding rounding = Rounding::kPublished;
  Scope scope = Scope::kPublished;
  // By TokenKind. Patches compete; the others stay.
  std::array<TokenOutcome, kTokenKinds> outcome = {TokenOutcome::kCompete, TokenOutcome::kProtect, TokenOutcome::kProtect,
                                        TokenOutcome::kProtect, TokenOutcome::kProtect};
  TokenOutcome padded = TokenOutcome::kDrop;  // of padded patches
  // The method finds its own number within [least, most]; methods that cannot ignore it.
  bool adaptive = false;
  std::int64_t least = 1;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();

  // Tokens to keep of `candidates`, in [0, candidates]; a ratio above 0 keeps one of any. Error
  // E_PRUNE_BUDGET for a negative number or a ratio outside [0, 1].
  std::int64_t kept_of(std::int64_t candidates, Rounding published) const;
};

// Tokens to keep in groups of these sizes. A shared number is split in proportion to the sizes,
// rounded down; what is left goes to the largest fractions, the first at a tie. A ratio is rounded
// group by group; where it comes to none anywhere the largest group keeps one. Errors of kept_of().
void kept_by_size(const Budget& budget, std::span<const std::int64_t> sizes, Rounding published,
                  std::span<std::int64_t> out);

TokenOutcome outcome_of(const VisualToken& token, const Budget& budget);

// Candidates, ascending inside their group; groups ascend by tile or frame id. Lives in the
// scratch.
struct CandidateGroups {
  std::span<const TokenIndex> tokens;
  std::span<const std::int64_t> starts;  // groups + 1 places in `tokens`

  std::int64_t groups() const { return std::ssize(starts) - 1; }
  std::span<const TokenIndex> group(std::int64_t g) const {
    const auto begin = to_size(nth(starts, g));
    const auto end = to_size(starts[to_size(g) + 1]);
    return tokens.subspan(begin, end - begin);
  }
};
// `published`: the scope that kPublished stands for; not kPublished itself.
CandidateGroups group_candidates(const VisualBlock& block, const Budget& budget, Scope published,
                                 PruneScratch& scratch);
// kept_by_size() of these groups, in the scratch.
std::span<const std::int64_t> kept_by_group(const Budget& budget, const CandidateGroups& groups,
                                            Rounding published, PruneScratch& scratch);

}  // namespace tessera
