// Candidates of a tree's nodes as their distributions give them: drawn, each with a chance of its own, or
// the likeliest, or the first of the race of a position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/core/index.h"
#include "engine/decoding/trees/draft_tree.h"
#include "engine/decoding/trees/sibling_rule.h"
#include "engine/sampling/row_math.h"

namespace tessera {

template <typename Real, typename Random>
struct DrawnCandidates {
  std::span<const std::int32_t> ids;  // 0 ... V - 1
  Candidates kind = Candidates::kIndependent;
  std::uint32_t position = 0;  // of the root's candidates
  Random& random;
  std::span<Real> scratch;  // [V] at least

  static std::size_t at(std::int32_t id) { return to_size(id); }

  // What the distribution of a node's candidates says of one.
  static Real prob(const DraftTree<Real>& tree, std::int32_t node, std::int32_t token) {
    return tree.dist(node).prob(token);
  }

  // The next candidate after a node; -1 when its distribution has no more.
  std::int32_t next(const DraftTree<Real>& tree, std::int32_t node, std::uint32_t lane) const {
    const DraftDistribution<Real>& dist = tree.dist(node);
    const std::span<Real> masses = scratch.first(ids.size());
    if (dist.kind == DistributionKind::kDense) {
      std::copy(dist.dense.begin(), dist.dense.end(), masses.begin());
    } else {
      for (const std::int32_t id : ids) masses[at(id)] = dist.prob(id);
    }
    if (kind != Candidates::kIndependent) {
      for (std::int32_t c = tree.first_child(node); c != kNoNode; c = tree.next_sibling(c)) {
        masses[at(tree.token(c))] = 0;
      }
    }
    const Real largest = largest_of(masses.data(), masses.size());
    if (!(largest > 0)) return -1;
    if (kind == Candidates::kLikeliest) {
      return narrow<std::int32_t>(std::find(masses.begin(), masses.end(), largest) -
                                  masses.begin());
    }
    const std::span<const Real> rates = masses;
    const std::uint32_t here = position + narrow<std::uint32_t>(tree.depth(node));
    if (kind == Candidates::kRace) return random.race(here, ids, rates);
    return random.weighted({Purpose::kSibling, here, lane}, ids, rates);
  }
};

}  // namespace tessera
