// What a method brings to a stream, borrowed, and the sequence made of it: drafts in a line, in a
// tree where there is a rule for siblings, rows of codes side by side, or blocks.
#pragma once

#include <memory>

#include "engine/decoding/block_sequence.h"
#include "engine/decoding/chain_sequence.h"
#include "engine/decoding/pass_shape.h"
#include "engine/decoding/row_sequence.h"
#include "engine/decoding/trees/tree_sequence.h"

namespace tessera {

template <typename Real, typename Random>
struct SequenceParts : ChainParts<Real, Random> {
  TreeParts<Real, Random> tree = {};
  std::size_t row_lead = 0;  // rows side by side: tokens by which one leads the next; 0 = off
  std::size_t row_window = 1;  // then the rows of a pass for each of them: one more than its drafts
  BlockReading blocks = {};  // of a model of blocks; no other part is asked then
  // Asked in place of the backend's verifies of rows, where that has some; for benchmarks.
  RowVerifierMaker* verifiers = nullptr;

  PassShape shape() const {
    if (blocks.block > 0) return PassShape::kBlock;
    if (row_lead > 0) return PassShape::kRows;
    return tree.rule != nullptr ? PassShape::kTree : PassShape::kLine;
  }
  // Whether drafts are kept with dense distributions.
  bool needs_dists() const {
    if (shape() == PassShape::kTree) return true;
    const bool drafts = shape() == PassShape::kLine || (shape() == PassShape::kRows && row_window > 1);
    return drafts && ChainParts<Real, Random>::needs_dists();
  }
};

// `rows` of a pass at most.
template <typename Real, typename Random>
std::unique_ptr<TokenSequence<Real, Random>> make_sequence(const DistributionSettings& dist,
                                                           const VocabularyGrammar& grammar,
                                                           std::size_t rows,
                                                           const SequenceParts<Real, Random>& parts,
                                                           Random random, std::size_t item) {
  switch (parts.shape()) {
    case PassShape::kRows:
      return std::make_unique<RowSequence<Real, Random>>(dist, grammar, parts.row_lead,
                                                         parts.row_window, parts, random, item);
    case PassShape::kBlock:
      return std::make_unique<BlockSequence<Real, Random>>(dist, grammar, parts.blocks, random,
                                                           item);
    case PassShape::kTree:
      return std::make_unique<TreeSequence<Real, Random>>(dist, grammar, rows, parts.tree,
                                                          parts.redraft_policy, parts.drafter, random, item);
    case PassShape::kLine:
      break;
  }
  return std::make_unique<ChainSequence<Real, Random>>(dist, grammar, rows, parts, random, item);
}

}  // namespace tessera
