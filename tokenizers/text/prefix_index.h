// Which of many strings a text goes on with at a place: the strings are sorted, and reading the
// text byte by byte narrows a range of them by bisection. No automaton whose size a file could blow
// up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  struct Range {
    std::size_t low = 0, high = 0;
  };
  Range narrowed(Range range, std::size_t depth, unsigned char byte) const;

  std::vector<Entry> entries_;  // sorted by text
  std::vector<Range> first_;    // [256], by first byte
};

template <class Visit>
void PrefixIndex::visit_at(std::string_view text, std::size_t at, RegexScratch& scratch,
                           Visit&& visit) const {
  if (at >= text.size() || first_.empty()) return;
  Range range = first_[static_cast<unsigned char>(text[at])];
  for (std::size_t depth = 1; range.low != range.high; ++depth) {
    const Entry& entry = entries_[range.low];
    if (range.high - range.low == 1) {  // one candidate: compare what is left of it
      const std::string_view rest = text.substr(at + depth);
      const std::string_view wanted = entry.text.substr(depth);
      const std::size_t length = std::min(wanted.size(), rest.size());
      const auto stop =
          std::mismatch(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(length),
                        rest.begin())
              .first;
      scratch.spend(1 + static_cast<std::uint64_t>(stop - wanted.begin()) / 8);
      if (stop == wanted.end()) visit(entry.text.size(), entry.index);
      return;
    }
    scratch.spend(1);
    if (entry.text.size() == depth) visit(depth, entry.index);
    if (at + depth >= text.size()) return;
    range = narrowed(range, depth, static_cast<unsigned char>(text[at + depth]));
  }
}

}  // namespace tessera
