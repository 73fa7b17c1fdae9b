// A tree that is judged on a device. Laws stay there: the host settles the tree's shape by how many
// ids each law allows, the device draws the candidates, walks the tree and makes the next drafts.
// Growth by value asks first for the candidates and probabilities of every depth. Where a draft
// model gives laws, the candidates of a node are drawn as soon as it has one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decoding/judged_sequence.h"
#include "engine/decoding/trees/tree_base.h"

namespace tessera {

class JudgedTree final : public TreeBase<float, KeyedRandom>, public JudgedSequence {
 public:
  // As TreeBase; the laws are those of the last pass, or a draft model's that are on the device.
  JudgedTree(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t rows,
             const TreeParts<float, KeyedRandom>& parts, const TailPolicy<float, KeyedRandom>* tail,
             Drafter<float, KeyedRandom>* drafter, KeyedRandom random, std::size_t item);

  void describe(std::int32_t cond, std::int32_t uncond, JudgedBatch& batch) override;
  void take(std::span<const RowRecord> records, const JudgedCount& item) override;
  void wish(std::vector<JudgedDraw>& draws) override;
  void take_drawn(std::span<const DrawnId> drawn) override;

  TreeJob<float> grow() override;

  void judge(RawRows<float>, std::size_t) override {
    expects(false, "a tree that a device judges has no rows on the host");
  }

 private:
  struct Records;
  struct Unseen;
  struct Listed;
  struct OfNodes;

  std::size_t depth_of(std::int32_t node) const { return at(tree_.depth(node)); }
  std::optional<std::int32_t> forced_at(std::size_t depth) const {
    return grammar().forced(tokens_.size() + depth);
  }
  // Whether the law of a depth of the window is a row that the device has.
  bool on_device(std::size_t depth) const {
    return window_.kind(depth) == LawKind::kDense && !forced_at(depth);
  }
  float prob_of_forced(std::int32_t node, std::int32_t token, std::int32_t forced) const;
  JudgedDraw draw_of(std::size_t depth) const;
  void wish_lists(std::vector<JudgedDraw>& draws);
  void wish_candidates(std::vector<JudgedDraw>& draws);
  void wish_of_nodes(std::vector<JudgedDraw>& draws);

  std::vector<std::int32_t> ids_;      // 0 ... V - 1
  std::vector<std::int32_t> allowed_;  // ids that the law of a depth of the window allows
  std::int32_t first_ = 0;             // of the pass's rows
  std::vector<DrawnId> of_nodes_;      // [rows, width] candidates by a draft model's laws
  struct Wish {
    std::int32_t child = kNoNode;  // the first that is drawn; of a draft model, the node itself
    std::size_t depth = 0;
  };
  std::vector<Wish> wishes_;  // one a draw
};

}  // namespace tessera
