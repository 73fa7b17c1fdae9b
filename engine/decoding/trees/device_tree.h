// A tree that is verified on a device. Laws stay there: the host settles the tree's shape by how
// many ids each law allows, the device draws the candidates, walks the tree and makes the next
// drafts. Growth by value asks first for the candidates and probabilities of every depth. Where a
// draft model gives laws, the candidates of a node are drawn as soon as it has one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/row_judge.h"
#include "engine/decoding/trees/tree_sequence.h"

namespace tessera {

class DeviceTree final : public TreeSequence<float, KeyedRandom> {
 public:
  // As TreeSequence; the laws are those of the last pass, or a draft model's that are on the
  // device.
  DeviceTree(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t rows,
             const TreeParts<float, KeyedRandom>& parts, const TailPolicy<float, KeyedRandom>* tail,
             Drafter<float, KeyedRandom>* drafter, KeyedRandom random, std::size_t item);

  // When the drafter is through: appends what is to be drawn before the rows are complete, and
  // takes it, width + 1 entries a draw.
  void ask(std::vector<JudgedDraw>& draws);
  void take_drawn(std::span<const DrawnId> drawn);

  TreeJob<float> grow() override;

 private:
  struct Unseen;
  struct Listed;
  struct OfNodes;

  // Whether the law of a depth of the window is a row that the device has.
  bool on_device(std::size_t depth) const {
    return window_.kind(depth) == LawKind::kDense && !forced_at(depth);
  }
  float chance_of_first(std::int32_t node, const Verdict<float>& verdict) const override;
  JudgedDraw draw_of(std::size_t depth) const;
  void ask_for_lists(std::vector<JudgedDraw>& draws);
  void ask_for_candidates(std::vector<JudgedDraw>& draws);
  void ask_for_nodes(std::vector<JudgedDraw>& draws);

  std::vector<std::int32_t> ids_;  // 0 ... V - 1
  std::vector<DrawnId> of_nodes_;  // [rows, width] candidates by a draft model's laws
  struct Asked {
    std::int32_t child = kNoNode;  // the first that is drawn; of a draft model, the node itself
    std::size_t depth = 0;
  };
  std::vector<Asked> asked_;  // one a draw
};

}  // namespace tessera
