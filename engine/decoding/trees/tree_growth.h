// How a tree of drafts grows: from slots, a slot being the next candidate after a node. Fixed
// growth fills nodes in the order they came: `width` candidates after each node above `depth`,
// then one line below the first path until the room is used up. Growth by value (DySpec, arXiv
// 2410.11744) always fills the slot that is likeliest to be reached: the chance that the path to it
// is accepted and that the candidates before it are refused. That shape follows drafts and their
// distributions: where drafts outlive the pass it would tell of them, and only equality may ask for it.
//
// The distributions of a node's children come from the window that the last pass left, one a depth, whoever
// the parent (they only propose), or from a model that is asked node by node. In the former case
// the window's own drafts are the first path; growth by value leaves it seven rows in eight, since
// rows far down do not serve this pass but make the drafts of the next ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/method_part.h"
#include "engine/decoding/trees/candidates.h"

namespace tessera {

struct TreeSettings {
  std::int64_t width = 3;  // most candidates after a node
  std::int64_t depth = 3;  // fixed growth: levels that branch
  bool by_value = false;
  static std::span<const BoundSetting<TreeSettings>> rows();
};

namespace setting {

inline constexpr Setting kTreeWidth{.name = "tree-width",
                                    .kind = SettingKind::kInteger,
                                    .help = "drafts of one position at most",
                                    .low = 1,
                                    .high = 64,
                                    .fallback = TreeSettings{}.width,
                                    .doors = kWhereDecoded,
                                    .record = "tree.width",
                                    .refused_unused = true,
                                    .word = "tree width",
                                    .step = 1};
inline constexpr Setting kTreeDepth{
    .name = "tree-depth",
    .kind = SettingKind::kInteger,
    .help = "positions after which drafts branch, where the tree is of a fixed shape",
    .low = 0,
    .high = 64,
    .fallback = TreeSettings{}.depth,
    .doors = kWhereDecoded,
    .record = "tree.depth",
    .refused_unused = true,
    .word = "tree depth",
    .step = 1};

}  // namespace setting

inline std::span<const BoundSetting<TreeSettings>> TreeSettings::rows() {
  static constexpr BoundSetting<TreeSettings> kRows[] = {
      {&setting::kTreeWidth, &TreeSettings::width}, {&setting::kTreeDepth, &TreeSettings::depth}};
  return kRows;
}

template <typename Real>
class TreeGrowth {
 public:
  TreeGrowth(const TreeSettings& settings, std::size_t capacity, std::size_t vocabulary)
      : settings_(settings) {
    slots_.reserve(2 * capacity);
    wanted_.reserve(capacity);
    states_.resize(capacity);
    ids_.resize(vocabulary);
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  struct Limits {
    std::size_t nodes = 0;   // drafts
    std::size_t line = 0;    // of them, those that the first path gets before all others
    std::int32_t depth = 0;  // of the deepest
  };

  // Begins a tree that has its root alone. `boldness`: refusals a doubt.
  void begin(const Limits& limits, double boldness) {
    limits_ = limits;
    boldness_ = boldness;
    slots_.clear();
    wanted_.clear();
    if (limits.depth > 0) open(0, /*first=*/true, 1.0);
  }

  // Adds nodes until the room is used up (true), or until the distributions of wanted() are asked for
  // (false). window: distributions and tokens of the first path, null when a model is asked.
  template <typename Random>
  bool grow(DraftTree<Real>& tree, const DraftWindow<Real>* window, Candidates kind,
            std::uint32_t position, Random& random, std::span<Real> scratch) {
    return grow(tree, window, DrawnCandidates<Real, Random>{ids_, kind, position, random, scratch});
  }
  // The same with candidates from elsewhere: next() and prob() of `source` as in DrawnCandidates.
  template <typename Source>
  bool grow(DraftTree<Real>& tree, const DraftWindow<Real>* window, Source&& source) {
    wanted_.clear();
    while (!slots_.empty() && tree.size() <= limits_.nodes) {
      const std::size_t best = tree.size() <= limits_.line ? tip_slot() : best_slot();
      const Slot slot = slots_[best];
      if (!dist_known(tree, window, slot.node)) {
        if (states_[at(slot.node)].asked) {  // in vain
          close(best);
          continue;
        }
        ask_for_dists(tree);
        return false;
      }
      fill(tree, window, best, source);
    }
    return true;
  }

  std::span<const std::int32_t> wanted() const { return wanted_; }
  // Of a candidate's chance: tells those of one position apart.
  std::uint32_t lane_of(std::int32_t node, std::int64_t number) const {
    return narrow<std::uint32_t>(node * settings_.width + number);
  }

 private:
  struct Slot {
    std::int32_t node = 0;
    double value = 0;
  };
  struct NodeState {
    bool first_path = false, asked = false;
    std::int64_t children = 0;
    double value = 0;  // of the node's next slot
    double left = 1;   // of the distribution's mass, without the candidates so far
  };

  static std::size_t at(std::int32_t node) { return to_size(node); }

  void open(std::int32_t node, bool first, double value) {
    states_[at(node)] = {.first_path = first, .value = value};
    slots_.push_back({node, settings_.by_value ? value : -to_double(node)});
  }
  void close(std::size_t slot) {
    slots_[slot] = slots_.back();
    slots_.pop_back();
  }
  // The one that prolongs the first path; the most valuable one if there is none.
  std::size_t tip_slot() const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const NodeState& state = states_[at(slots_[i].node)];
      if (state.first_path && state.children == 0) return i;
    }
    return best_slot();
  }
  // The most valuable one, the older node on a tie.
  std::size_t best_slot() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < slots_.size(); ++i) {
      const bool better = slots_[i].value > slots_[best].value;
      const bool same = slots_[i].value == slots_[best].value;
      if (better || (same && slots_[i].node < slots_[best].node)) best = i;
    }
    return best;
  }

  // The window's distribution where there is a window.
  bool dist_known(DraftTree<Real>& tree, const DraftWindow<Real>* window, std::int32_t node) {
    if (tree.has_dist(node) || window == nullptr) return tree.has_dist(node);
    states_[at(node)].asked = true;
    const std::size_t depth = at(tree.depth(node));
    if (depth < window->size()) tree.set_dist(node, window->dist(depth));
    return tree.has_dist(node);
  }

  void ask_for_dists(const DraftTree<Real>& tree) {
    for (const Slot& slot : slots_) {
      NodeState& state = states_[at(slot.node)];
      if (state.asked) continue;
      // Fixed growth asks a level at a time, and for nodes that will be filled.
      if (!settings_.by_value && tree.size() + wanted_.size() > limits_.nodes) continue;
      state.asked = true;
      wanted_.push_back(slot.node);
    }
  }

  std::int64_t max_children(const DraftTree<Real>& tree, std::int32_t node) const {
    if (settings_.by_value || tree.depth(node) < settings_.depth) return settings_.width;
    return states_[at(node)].first_path ? 1 : 0;
  }

  template <typename Source>
  void fill(DraftTree<Real>& tree, const DraftWindow<Real>* window, std::size_t slot,
            Source& source) {
    const std::int32_t node = slots_[slot].node;
    NodeState& state = states_[at(node)];
    const double reach = state.value;
    const bool given = window != nullptr && state.first_path && state.children == 0;
    std::int32_t token = -1;
    if (given) {
      token = window->token(at(tree.depth(node)));
    } else if (state.children == 0 || tree.dist(node).kind == DistributionKind::kDense) {
      token = source.next(tree, node, lane_of(node, state.children));
    }
    if (token < 0) return close(slot);
    const auto q = to_double(source.prob(tree, node, token));
    const double likely = state.left > 0 ? std::min(1.0, q / state.left) : 0.0;  // of those left
    const double refused = state.children == 0 ? refusal(likely) : 1 - likely;
    const std::int32_t child = tree.add(node, token);
    const bool first = state.first_path && state.children == 0;
    ++state.children;
    state.left -= q;
    state.value = reach * refused;
    slots_[slot].value = settings_.by_value ? state.value : slots_[slot].value;
    if (state.children >= max_children(tree, node)) close(slot);
    states_[at(child)] = {.first_path = first};
    if (tree.depth(child) < limits_.depth && max_children(tree, child) > 0) {
      open(child, first, reach * (1 - refused));
    }
  }

  // The chance that the first candidate is refused: its doubt, calibrated by what came true of
  // doubts so far.
  double refusal(double likely) const { return std::min(1.0, boldness_ * (1.0 - likely)); }

  TreeSettings settings_;
  Limits limits_;
  double boldness_ = 1;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> wanted_;
  std::vector<NodeState> states_;
  std::vector<std::int32_t> ids_;  // 0 ... V - 1
};

}  // namespace tessera
