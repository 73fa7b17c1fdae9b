// See prefix_index.h.
#include "tokenizers/text/prefix_index.h"

namespace tessera {

PrefixIndex::PrefixIndex(const std::vector<std::string>& strings) : first_(256) {
  entries_.reserve(strings.size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (!strings[i].empty()) entries_.push_back({strings[i], static_cast<std::int32_t>(i)});
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Range& range = first_[static_cast<unsigned char>(entries_[i].text[0])];
    if (range.high == 0) range.low = i;
    range.high = i + 1;
  }
}

PrefixIndex::Range PrefixIndex::narrowed(Range range, std::size_t depth, unsigned char byte) const {
  const auto byte_of = [depth](const Entry& entry) {
    return depth < entry.text.size()
               ? static_cast<int>(static_cast<unsigned char>(entry.text[depth]))
               : -1;
  };
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(range.low);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(range.high);
  const auto low = std::lower_bound(begin, end, static_cast<int>(byte),
                                    [&](const Entry& e, int value) { return byte_of(e) < value; });
  const auto high = std::upper_bound(low, end, static_cast<int>(byte),
                                     [&](int value, const Entry& e) { return value < byte_of(e); });
  return {static_cast<std::size_t>(low - entries_.begin()),
          static_cast<std::size_t>(high - entries_.begin())};
}

}  // namespace tessera
