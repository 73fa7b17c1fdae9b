// See prefix_index.h. Nodes are made level by level, so that the children of one lie together; the
// strings that share a node are neighbours in sorted order.
#include "tokenizers/text/prefix_index.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

struct Level {
  std::size_t node, low, high, depth;
};

}  // namespace

PrefixIndex::PrefixIndex(const std::vector<std::string>& strings) {
  entries_.reserve(strings.size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (!strings[i].empty()) entries_.push_back({strings[i], narrow<std::int32_t>(i)});
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  if (entries_.empty()) return;
  nodes_.resize(1);
  bytes_.resize(1);
  std::vector<Level> open = {{0, 0, entries_.size(), 0}};
  while (!open.empty()) {
    const Level here = open.back();
    open.pop_back();
    std::size_t low = here.low;
    if (entries_[low].text.size() == here.depth) {
      nodes_[here.node].entry = narrow<std::int32_t>(low);
      ++low;
    }
    nodes_[here.node].first_child = narrow<std::uint32_t>(nodes_.size());
    while (low < here.high) {
      const char byte = entries_[low].text[here.depth];
      const auto differs = [&](const Entry& entry) { return entry.text[here.depth] != byte; };
      const auto end = std::find_if(entries_.begin() + to_index(low),
                                    entries_.begin() + to_index(here.high), differs);
      const auto high = to_size(end - entries_.begin());
      ++nodes_[here.node].children;
      bytes_.push_back(byte_of(byte));
      if (high - low > 1) open.push_back({nodes_.size(), low, high, here.depth + 1});
      nodes_.push_back({.entry = narrow<std::int32_t>(low)});
      if (high - low > 1) nodes_.back().entry = -1;
      low = high;
    }
  }
  root_.assign(256, 0);
  for (std::uint32_t i = 0; i < nodes_[0].children; ++i)
    root_[bytes_[nodes_[0].first_child + i]] = nodes_[0].first_child + i;
}

const PrefixIndex::Node* PrefixIndex::child(const Node& node, unsigned char byte) const {
  const auto begin = bytes_.begin() + node.first_child;
  const auto found = std::lower_bound(begin, begin + node.children, byte);
  if (found == begin + node.children || *found != byte) return nullptr;
  return &nth(nodes_, found - bytes_.begin());
}

}  // namespace tessera
