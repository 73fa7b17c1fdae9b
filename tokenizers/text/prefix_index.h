// Which of many strings a text goes on with at a place: a trie that ends where one string is left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/index.h"
#include "tokenizers/text/regex.h"

namespace tessera {

class PrefixIndex {
 public:
  PrefixIndex() = default;
  // `strings` outlives the index. Empty strings are never found; of equal ones the first given is.
  explicit PrefixIndex(const std::vector<std::string>& strings);

  // visit(length in bytes, index into the strings) for each string that `text` has at byte `at`,
  // shortest first. Each byte read counts against the step budget.
  template <class Visit>
  void visit_at(std::string_view text, std::size_t at, RegexScratch& scratch, Visit&& visit) const;

 private:
  struct Entry {
    std::string_view text;
    std::int32_t index = 0;
  };
  struct Node {
    std::int32_t entry = -1;  // that ends here; of a leaf, that goes on here
    std::uint32_t first_child = 0;
    std::uint16_t children = 0;  // 0: a leaf
  };
  const Node* child(const Node& node, unsigned char byte) const;

  // A node is a jump in memory, four times as dear as a step of a pattern.
  static constexpr std::uint64_t kStepsPerNode = 4;
  std::vector<Entry> entries_;        // sorted by text
  std::vector<Node> nodes_;           // the root first; children of a node lie together
  std::vector<unsigned char> bytes_;  // by node, that leads to it
  std::vector<std::uint32_t> root_;   // [256], child of the root or 0
};

template <class Visit>
void PrefixIndex::visit_at(std::string_view text, std::size_t at, RegexScratch& scratch,
                           Visit&& visit) const {
  if (at >= text.size() || root_.empty()) return;
  const std::uint32_t first = root_[byte_of(text[at])];
  if (first == 0) return;
  const Node* node = &nodes_[first];
  for (std::size_t depth = 1; node != nullptr; ++depth) {
    scratch.spend(kStepsPerNode);
    if (node->children == 0) {  // one candidate: compare what is left of it
      const Entry& entry = nth(entries_, node->entry);
      const std::string_view rest = text.substr(at + depth), wanted = entry.text.substr(depth);
      scratch.spend(std::min(wanted.size(), rest.size()) / 8);
      if (rest.starts_with(wanted)) visit(entry.text.size(), entry.index);
      return;
    }
    if (node->entry >= 0) visit(depth, nth(entries_, node->entry).index);
    if (at + depth >= text.size()) return;
    node = child(*node, byte_of(text[at + depth]));
  }
}

}  // namespace tessera
