// Drafts that branch: several candidates for one position, each with continuations of its own. Node
// 0 is the last committed token; the children of a node are candidates for the position after it,
// in the order they were drawn, all of one recorded distribution.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/draft_window.h"

namespace tessera {

inline constexpr std::int32_t kNoNode = -1;

template <typename Real>
class DraftTree {
 public:
  // Room for `capacity` nodes, the root included. Distributions are kept where `keeps_dists`.
  DraftTree(std::size_t capacity, std::size_t vocabulary, bool keeps_dists)
      : vocabulary_(vocabulary), keeps_dists_(keeps_dists) {
    nodes_.reserve(capacity);
    if (keeps_dists) dists_.resize(capacity * vocabulary);
    reset(0);
  }

  // Only the root is left.
  void reset(std::int32_t root_token) {
    nodes_.clear();
    nodes_.push_back({});
    nodes_[0].token = root_token;
  }

  std::size_t size() const { return nodes_.size(); }
  std::int32_t token(std::int32_t node) const { return at(node).token; }
  std::int32_t parent(std::int32_t node) const { return at(node).parent; }
  std::int32_t depth(std::int32_t node) const { return at(node).depth; }
  std::int32_t first_child(std::int32_t node) const { return at(node).first_child; }
  std::int32_t next_sibling(std::int32_t node) const { return at(node).next_sibling; }
  // Of the node's children.
  bool has_dist(std::int32_t node) const { return at(node).has_dist; }
  const DraftDistribution<Real>& dist(std::int32_t node) const { return at(node).dist; }

  // The distribution is borrowed: it must stay as it is while the tree does.
  void set_dist(std::int32_t node, const DraftDistribution<Real>& dist) {
    at(node).dist = dist;
    at(node).has_dist = true;
  }
  // probs [V] are copied.
  void keep_dist(std::int32_t node, std::span<const Real> probs) {
    expects(keeps_dists_, "a tree that keeps distributions");
    const auto to = dists_.begin() + to_index(offset(node));
    std::copy(probs.begin(), probs.end(), to);
    DraftDistribution<Real> dist;
    dist.kind = DistributionKind::kDense;
    dist.dense = {dists_.data() + offset(node), vocabulary_};
    set_dist(node, dist);
  }

  bool keeps_dists() const { return keeps_dists_; }
  // The distribution is kept on a device, at a row of a draft model's verify.
  void keep_guest_dist(std::int32_t node, std::int32_t row) {
    DraftDistribution<Real> dist;
    dist.kind = DistributionKind::kDense;
    dist.guest = row;
    set_dist(node, dist);
  }
  // A node that was added before its token was known.
  void set_token(std::int32_t node, std::int32_t token) { at(node).token = token; }
  // The next candidate after `parent`.
  std::int32_t add(std::int32_t parent, std::int32_t token) {
    expects(nodes_.size() < nodes_.capacity(), "nodes fit the tree");
    const auto node = narrow<std::int32_t>(nodes_.size());
    Node entry;
    entry.token = token;
    entry.parent = parent;
    entry.depth = at(parent).depth + 1;
    nodes_.push_back(entry);
    Node& above = at(parent);
    if (above.last_child == kNoNode) {
      above.first_child = node;
    } else {
      at(above.last_child).next_sibling = node;
    }
    above.last_child = node;
    return node;
  }

 private:
  struct Node {
    std::int32_t token = 0, parent = kNoNode, depth = 0;
    std::int32_t first_child = kNoNode, last_child = kNoNode, next_sibling = kNoNode;
    bool has_dist = false;
    DraftDistribution<Real> dist;
  };

  Node& at(std::int32_t node) { return nth(nodes_, node); }
  const Node& at(std::int32_t node) const { return nth(nodes_, node); }
  std::size_t offset(std::int32_t node) const { return to_size(node) * vocabulary_; }

  std::size_t vocabulary_;
  bool keeps_dists_;
  std::vector<Node> nodes_;
  std::vector<Real> dists_;  // [capacity, V]
};

}  // namespace tessera
