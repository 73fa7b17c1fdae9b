#include "vision/pruning/budget.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <string>

#include "engine/core/index.h"

namespace tessera {

std::int64_t round_half_even(double value) {
  const int mode = std::fegetround();
  if (mode != FE_TONEAREST) std::fesetround(FE_TONEAREST);
  const volatile double rounded = std::nearbyint(value);
  if (mode != FE_TONEAREST) std::fesetround(mode);
  return truncate<std::int64_t>(rounded);
}

std::int64_t round_by(double value, Rounding rounding) {
  expects(rounding != Rounding::kPublished, "a rounding rule");
  if (rounding == Rounding::kHalfEven) return round_half_even(value);
  // A product that is a whole number on paper may miss it by a bit of the last place.
  const std::int64_t nearest = round_half_even(value);
  const double miss = value - to_double(nearest);
  if (std::abs(miss) <= 1e-9 * std::max(1.0, std::abs(value))) return nearest;
  return truncate<std::int64_t>(rounding == Rounding::kFloor ? std::floor(value)
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

namespace {

// The budget of one group by itself.
std::int64_t rounded(const Budget& budget, std::int64_t candidates, Rounding published) {
  if (budget.tokens) {
    if (*budget.tokens < 0) refuse_budget("at least 0 tokens", std::to_string(*budget.tokens));
    return std::min(*budget.tokens, candidates);
  }
  const double ratio = budget.ratio;
  if (!(ratio >= 0 && ratio <= 1)) refuse_budget("a ratio from 0 to 1", std::to_string(ratio));
  const Rounding rule = budget.rounding == Rounding::kPublished ? published : budget.rounding;
  return std::clamp(round_by(ratio * to_double(candidates), rule), std::int64_t{0}, candidates);
}

void share_out(std::int64_t tokens, std::span<const std::int64_t> sizes, std::int64_t all,
               std::span<std::int64_t> out) {
  std::int64_t left = tokens;
  for (std::size_t g = 0; g < sizes.size(); ++g) left -= out[g] = tokens * sizes[g] / all;
  // The groups that lost the most to rounding, one after the other: they are few.
  for (; left > 0; --left) {
    std::size_t best = 0;
    std::int64_t largest = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      const std::int64_t lost = tokens * sizes[g] - out[g] * all;
      if (lost > largest) {
        largest = lost;
        best = g;
      }
    }
    ++out[best];
  }
}

}  // namespace

std::int64_t Budget::kept_of(std::int64_t candidates, Rounding published) const {
  const std::int64_t kept = rounded(*this, candidates, published);
  const bool none = kept == 0 && !tokens && ratio > 0;
  return none ? std::min(candidates, std::int64_t{1}) : kept;
}

void kept_by_size(const Budget& budget, std::span<const std::int64_t> sizes, Rounding published,
                  std::span<std::int64_t> out) {
  expects(sizes.size() == out.size(), "a place for each group");
  std::int64_t all = 0, kept = 0;
  for (const std::int64_t size : sizes) all += size;
  if (budget.shared && budget.tokens) {
    if (all > 0) share_out(budget.kept_of(all, published), sizes, all, out);
    return;
  }
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    kept += out[g] = rounded(budget, sizes[g], published);
  }
  if (kept > 0 || all == 0 || budget.kept_of(all, published) == 0) return;
  nth(out, std::max_element(sizes.begin(), sizes.end()) - sizes.begin()) = 1;
}

TokenOutcome outcome_of(const VisualToken& token, const Budget& budget) {
  if (token.kind == TokenKind::kPatch && token.padded) return budget.padded;
  return nth(budget.outcome, token.kind);
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
    if (outcome_of(token, budget) != TokenOutcome::kCompete) continue;
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
    if (outcome_of(token, budget) != TokenOutcome::kCompete) continue;
    ++nth(starts, group_id(token, scope) - lowest + 1);
  }
  for (std::size_t g = 1; g < starts.size(); ++g) starts[g] += starts[g - 1];
  std::copy(starts.begin(), starts.end(), next.begin());
  for (TokenIndex i = 0; i < block.count(); ++i) {
    if (outcome_of(block[i], budget) != TokenOutcome::kCompete) continue;
    auto& place = nth(next, group_id(block[i], scope) - lowest);
    nth(tokens, place++) = i;
  }
  return {tokens, starts};
}

std::span<const std::int64_t> kept_by_group(const Budget& budget, const CandidateGroups& groups,
                                            Rounding published, PruneScratch& scratch) {
  const auto sizes = scratch.take<std::int64_t>(groups.groups());
  const auto out = scratch.take<std::int64_t>(groups.groups());
  for (std::int64_t g = 0; g < groups.groups(); ++g) {
    nth(sizes, g) = std::ssize(groups.group(g));
  }
  kept_by_size(budget, sizes, published, out);
  return out;
}

}  // namespace tessera
