#include "engine/decoding/trees/device_tree.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/core/index.h"

namespace tessera {

namespace {
using Tree = DraftTree<float>;
using OnHost = DrawnCandidates<float, KeyedRandom>;

bool stands(const Tree& tree, std::int32_t node, std::int32_t token) {
  for (std::int32_t c = tree.first_child(node); c != kNoNode; c = tree.next_sibling(c)) {
    if (tree.token(c) == token) return true;
  }
  return false;
}

// The next candidate where the distribution is a forced id.
std::int32_t next_forced(const Tree& tree, std::int32_t node, std::int32_t forced,
                         Candidates kind) {
  const bool gone = kind != Candidates::kIndependent && stands(tree, node, forced);
  return gone ? -1 : forced;
}
}  // namespace

// Candidates whose tokens come later. The first draft of a window's depth is one of the ids that
// its distribution allows.
struct DeviceTree::Unseen {
  const DeviceTree& of;
  OnHost host;

  std::int32_t next(const Tree& tree, std::int32_t node, std::uint32_t lane) const {
    if (tree.dist(node).kind != DistributionKind::kDense) return host.next(tree, node, lane);
    const std::size_t depth = of.depth_of(node);
    if (const auto forced = of.forced_at(depth)) {
      return next_forced(tree, node, *forced, host.kind);
    }
    if (host.kind == Candidates::kIndependent) return 0;
    std::int32_t count = 0;
    for (std::int32_t c = tree.first_child(node); c != kNoNode; c = tree.next_sibling(c)) ++count;
    return count < of.allowed_[depth] ? 0 : -1;
  }
  // Fixed growth does not ask.
  static float prob(const Tree&, std::int32_t, std::int32_t) { return 0; }
};

// Candidates in the order of the race of their depth.
struct DeviceTree::Listed {
  const DeviceTree& of;
  OnHost host;
  std::span<const DrawnId> drawn;
  std::size_t each;  // entries a draw

  // Of a depth; empty where nothing was asked.
  std::span<const DrawnId> list(std::size_t depth) const {
    for (std::size_t i = 0; i < of.asked_.size(); ++i) {
      if (of.asked_[i].depth == depth) return drawn.subspan(i * each, each);
    }
    return {};
  }
  std::int32_t next(const Tree& tree, std::int32_t node, std::uint32_t lane) const {
    if (tree.dist(node).kind != DistributionKind::kDense) return host.next(tree, node, lane);
    const std::size_t depth = of.depth_of(node);
    if (const auto forced = of.forced_at(depth)) {
      return next_forced(tree, node, *forced, host.kind);
    }
    for (const DrawnId& id : list(depth).subspan(1)) {
      if (id.token < 0) return -1;
      if (!stands(tree, node, id.token)) return id.token;
    }
    return -1;
  }
  float prob(const Tree& tree, std::int32_t node, std::int32_t token) const {
    if (tree.dist(node).kind != DistributionKind::kDense) return tree.dist(node).prob(token);
    const std::size_t depth = of.depth_of(node);
    if (const auto forced = of.forced_at(depth)) return token == *forced ? 1.0f : 0.0f;
    for (const DrawnId& id : list(depth)) {
      if (id.token == token) return id.probability;
    }
    expects(false, "a candidate's probability was asked for");
    return 0;
  }
};

// Candidates by a draft model's distributions, drawn node by node.
struct DeviceTree::OfNodes {
  const DeviceTree& of;
  OnHost host;  // for what is not on the device

  std::span<const DrawnId> list(std::int32_t node) const {
    const auto width = to_size(of.parts_.settings.width);
    return std::span(of.of_nodes_).subspan(at(node) * width, width);
  }
  std::int32_t next(const Tree& tree, std::int32_t node, std::uint32_t) const {
    if (const auto forced = of.forced_at(of.depth_of(node))) {
      return next_forced(tree, node, *forced, host.kind);
    }
    std::size_t number = 0;
    for (std::int32_t c = tree.first_child(node); c != kNoNode; c = tree.next_sibling(c)) ++number;
    return list(node)[number].token;
  }
  float prob(const Tree&, std::int32_t node, std::int32_t token) const {
    if (const auto forced = of.forced_at(of.depth_of(node))) return token == *forced ? 1.0f : 0.0f;
    const std::span<const DrawnId> ids = list(node);
    const auto found =
        std::find_if(ids.begin(), ids.end(), [&](const DrawnId& id) { return id.token == token; });
    return found->probability;
  }
};

DeviceTree::DeviceTree(const DistributionSettings& dist, const VocabularyGrammar& grammar, std::size_t rows,
                       const TreeParts<float, KeyedRandom>& parts,
                       const RedraftPolicy<float, KeyedRandom>* redraft_policy,
                       Drafter<float, KeyedRandom>* drafter, KeyedRandom random, std::size_t item)
    : TreeSequence(dist, grammar, rows, parts, redraft_policy, drafter, DraftDistributions::kOfRows, /*own_dists=*/false,
                   random, item),
      ids_(grammar.vocabulary()) {
  if (parts.source != nullptr) {
    of_nodes_.resize(rows * to_size(parts.settings.width));
  }
  std::iota(ids_.begin(), ids_.end(), 0);
  asked_.reserve(rows);
}

// Where the position forces an id no candidate is drawn, and no row is read.
float DeviceTree::chance_of_first(std::int32_t node, const Verdict<float>& verdict) const {
  const std::optional<std::int32_t> forced = grammar().forced(position());
  if (!forced) return verdict.chance;
  const DraftDistribution<float>& dist = tree_.dist(node);
  if (dist.kind != DistributionKind::kDense) return dist.prob(candidates_[0]);
  return candidates_[0] == *forced ? 1.0f : 0.0f;
}

VerifiedDraw DeviceTree::draw_of(std::size_t depth) const {
  return {.key = random_.key(),
          .pass = random_.pass(),
          .position = position() + narrow<std::uint32_t>(depth),
          .dist_row = window_.dist_row(depth)};
}

void DeviceTree::ask(std::vector<VerifiedDraw>& draws) {
  asked_.clear();
  if (parts_.source != nullptr) return ask_for_nodes(draws);
  parts_.settings.by_value ? ask_for_lists(draws) : ask_for_candidates(draws);
}

void DeviceTree::ask_for_lists(std::vector<VerifiedDraw>& draws) {
  for (std::size_t depth = 0; depth < window_.size(); ++depth) {
    if (!on_device(depth)) continue;
    VerifiedDraw draw = draw_of(depth);
    draw.count = narrow<std::int32_t>(parts_.settings.width);
    draw.asked = window_.token(depth);
    draws.push_back(draw);
    asked_.push_back({kNoNode, depth});
  }
}

// Grows the shape and asks for all candidates but those of the window itself.
void DeviceTree::ask_for_candidates(std::vector<VerifiedDraw>& draws) {
  const Candidates kind = parts_.rule->candidates();
  growth_.grow(tree_, &window_, Unseen{*this, {ids_, kind, position(), random_, scratch_}});
  sort_rows();
  std::int32_t tip = 0;  // of the first path
  for (std::int32_t node = 0; at(node) < tree_.size(); ++node) {
    std::int32_t child = tree_.first_child(node);
    const bool given = node == tip;
    if (given) tip = child;
    if (child == kNoNode || !on_device(depth_of(node))) continue;
    VerifiedDraw draw = draw_of(depth_of(node));
    if (given) {
      draw.without = tree_.token(child);
      child = tree_.next_sibling(child);
    }
    draw.lane = narrow<std::int32_t>(growth_.lane_of(node, given ? 1 : 0));
    const std::int32_t first = child;
    for (; child != kNoNode; child = tree_.next_sibling(child)) ++draw.count;
    if (draw.count == 0) continue;
    draws.push_back(draw);
    asked_.push_back({first, depth_of(node)});
  }
}

// Of the nodes that growth asked for, those that have a distribution now.
void DeviceTree::ask_for_nodes(std::vector<VerifiedDraw>& draws) {
  for (const std::int32_t node : growth_.wanted()) {
    if (!tree_.has_dist(node) || forced_at(depth_of(node))) continue;
    draws.push_back({.key = random_.key(),
                     .pass = random_.pass(),
                     .position = position() + narrow<std::uint32_t>(tree_.depth(node)),
                     .dist_row = tree_.dist(node).guest,
                     .lane = narrow<std::int32_t>(growth_.lane_of(node, 0)),
                     .count = narrow<std::int32_t>(parts_.settings.width)});
    asked_.push_back({node, depth_of(node)});
  }
}

TreeJob<float> DeviceTree::grow() {
  if (parts_.source == nullptr) return {};
  const OfNodes source{*this, {ids_, parts_.rule->candidates(), position(), random_, scratch_}};
  if (!growth_.grow(tree_, nullptr, source)) return {item_, tokens_, &tree_, growth_.wanted()};
  sort_rows();
  return {};
}

void DeviceTree::take_drawn(std::span<const DrawnId> drawn) {
  const auto each = to_size(parts_.settings.width) + 1;
  if (parts_.source != nullptr) {
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      const auto list = drawn.subspan(i * each + 1, each - 1);
      std::copy(list.begin(), list.end(),
                of_nodes_.begin() + to_index(at(asked_[i].child) * (each - 1)));
    }
    return;
  }
  if (parts_.settings.by_value) {
    const Candidates kind = parts_.rule->candidates();
    growth_.grow(tree_, &window_,
                 Listed{*this, {ids_, kind, position(), random_, scratch_}, drawn, each});
    return sort_rows();
  }
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    std::size_t number = i * each + 1;
    for (std::int32_t c = asked_[i].child; c != kNoNode; c = tree_.next_sibling(c)) {
      expects(drawn[number].token >= 0, "a distribution has as many ids as it said");
      tree_.set_token(c, drawn[number++].token);
    }
  }
}

}  // namespace tessera
