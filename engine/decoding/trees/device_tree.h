// A tree that is verified on a device. Distributions stay there: the host settles the tree's shape by how
// many ids each distribution allows, the device draws the candidates, walks the tree and makes the next
// drafts. Growth by value asks first for the candidates and probabilities of every depth. Where a
// draft model gives distributions, the candidates of a node are drawn as soon as it has one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/row_verifier.h"
#include "engine/decoding/trees/tree_sequence.h"

namespace tessera {

class DeviceTree final : public TreeSequence<float, KeyedRandom> {
 public:
  // As TreeSequence; the distributions are those of the last pass, or a draft model's that are on the
  // device.
  DeviceTree(const DistributionSettings& dist, const VocabularyGrammar& grammar, std::size_t rows,
             const TreeParts<float, KeyedRandom>& parts, const RedraftPolicy<float, KeyedRandom>* redraft_policy,
             Drafter<float, KeyedRandom>* drafter, KeyedRandom random, std::size_t item);

  // When the drafter is through: appends what is to be drawn before the rows are complete, and
  // takes it, width + 1 entries a draw.
  void ask(std::vector<VerifiedDraw>& draws);
  void take_drawn(std::span<const DrawnId> drawn);

  TreeJob<float> grow() override;

 private:
  struct Unseen;
  struct Listed;
  struct OfNodes;

  // Whether the distribution of a depth of the window is a row that the device has.
  bool on_device(std::size_t depth) const {
    return window_.kind(depth) == DistributionKind::kDense && !forced_at(depth);
  }
  float chance_of_first(std::int32_t node, const Verdict<float>& verdict) const override;
  VerifiedDraw draw_of(std::size_t depth) const;
  void ask_for_lists(std::vector<VerifiedDraw>& draws);
  void ask_for_candidates(std::vector<VerifiedDraw>& draws);
  void ask_for_nodes(std::vector<VerifiedDraw>& draws);

  std::vector<std::int32_t> ids_;  // 0 ... V - 1
  std::vector<DrawnId> of_nodes_;  // [rows, width] candidates by a draft model's distributions
  struct Asked {
    std::int32_t child = kNoNode;  // the first that is drawn; of a draft model, the node itself
    std::size_t depth = 0;
  };
  std::vector<Asked> asked_;  // one a draw
};

}  // namespace tessera
