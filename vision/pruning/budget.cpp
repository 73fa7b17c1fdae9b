#include "vision/pruning/budget.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <string>

namespace tessera {

std::int64_t round_half_even(double value) {
  const int mode = std::fegetround();
  if (mode != FE_TONEAREST) std::fesetround(FE_TONEAREST);
  const volatile double rounded = std::nearbyint(value);
  if (mode != FE_TONEAREST) std::fesetround(mode);
  return static_cast<std::int64_t>(rounded);
}

std::int64_t round_by(double value, Rounding rounding) {
  expects(rounding != Rounding::kPublished, "a rounding rule");
  if (rounding == Rounding::kHalfEven) return round_half_even(value);
  // A product that is a whole number on paper may miss it by a bit of the last place.
  const std::int64_t nearest = round_half_even(value);
  const double miss = value - static_cast<double>(nearest);
  if (std::abs(miss) <= 1e-9 * std::max(1.0, std::abs(value))) return nearest;
  return static_cast<std::int64_t>(rounding == Rounding::kFloor ? std::floor(value)
                                                                : std::ceil(value));
}

namespace {

[[noreturn]] void refuse_budget(std::string expected, std::string found) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_PRUNE_BUDGET",
               .where = "token budget",
               .expected = std::move(expected),
               .found = std::move(found)}};
}

}  // namespace

std::int64_t Budget::kept_of(std::int64_t candidates, Rounding published) const {
  if (tokens) {
    if (*tokens < 0) refuse_budget("at least 0 tokens", std::to_string(*tokens));
    return std::min(*tokens, candidates);
  }
  if (!(ratio >= 0 && ratio <= 1)) refuse_budget("a ratio from 0 to 1", std::to_string(ratio));
  const Rounding rule = rounding == Rounding::kPublished ? published : rounding;
  return std::clamp(round_by(ratio * static_cast<double>(candidates), rule), std::int64_t{0},
                    candidates);
}

Fate fate_of(const VisualToken& token, const Budget& budget) {
  if (token.kind == TokenKind::kPatch && token.padded) return budget.padded;
  return budget.fate[static_cast<std::size_t>(token.kind)];
}

namespace {

std::int32_t group_id(const VisualToken& token, Scope scope) {
  if (scope == Scope::kPerTile) return token.tile;
  return scope == Scope::kPerFrame ? token.frame : 0;
}

}  // namespace

CandidateGroups group_candidates(const VisualBlock& block, const Budget& budget, Scope published,
                                 PruneScratch& scratch) {
  expects(published != Scope::kPublished, "a scope");
  const Scope scope = budget.scope == Scope::kPublished ? published : budget.scope;
  std::int32_t lowest = 0, highest = -1;
  std::int64_t candidates = 0;
  for (const VisualToken& token : block.tokens) {
    if (fate_of(token, budget) != Fate::kCompete) continue;
    const std::int32_t id = group_id(token, scope);
    lowest = candidates == 0 ? id : std::min(lowest, id);
    highest = candidates == 0 ? id : std::max(highest, id);
    ++candidates;
  }
  const std::int64_t groups = std::int64_t{highest} - lowest + 1;
  // Counting sort: sizes, their running sum, then every token to its place.
  const auto starts = scratch.take<std::int64_t>(groups + 1);
  const auto next = scratch.take<std::int64_t>(groups + 1);
  const auto tokens = scratch.take<TokenIndex>(candidates);
  for (const VisualToken& token : block.tokens) {
    if (fate_of(token, budget) != Fate::kCompete) continue;
    ++starts[static_cast<std::size_t>(group_id(token, scope) - lowest + 1)];
  }
  for (std::size_t g = 1; g < starts.size(); ++g) starts[g] += starts[g - 1];
  std::copy(starts.begin(), starts.end(), next.begin());
  for (TokenIndex i = 0; i < block.count(); ++i) {
    if (fate_of(block[i], budget) != Fate::kCompete) continue;
    auto& place = next[static_cast<std::size_t>(group_id(block[i], scope) - lowest)];
    tokens[static_cast<std::size_t>(place++)] = i;
  }
  return {tokens, starts};
}

}  // namespace tessera
